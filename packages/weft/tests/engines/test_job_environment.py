"""What of the service's environment jobs get."""

from __future__ import annotations

import pytest

from weft.core.errors import InvalidConfig
from weft.engines.machine.job_environment import check_names, select_allowed

SERVICE = {
    "PATH": "/bin",
    "LC_ALL": "C.UTF-8",
    "CUDA_HOME": "/usr/local/cuda",
    "PYTHONPATH": "/lib",
    "AWS_SECRET_ACCESS_KEY": "s",
    "DATABASE_URL": "postgres://me:secret@db",
    "NVIDIA_API_KEY": "s",
    "CONDA_TOKEN": "s",
    "WEFT_TOKEN": "s",
    "https_proxy": "http://me:secret@proxy",
    "OPAL_PREFIX": "/opt/mpi",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "HF_TOKEN": "s",
}


def test_only_what_is_on_the_list_is_handed_on() -> None:
    allowed = select_allowed(SERVICE)

    plain = {"PATH", "LC_ALL", "CUDA_HOME", "PYTHONPATH"}
    assert set(allowed) == plain | {"OPAL_PREFIX", "OMPI_ALLOW_RUN_AS_ROOT"}


def test_what_is_named_is_handed_on_too() -> None:
    allowed = select_allowed(SERVICE, ("DATABASE_URL", "NOT_THERE"))

    assert allowed["DATABASE_URL"] == "postgres://me:secret@db"
    assert "AWS_SECRET_ACCESS_KEY" not in allowed
    assert "NOT_THERE" not in allowed


@pytest.mark.parametrize("name", ["", "A=B", "WEFT_TOKEN"])
def test_what_is_no_name_or_ours_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig):
        check_names((name,))
