from __future__ import annotations

from dataclasses import replace

import pytest
from packages.weft.tests.cli.jobs import CLUSTER, NODE, NOW, QUEUE, job
from rich.console import Console, RenderableType

from weft.cli.view.status import (
    board,
    colours_of,
    job_details,
    jobs_table,
    nodes_table,
    queue_table,
)
from weft.cli.view.words import batch, gpus, plain, ranges, span, where


def drawn(what: RenderableType, width: int) -> str:
    screen = Console(width=width, markup=False, highlight=False, no_color=True)
    with screen.capture() as capture:
        screen.print(what)
    return capture.get()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_table_of_jobs_fits_the_terminal_and_keeps_ids_whole(width: int) -> None:
    text = drawn(jobs_table(QUEUE, NOW, width), width)

    lines = text.rstrip().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    assert len(lines) >= len(QUEUE) + 1
    for listed in QUEUE:
        assert listed.id in text


@pytest.mark.parametrize("width", [80, 100, 120, 150])
def test_a_reason_is_never_cut(width: int) -> None:
    waiting = [replace(listed, id=f"j{i}", name="train") for i, listed in enumerate(QUEUE)]

    for table in (jobs_table(waiting, NOW, width), queue_table(waiting, NOW, width)):
        text = drawn(table, width)

        for word in ("asks for 4 GPUs", "long", "exit code 3", "no data"):
            assert all(part in text.split() or part in text for part in word.split())
        assert "…" not in text


def test_names_are_shown_of_all_jobs_or_of_none() -> None:
    jobs = [job("train-1a2b", name="train", gpus=(0,)), job("x-1", name="other", gpus=(1,))]

    both, alone = drawn(jobs_table(jobs, NOW, 120), 120), drawn(jobs_table(jobs[:1], NOW, 120), 120)

    assert "train-1a2b  train" in both
    assert "name" not in alone


@pytest.mark.parametrize("columns", ["", "200"])
def test_programs_get_names_whole(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    name = "a-name-that-goes-on-and-on-and-on-until-its-seed-41"
    jobs = [job("a-1", name=name, gpus=(0,)), job("b-1", name="other", gpus=(1,))]

    text = drawn(jobs_table(jobs, NOW, 400), 400)

    assert (name in text) is not columns.isdigit()  # who names a width has narrow columns


def test_jobs_beside_each_other_differ_in_colour() -> None:
    colours = colours_of(QUEUE[:3])

    assert len(set(colours.values())) == 3


def test_devices_of_others_are_in_use_without_a_name() -> None:
    node = replace(NODE, held_gpus=[0, 1, 2, 3], drained_gpus=[])

    text = drawn(board(CLUSTER, [node], [], NOW, 80), 80)

    assert text.count("in use") == 4


def test_a_drained_device_is_called_so() -> None:
    text = drawn(board(CLUSTER, [replace(NODE, drained_gpus=[1])], [], NOW, 80), 80)

    assert text.count("drained") == 1


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_shows_devices_batches_goodput_and_the_queue(width: int) -> None:
    text = drawn(board(CLUSTER, [NODE], QUEUE, NOW, width), width)

    assert max(map(len, text.splitlines())) <= width
    assert "left + right" in text
    assert "12,346/s" in text
    assert "512" in text
    assert "3 of 4 held" in text
    assert text.index("queue") < text.index("a-name-that-is")


def test_a_sweep_is_one_line_of_the_live_view_and_its_devices_keep_their_jobs() -> None:
    running = [job(f"sweep-{i}", gpus=(i,), app="sweep") for i in range(2)]
    others = [job(f"sweep-{i}", "pending", app="sweep") for i in range(2, 9)]
    done = [job("sweep-9", "succeeded", app="sweep")]
    waits = [job(f"late-{i}", "pending", app="late") for i in range(3)]

    text = drawn(board(CLUSTER, [NODE], [*running, *others, *done, *waits], NOW, 160), 160)

    assert "10 jobs: 2 running, 7 pending, 1 succeeded" in text
    assert "3 jobs: 3 pending" in text
    assert (text.count("sweep-0"), text.count("sweep-1"), text.count("sweep-5")) == (1, 1, 0)
    assert "2 running · 10 waiting" in text


def test_an_idle_cluster_says_so() -> None:
    assert "no job runs or waits" in drawn(board(CLUSTER, [NODE], [], NOW, 80), 80)


def test_a_node_that_is_drained_shows_no_devices() -> None:
    nodes = [replace(NODE, state="drained")]

    assert "drained" in drawn(board(CLUSTER, nodes, [], NOW, 80), 80)


def test_a_node_says_what_it_holds() -> None:
    head, *_, last = drawn(nodes_table([NODE], QUEUE, 80), 80).splitlines()

    assert head.split()[:5] == ["node", "state", "kind", "slots", "held"]
    assert last.split()[:5] == ["ada", "up", "cpu", "4", "3"]
    with_gpus = drawn(nodes_table([replace(NODE, kind="t4")], QUEUE, 80), 80)
    assert with_gpus.splitlines()[0].split()[3] == "gpus"


def test_names_from_other_people_cannot_play_with_the_terminal() -> None:
    evil = job("x", name="a\x1b[31m\nb[bold]c[/]", gpus=(0,))

    text = drawn(job_details(evil, NOW), 80)

    assert "\x1b" not in text
    assert "a [31m b[bold]c[/]" in text


def test_words_of_a_job() -> None:
    shared = QUEUE[1]

    assert gpus(shared.allocation) == "1 cpu x 0.5"
    assert where(QUEUE[0].allocation) == "ada:0-1"
    assert batch(shared) == "64"
    assert span(shared, NOW) == "3.33 min"
    assert ranges([6, 0, 1, 2, 3, 8]) == "0-3,6,8"
    assert plain("a\tb") == "a b"
    assert gpus(QUEUE[3].allocation) == ""
