from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.refused import refused

from weft.cli.job_files.job_file import from_command, from_file
from weft.cli.job_files.job_options import Flags, batch_of, gpus_of, pair_of, seconds_of
from weft.core.errors import InvalidConfig

FILE = """\
name: resnet18
command: [python, train.py]
workdir: code
gpus: {min: 1, max: 16}
env: {DATA: /data, SEED: 3}
checkpoint: {dir: ckpt, grace_s: 60}
"""


def written(folder: Path, text: str, name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_says_what_the_job_is_and_its_folder_where(tmp_path: Path) -> None:
    body = from_file(written(tmp_path, FILE), Flags())

    assert body["gpus"] == {"min": 1, "max": 16}
    assert body["workdir"] == str(tmp_path / "code")


def test_flags_win_and_are_merged_field_by_field(tmp_path: Path) -> None:
    flags = Flags(gpus="2", env=("SEED=4",), grace_s=5.0)

    body = from_file(written(tmp_path, FILE), flags)

    assert body["gpus"] == 2
    assert body["env"] == {"DATA": "/data", "SEED": "4"}
    assert body["checkpoint"] == {"dir": "ckpt", "grace_s": 5.0}


def test_a_range_of_gpus_replaces_the_one_of_the_file(tmp_path: Path) -> None:
    body = from_file(written(tmp_path, "gpus: {min: 2, max: 3}"), Flags(gpus="1-8"))

    assert body["gpus"] == {"min": 1, "max": 8}


def test_a_file_without_a_name_or_a_folder_has_its_own(tmp_path: Path) -> None:
    body = from_file(written(tmp_path, "command: python 'a b.py' -x", "bert.yml"), Flags())

    assert body == {"name": "bert", "command": ["python", "a b.py", "-x"], "workdir": str(tmp_path)}


@refused(
    InvalidConfig,
    {
        "a: [": r"job.yaml, line \d, column \d: not YAML",
        "": "found nothing, expected fields",
        "- a": "found list, expected fields",
        'command: "\'"': "command: No closing quotation",
    },
)
def test_a_file_that_is_none_is_answered_with_its_name(text: str, tmp_path: Path) -> None:
    from_file(written(tmp_path, text), Flags())


def test_a_missing_job_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*no\.yaml: No such file"):
        from_file(tmp_path / "no.yaml", Flags())


def test_a_command_runs_where_and_with_the_python_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    around = {"PATH": "/venv/bin", "SECRET": "x"}

    body = from_command(["python", "sub/train.py", "--lr", "1"], Flags(env=("A=1",)), around)

    assert body == {
        "name": "train",
        "command": ["python", "sub/train.py", "--lr", "1"],
        "workdir": str(tmp_path),
        "env": {"PATH": "/venv/bin", "A": "1"},
    }


def test_every_flag_has_its_field() -> None:
    flags = Flags(
        name="n",
        kinds="a100,h200",
        batch="128-4096:1024",
        processes="1",
        share="0.5",
        tenant="t",
        priority="opportunistic",
        cpus=2.0,
        mem_gb=1.5,
        retries=0,
        job_id="j",
        workdir=Path("/w"),
    )

    assert flags.body() == {
        "id": "j",
        "name": "n",
        "kinds": ["a100", "h200"],
        "batch": {"init": 128, "max": 4096, "max_per_gpu": 1024},
        "processes": 1,
        "share": 0.5,
        "tenant": "t",
        "priority": "opportunistic",
        "workdir": "/w",
        "cpus": 2.0,
        "mem_gb": 1.5,
        "retries": 0,
    }


@pytest.mark.parametrize(
    ("text", "gpus"), [("2", 2), ("1-4", {"min": 1, "max": 4}), ("1..4", {"min": 1, "max": 4})]
)
def test_gpus_are_a_number_or_a_range(text: str, gpus: Any) -> None:
    assert gpus_of(text) == gpus


@pytest.mark.parametrize("text", ["many", "1-2-3", "-1", "", "1.5"])
def test_other_gpus_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="not a number or a range"):
        gpus_of(text)


@pytest.mark.parametrize("text", ["128", "1-2-3", "a-b", "1-2:", "1-2:x"])
def test_other_batches_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="is not FIRST-LARGEST"):
        batch_of(text)


def test_a_variable_alone_takes_the_value_it_has_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "a=b")

    assert pair_of("HERE") == ("HERE", "a=b")
    assert pair_of("X=1=2") == ("X", "1=2")
    with pytest.raises(InvalidConfig, match="KEY=VALUE"):
        pair_of("NOT_SET_ANYWHERE")


@pytest.mark.parametrize(
    ("name", "then"),
    [
        ("train.py", "weft submit -- python train.py --lr 1;"),
        ("job.sbatch", "weft submit -- bash job.sbatch --lr 1;"),
        ("tool", "chmod +x tool, then weft submit -- ./tool --lr 1;"),
        ("./tool", "chmod +x ./tool, then weft submit -- ./tool --lr 1;"),
        ("run.sh", "weft submit -- bash run.sh --lr 1;"),
    ],
)
def test_a_file_that_is_no_job_file_is_refused_not_run(
    name: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "print(1)\n", name)

    with pytest.raises(InvalidConfig, match="is neither a job file nor") as caught:
        from_command([name, "--lr", "1"], Flags())

    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"to run it: {then}")


def test_a_number_is_not_a_command() -> None:
    with pytest.raises(InvalidConfig, match=r"begins with 0\.5"):
        from_command(["0.5", "true"], Flags())


def test_programs_are_commands_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = written(tmp_path, "#!/bin/sh\n", "run.sh")
    script.chmod(0o755)

    assert from_command(["./run.sh"], Flags())["command"] == ["./run.sh"]
    assert from_command(["true"], Flags())["command"] == ["true"]
    assert from_command(["there/only.sh"], Flags())["command"] == ["there/only.sh"]


@pytest.mark.parametrize(
    ("flags", "what"),
    [(Flags(share="half"), "--share 'half'"), (Flags(processes="4"), "--processes '4'")],
)
def test_flags_with_words_of_their_own_name_them(flags: Flags, what: str) -> None:
    with pytest.raises(InvalidConfig, match=what):
        flags.body()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1:30:00", 5400),
     ("10:00", 600), ("2-12:00:00", 216000)],
)  # fmt: skip
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "0", "1:2:3:4", "h", "inf"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a time"):
        seconds_of(text)


def test_variables_come_from_files_and_the_jobs_own_win(tmp_path: Path) -> None:
    written(tmp_path, "# keys\nexport TOKEN='a b'\nSEED=1 # one\n\nDATA=/x\n", ".env")
    job = written(tmp_path, "run: true\nenv_file: .env\nenv: {DATA: /mine}\ntime_limit: 2h\n")

    body = from_file(job, Flags(env=["SEED=9"]))

    assert body["env"] == {"TOKEN": "a b", "SEED": "9", "DATA": "/mine"}
    assert body["time_limit_s"] == 7200.0
    assert "env_file" not in body


def test_a_file_of_variables_that_cannot_be_read_names_the_line(tmp_path: Path) -> None:
    written(tmp_path, "A=1\nwhat is this\n", ".env")

    with pytest.raises(InvalidConfig, match="line 2"):
        from_file(written(tmp_path, "run: true\nenv_file: [.env]\n"), Flags())


def test_a_deadline_may_say_what_happens_where_it_cannot_be_promised(tmp_path: Path) -> None:
    file = written(tmp_path, "run: true\ngpus: 1\ndeadline: {by: 8h, or: warn}\n")

    body = from_file(file, Flags())
    flags = from_file(file, Flags(deadline="1h", deadline_or="decline"))

    assert (body["deadline_s"], body["deadline_or"]) == (28800.0, "warn")
    assert (flags["deadline_s"], flags["deadline_or"]) == (3600.0, "decline")
