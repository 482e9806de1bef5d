"""A field of a job file is declared in one class: everything between people and agents takes it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from weft.core.model.job import Allocation, NodeId, Slice
from weft.engines.attempts.request import common_spec
from weft.run_terms import RunTerms
from weft.service.requests.job_file import JobFile, job_of
from weft.service.routes.jobs.job_files import file_of
from weft.wire.attempt import SPEC, AttemptSpec, write_whole

ON = Allocation((Slice(NodeId("n0"), (0,)),))
SAID = {each.name: each for each in fields(RunTerms) if each.metadata}
NESTED = ("run", "turns")


def other_value(default: Any) -> Any:
    return not default if isinstance(default, bool) else default + 1


def spec_of(**fields: Any) -> AttemptSpec:
    body = JobFile.model_validate({"command": ["true"], "time_limit_s": 60.0, **fields})
    return common_spec(job_of(body, tenant="t", user="u"), ON, 1, Path("/state"))


@pytest.mark.parametrize("name", SAID)
def test_what_a_job_file_says_reaches_the_agent(name: str, tmp_path: Path) -> None:
    value = other_value(SAID[name].default)

    spec_of(**{name: value}).write(tmp_path)

    assert AttemptSpec.read(tmp_path / SPEC).run.terms()[name] == value


@pytest.mark.parametrize("name", SAID)
def test_the_file_of_a_job_says_what_its_own_file_said(name: str) -> None:
    file = {"command": ["true"], "time_limit_s": 60.0, name: other_value(SAID[name].default)}
    job = job_of(JobFile.model_validate(file), tenant="t", user="u")

    assert file_of(job)[name] == file[name]
    assert name not in file_of(job_of(JobFile(command=["true"]), tenant="t", user="u"))


def test_the_request_of_the_last_version_is_read_as_it_was_meant(tmp_path: Path) -> None:
    spec = spec_of(pty=True, watch=False, warn_s=5.0)
    flat = {name: value for name, value in spec.as_json().items() if name not in NESTED}

    write_whole(tmp_path / SPEC, flat)

    assert AttemptSpec.read(tmp_path / SPEC) == spec
