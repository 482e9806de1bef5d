"""A log with the spellings of earlier versions gives the state that it gave then."""

from __future__ import annotations

import json
from pathlib import Path

from weft.core.codec.event_lines import event_line, read_event
from weft.core.codec.plain_values import encode
from weft.core.model.cluster import parse_cluster
from weft.core.state.saved_state import save_state
from weft.core.state.state import State
from weft.core.state.table import COLUMNS

LOG = Path(__file__).with_name("old_log.jsonl").read_text().splitlines()
CELLS = ("attempt", "stage", "ran_base", "ran_since", "service_base", "started")
STATE = json.loads(Path(__file__).with_name("old_log_state.json").read_text())


def fold(lines: list[str]) -> State:
    state = State(parse_cluster("2x4:v100"))
    for line in lines:
        state.fold(*read_event(line))
    return state


def facts(state: State) -> dict[str, object]:
    table = state.table
    return {
        "ended": {str(end.job.id): [end.how, end.ran, end.service] for end in state.ended},
        "active": {
            str(job.id): [encode(on), *(float(table.get(row, COLUMNS[name])) for name in CELLS)]
            for row, (job, on) in enumerate(zip(table.jobs, table.allocations, strict=True))
        },
        "reports": {str(job): last.report.values() for job, last in state.reports.items()},
        "decisions": state.decisions,
        "free": state.free.room(),
    }


def test_an_old_log_gives_the_state_that_it_gave() -> None:
    assert any('"values":' in line and '"local":' in line for line in LOG)
    assert any('"asleep":' in line for line in LOG)

    assert json.loads(json.dumps(facts(fold(LOG)))) == STATE


def test_written_anew_it_gives_the_same() -> None:
    anew = [event_line(*read_event(line)) for line in LOG]

    assert not any('"values":' in line or '"asleep":' in line for line in anew)
    assert encode(save_state(fold(anew)).numbers) == encode(save_state(fold(LOG)).numbers)
    assert facts(fold(anew)) == facts(fold(LOG))
