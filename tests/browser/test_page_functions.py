"""Functions of the page's scripts that take values and give values, in a real browser.

The scripts are served as files on loopback: no service is needed, and none is asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import PATIENCE_MS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WEB = Path(__file__).resolve().parents[2] / "packages" / "weft" / "src" / "weft" / "service" / "web"
HOUR, DAY = 3600, 86400
Call = Callable[..., Any]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test that fails says what it asked for."""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page that can import the scripts."""
    root = tmp_path_factory.mktemp("page")
    (root / "web").symlink_to(WEB)
    (root / "index.html").write_text("<!doctype html><title>scripts</title>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context(timezone_id="UTC", locale="en-GB")
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        yield page
    finally:
        context.close()
        server.shutdown()
        server.server_close()


@pytest.fixture
def call(page: Page) -> Call:
    """Calls a function of a script by name: call("format", "duration", 90)."""

    def ask(script: str, name: str, *values: Any) -> Any:
        code = f"import('/web/js/{script}.js').then(m => m[{name!r}](...{json.dumps(values)}))"
        return page.evaluate(code)

    return ask


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1e-6, "0 s"),
        (0.25, "250 ms"),
        (59, "59 s"),
        (4000, "1 h 6 min"),
        (3600 * 30, "1 d 6 h"),
        (86400 * 12.5, "12 d"),
        (-90, "\u22121 min 30 s"),
        (None, ""),
    ],
)
def test_durations_have_two_units_at_most(call: Call, seconds: float | None, text: str) -> None:
    assert call("format", "duration", seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234, "1,234"), (0.001234, "0.00123"), (12345.6, "12,346"), (2.5e9, "2.50 G"), (None, "")],
)
def test_numbers_have_three_figures(call: Call, value: float | None, text: str) -> None:
    assert call("format", "number", value) == text


def test_parts_and_counts(call: Call) -> None:
    assert [call("format", "percent", part) for part in (0, 0.031, 0.5, 1)] == [
        *("0 %", "3.1 %", "50 %", "100 %")
    ]
    assert call("format", "count", 1, "GPU") == "1 GPU"
    assert call("format", "count", 0, "job") == "0 jobs"
    asked = {"gpus": {"min": 1, "max": 8, "asked": 1}, "share": 1}
    assert call("format", "asks", asked) == "1\u20138"
    half = {"gpus": {"min": 1, "max": 1, "asked": 1}, "share": 0.5}
    assert call("format", "asks", half) == "0.5"


def test_gpus_in_a_row_are_told_from_first_to_last(call: Call) -> None:
    assert call("format", "ranges", [3, 0, 1, 2, 6, 10, 9]) == "0\u20133, 6, 9\u201310"
    assert call("format", "ranges", []) == ""


def test_an_axis_of_another_day_names_the_day_once(call: Call) -> None:
    midnight = 20_000 * DAY  # 4 October 2024

    marks = call("format", "timeMarks", [midnight - HOUR, midnight, midnight + HOUR])

    assert marks == ["23:00\nThu 3 Oct", "00:00\nFri 4 Oct", "01:00"]


def test_an_axis_in_seconds_shows_them(call: Call) -> None:
    marks = call("format", "timeMarks", [20_000 * DAY, 20_000 * DAY + 10])

    assert marks[1] == "00:00:10"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python train.py --lr '1 e-3'", ["python", "train.py", "--lr", "1 e-3"]),
        ('say "a \\"b\\"" c\\ d', ["say", 'a "b"', "c d"]),
        ("  ''  ", [""]),
        ("", []),
    ],
)
def test_a_command_is_split_as_a_shell_would(call: Call, line: str, words: list[str]) -> None:
    assert call("views/submit", "words", line) == words


def test_the_form_advises_a_box_where_a_file_needs_other_words(call: Call) -> None:
    problem = {"message": "no shell reads it; write the line as a script: `run: |`", "hint": ""}

    assert call("views/submit", "inWordsOf", "file", problem) == problem
    form = call("views/submit", "inWordsOf", "form", problem)["message"]
    assert form == "no shell reads it; tick “it is a script” below the field"
    assert call("views/submit", "inWordsOf", "form", None) is None


def test_what_is_filled_in_becomes_a_job(call: Call) -> None:
    empty = dict.fromkeys(("name", "max", "workdir", "tenant", "batch", "batchMax", "duration"), "")
    form: dict[str, Any] = {
        **empty,
        "command": "python a.py",
        "script": False,
        "min": "1",
        "kinds": [],
    }
    form |= {"share": "allowed", "priority": "normal", "env": "A=1\nB=x=y\n"}

    plain = call("views/submit", "bodyOf", form)
    asked = call(
        "views/submit",
        "bodyOf",
        {**form, "script": True, "max": "4", "share": "0.5", "duration": "2", "batch": "32"},
    )

    assert plain == {"command": ["python", "a.py"], "gpus": 1, "env": {"A": "1", "B": "x=y"}}
    assert asked["run"] == "python a.py"
    assert asked["gpus"] == {"min": 1, "max": 4}
    assert asked["share"] == 0.5
    assert asked["hints"] == {"duration_s": 120}
    assert asked["batch"] == {"init": 32, "max": 32}


def test_an_address_has_what_was_chosen_and_nothing_else(call: Call) -> None:
    address = call("route", "link", "jobs", ["a/b"], {"state": "running", "q": "", "tenant": None})

    assert address == "#/jobs/a%2Fb?state=running"


def test_a_second_has_one_mark_on_an_axis(call: Call) -> None:
    marks = call("format", "timeMarks", [5, 5.25, 5.5, 5.75, 6, 6.25])

    assert [bool(mark) for mark in marks] == [True, False, False, False, True, False]


def _trial(lr: float, **values: float | None) -> dict[str, Any]:
    metrics = {name: {"value": value} for name, value in values.items()}
    return {"id": str(lr), "parameters": {"lr": lr, "seed": 1}, "metrics": metrics}


def test_the_best_of_a_sweep_is_first_by_the_metric_that_counts(call: Call) -> None:
    jobs = [_trial(1, loss=2.0, acc=0.9), _trial(2, loss=None), _trial(3, loss=0.5, acc=0.1)]
    terms = {"metric": "acc", "goal": "max"}

    def order(terms: dict[str, str], asked: dict[str, str]) -> list[str]:
        ranked = call("views/compare", "rank", jobs, terms, asked)
        assert ranked["best"] == ranked["jobs"][0]
        assert ranked["names"] == ["lr"]
        return [job["id"] for job in ranked["jobs"]]

    assert order({"metric": "", "goal": ""}, {}) == ["3", "1", "2"]
    assert order(terms, {}) == ["1", "3", "2"]
    assert order(terms, {"metric": "loss"}) == ["3", "1", "2"]
    assert order(terms, {"metric": "loss", "goal": "max"}) == ["1", "3", "2"]


def test_nobody_is_best_where_all_are_alike(call: Call) -> None:
    jobs = [_trial(1, loss=0.5), _trial(2, loss=0.5)]

    assert call("views/compare", "rank", jobs, {"metric": "", "goal": ""}, {})["best"] is None
    assert call("views/compare", "rank", [], {"metric": "", "goal": ""}, {})["best"] is None


def test_curves_share_their_steps_and_are_smoothed(call: Call) -> None:
    curves = [
        {"steps": [10, 20], "values": [2.0, 0.5]},
        {"steps": [30, 10, 40], "values": [0.7, 1.0, None]},
    ]

    assert call("curves", "overSteps", curves) == [
        [10, 20, 30, 40],
        [2.0, 0.5, None, None],
        [1.0, None, 0.7, None],
    ]
    assert call("curves", "smooth", [1, None, 0], 0.5) == [1, None, pytest.approx(1 / 3)]


@pytest.mark.parametrize(
    ("values", "places"),
    [
        (["1", "3", "2"], [0, 1, 0.5]),
        (["0.001", "0.1", "0.01"], [0, 1, pytest.approx(0.5)]),  # by ratio
        (["sgd", "adam"], [0.75, 0.25]),
        (["1", ""], [0.75, 0.25]),
        (["2", "2"], [0.5, 0.5]),
    ],
)
def test_parameters_have_places_on_their_own_scale(
    call: Call, values: list[str], places: list[float]
) -> None:
    assert call("curves", "placesOf", values) == places


@pytest.mark.parametrize("width", [370, 984])
@pytest.mark.parametrize(
    "sizes", [[1], [2], [4], [8], [8, 8], [8] * 5, [4] * 40, [8] * 40, [16, 2]]
)
def test_cells_of_the_map_take_the_whole_width_and_no_more(
    page: Page, sizes: list[int], width: int
) -> None:
    code = """([sizes, width]) => import('/web/js/gpu_map.js').then((m) => {
      const nodes = sizes.map((gpus, i) => [`n${i}`, {id: `n${i}`, gpus, kind: 'a100', rack: ''}]);
      const plan = m.layOut(new Map(nodes), width);
      const found = plan.cells.map((cell) => m.cellAt(plan, cell.x + 1, cell.y + 1));
      return {...plan, found, corners: plan.cells.map((cell) => [cell.x, cell.y])};
    })"""
    plan = page.evaluate(code, [sizes, width])

    right = max(x for x, _ in plan["corners"]) + plan["wide"]
    assert 0.92 * width <= right <= width
    assert max(y for _, y in plan["corners"]) + plan["size"] <= plan["height"]
    assert plan["found"] == [*range(sum(sizes))]


@pytest.mark.parametrize(
    ("kinds", "word"), [(["cpu"], "CPU slot"), (["cpu", "a100"], "GPU"), ([], "GPU")]
)
def test_a_machine_without_gpus_has_cpu_slots(call: Call, kinds: list[str], word: str) -> None:
    assert call("format", "deviceWord", kinds) == word


def test_jobs_are_found_by_state_tenant_kind_and_words(call: Call) -> None:
    job: dict[str, Any] = {"name": "Bert", "id": "bert-1", "user": "ann", "tenant": "nlp"}
    job |= {
        "app": "",
        "state": "running",
        "kinds": [],
        "on": [{"node": "n", "kind": "a100"}],
        "why": -1,
    }

    def is_wanted(**query: str) -> bool:
        return bool(call("job_list", "wanted", job, query))

    assert is_wanted()
    assert is_wanted(state="active", tenant="nlp", kind="a100", q="BERT ann")
    assert not is_wanted(state="waiting")
    assert not is_wanted(kind="h200")
    assert not is_wanted(q="bert bob")
    assert call("job_list", "whyOrWhere", job) == "on n"


def _row(name: str, **fields: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"id": f"{name}-00000000", "name": name, "state": "pending", "on": []}
    row |= {"user": "", "app": "", "tenant": "nlp", "priority": "normal", "share": 1}
    return row | {"submitted": 1, "gpu_seconds": 0, "arguments": {}} | fields


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("plain", [["plain", ""]]),
        (
            "\x1b[31mred\x1b[0m, \x1b[1;92mgood\x1b[m",
            [["red", "t-red"], [", ", ""], ["good", "t-green bold"]],
        ),
        ("\x1b[38;5;31mmany\x1b[4munder", [["many", ""], ["under", ""]]),
        ("\x1b[31mx" * 9_000, [["x" * 9_000, ""]]),
    ],
)
def test_colours_of_a_log_are_classes_and_few(call: Call, text: str, pieces: object) -> None:
    assert call("views/job_logs", "piecesOf", text) == pieces


ARABIC = "\u0645\u0644\u0643"


def test_equal_names_are_told_apart_by_argument_user_and_id(call: Call, page: Page) -> None:
    jobs = [
        _row("a", id="a-00000001", user="ann", arguments={"epochs": "3", "lr": "0.1"}),
        _row("a", id="a-00000002", user="ann", arguments={"epochs": "3", "lr": "0.2", "amp": ""}),
        _row("b", id="b-00000003", user="ann", arguments={"amp": ""}),
        _row("b", id="b-00000004", user=ARABIC),
        _row("single"),
    ]
    code = "([jobs]) => import('/web/js/job_list.js').then((m) => [...m.tellApart(jobs)])"

    assert dict(page.evaluate(code, [jobs])) == {
        "a-00000001": "lr=0.1 · 00000001",
        "a-00000002": "lr=0.2 · 00000002",
        "b-00000003": "amp · ann · 00000003",
        "b-00000004": f"\u2068{ARABIC}\u2069 · 00000004",  # what follows stays behind it
    }


def test_jobs_of_a_group_are_one_row_with_their_states(call: Call) -> None:
    on = [{"node": "n", "gpus": [0, 1]}]
    jobs = [
        _row("x.1", app="x", user="ann"),
        _row("x.2", app="x", user="bob", state="running", on=on, submitted=0),
        _row("lonely", app="y", user="ann"),
        _row("plain", user="ann"),
    ]

    rows = call("job_list", "fold", jobs, "sweep")
    assert [row["name"] for row in rows] == ["x", "lonely", "plain"]
    assert (rows[0]["state"], rows[0]["user"], rows[0]["tenant"]) == ("running", "", "nlp")
    assert (rows[0]["submitted"], rows[0]["on"], len(rows[0]["members"])) == (0, on, 2)
    assert call("job_list", "whyOrWhere", rows[0]) == "1 running, 1 pending"
    assert [row["name"] for row in call("job_list", "fold", jobs, "user")] == ["ann", "x.2"]
    assert call("job_list", "fold", jobs, "none") == jobs
    assert call("job_list", "fold", jobs, "constructor") == jobs


def test_a_start_is_told_or_it_is_told_why_not(page: Page) -> None:
    code = """([job, other, entries, unknown]) => import('/web/js/job_list.js').then((m) => {
      const line = {entries: entries && new Map(entries), unknown};
      const group = {...job, members: [other, job]};
      return [job, other, group].map((each) => m.startText(each, line).text);
    })"""
    job, running = _row("a"), _row("b", state="running")
    entry = {"p10": 60, "p50": 90, "p90": 120, "place": 1}

    def told(entries: Any, unknown: str = "") -> Any:
        return page.evaluate(code, [job, running, entries, unknown])

    assert told([[job["id"], entry]]) == ["1 min 30 s", "", "1 min 30 s"]
    assert told([[job["id"], {**entry, "p50": None}]]) == ["not in sight", "", "not in sight"]
    assert told([], "nothing says how long") == ["unknown", "", "unknown"]
    assert told(None) == told([]) == ["…", "", "…"]


@pytest.mark.parametrize(("seconds", "text"), [(1e-6, "at once"), (90, "in 1 min 30 s")])
def test_a_start_that_is_at_hand_is_not_told_in_parts_of_a_second(
    call: Call, seconds: float, text: str
) -> None:
    assert call("format", "startsIn", seconds) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (60, 3600, "1 min to 1 h"),
        (27_061, 27_062, "7 h 31 min"),
        (60, None, "1 min to no end in sight"),
    ],
)
def test_a_range_of_starts_that_reads_the_same_at_both_ends_is_one(
    call: Call, low: float, high: float | None, text: str
) -> None:
    assert call("format", "range", low, high) == text


def test_a_day_is_left_out_only_where_it_is_the_clusters_own(page: Page) -> None:
    at = 20_000 * DAY
    code = """([at]) => import('/web/js/format.js').then((m) => {
      m.setNow(() => at + 60);
      const told = [m.clock(at), m.clock(Date.now() / 1000).length > 8];
      m.setNow(() => Date.now() / 1000);
      return told;
    })"""
    assert page.evaluate(code, [at]) == ["00:00:00", True]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (
            "waits for 2 GPUs; none is free: a (16), b (8) hold them",
            "waits for 2 GPUs; none is free",
        ),
        (
            "waits for 8 GPUs; only 2 of one kind are free; 1 job (6) holds the others",
            "waits for 8 GPUs; only 2 of one kind are free",
        ),
        (
            "waits for 2 GPUs; none is free: a (16) holds them; its tenant's own GPU is lent",
            "waits for 2 GPUs; none is free; its tenant's own GPU is lent",
        ),
        (
            "over quota: with its 4 GPUs tenant 'vision' would hold more than 24 GPUs",
            "over quota: tenant 'vision' would hold more than 24 GPUs",
        ),
    ],
)
def test_jobs_that_wait_for_the_same_count_together_whoever_holds_it(
    call: Call, reason: str, shown: str
) -> None:
    assert call("views/cluster", "withoutHolders", reason) == shown


def test_a_jobs_story_is_told_in_sentences(call: Call) -> None:
    gpu = {"slices": [{"node": "n1", "gpus": [0]}], "sharing": {"share": 0.5}}
    events = [
        {"seq": 1, "at": 0, "event": "Submitted", "job": {"user": "ann", "tenant": "vision"}},
        {"seq": 2, "at": 1, "event": "Foretold", "low_s": 1, "high_s": 60},
        {"seq": 3, "at": 2, "event": "Foretold", "low_s": 1, "high_s": 30},
        {"seq": 4, "at": 3, "event": "Decided", "number": 7, "changes": {"j": gpu}},
        {"seq": 5, "at": 4, "event": "Decided", "number": 8, "changes": {"j": gpu}},
        {"seq": 6, "at": 65, "event": "Started", "attempt": 1},
        {"seq": 7, "at": 70, "event": "Decided", "number": 9, "changes": {"j": None}},
        {"seq": 8, "at": 125, "event": "Stopped", "attempt": 1},
    ]

    story = [text for _, _, text in reversed(call("views/job_history", "storyOf", events, "j"))]

    assert story == [
        "ann submitted it for tenant vision",
        "It was predicted to start in 1 s to 30 s (the last of 2 times)",
        "Decision 7 gave it GPU 0 of n1, 50 % of it",  # 8 left it as it was
        "Attempt 1 began to run after waiting 1 min 5 s",
        "Decision 9 took its GPUs back",
        "Attempt 1 left its GPUs after running for 1 min",
    ]


@pytest.mark.parametrize(
    ("started", "text"),
    [
        (1, "Too little is simulated to compare: 1 of 3 waiting jobs start in it."),
        (2, "With fifo, jobs start later by 50 %, on average."),
    ],
)
def test_a_few_jobs_are_no_average(call: Call, started: int, text: str) -> None:
    rows = [{"values": [2, 3], "less": "start sooner", "more": "start later"}]
    soon, never = (
        {"start": {"p50": 2}, "start_then": {"p50": 3}},
        {"start": None, "start_then": None},
    )

    outlook = [*[soon] * started, *[never] * (3 - started)]

    assert call("views/what_if_result", "inWords", rows, "fifo", outlook) == text


def test_what_was_decided_again_and_again_is_told_once(call: Call) -> None:
    waits = {"event": "Decided", "changes": {}, "reasons": {"j": "over quota"}}
    events = [{"seq": n, "at": n, "number": n, **waits} for n in range(1, 4)]
    events.append({**events[-1], "seq": 4, "number": 4, "reasons": {"j": "no GPU is free"}})
    events.append({"seq": 5, "at": 5, "event": "Slept", "attempt": 1})

    story = [text for _, _, text in reversed(call("views/job_history", "storyOf", events, "j"))]

    assert story == [
        "Decision 3 left it waiting: over quota (the last of 3 times)",
        "Decision 4 left it waiting: no GPU is free",
        "It went to sleep: its GPUs are free, and it goes on where it is",
    ]


def test_speed_follows_from_the_steps_of_what_a_program_measures(call: Call) -> None:
    rare = {"count": 1, "steps": [100], "at": [9]}
    often = {"count": 4, "steps": [1, 3, 3, 9], "at": [10, 11, 12, 14]}

    assert call("views/job_use", "ratesOf", [rare, often]) == [[11, 14], [2, 2]]
    assert call("views/job_use", "ratesOf", []) == [[], []]


def test_files_hold_what_is_shown_and_nothing_that_a_spreadsheet_runs(call: Call) -> None:
    rows = [["name", "loss"], ['a "b", c', -0.5], ["=cmd()", None]]

    assert call("save", "csvOf", rows) == (
        "name,loss\r\n" + '"a ""b"", c",-0.5\r\n' + "'=cmd(),\r\n"
    )
    assert call("save", "ticksOf", 0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert call("save", "ticksOf", 0.5, 200, True) == [1, 10, 100]
    assert call("save", "ticksOf", 2, 3, True) == [2, 3]
