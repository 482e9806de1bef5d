"""The file that says whom jobs run as."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.engines.machine.users import check_users, read_users, user_of
from weft.wire.identity import Identity


def written(folder: Path, text: str, name: str = "users.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_user_is_given_by_numbers(tmp_path: Path) -> None:
    users = read_users(written(tmp_path, '[a]\nuid = 61001\ngroups = [7]\numask = "027"\n'))

    assert users == {"a": Identity(61001, 61001, (7,), umask=0o027)}


def test_the_same_in_yaml(tmp_path: Path) -> None:
    users = read_users(written(tmp_path, "a: {uid: 61001, gid: 61500}\n", "users.yaml"))

    assert users == {"a": Identity(61001, 61500)}


def test_a_known_name_brings_its_groups_and_home(tmp_path: Path) -> None:
    user = read_users(written(tmp_path, '[a]\nuser = "nobody"\n'))["a"]

    assert (user.name, user.uid > 0, user.gid in user.groups) == ("nobody", True, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 3", "users.a is not a table"),
        ("[a]\nuidd = 3", "users.a has no setting 'uidd'; did you mean 'uid'"),
        ("[a]\ngid = 3", "users.a.uid is missing"),
        ('[a]\nuid = "x"', "users.a.uid is 'x', expected a whole number"),
        ("[a]\nuid = -1", "users.a.uid is -1"),
        ("[a]\nuid = true", "users.a.uid is True"),
        ('[a]\nuser = "no such user"', "users.a.user: there is no user 'no such user' here"),
        ('[a]\nuid = 5\ngroups = ["no such"]', "users.a.groups: there is no group 'no such'"),
        ("[a]\nuid = 5\ngroups = 7", "users.a.groups is 7, expected a list"),
        ('[a]\nuid = 5\numask = "9"', "users.a.umask is '9', expected octal digits"),
        ("[a", "cannot read users from"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        read_users(written(tmp_path, text))

    assert message in str(error.value)
    assert "users.toml" in str(error.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="others cannot become root anyway")
@pytest.mark.parametrize("text", ["uid = 0", "uid = 5\ngid = 0", "uid = 5\ngroups = [0]"])
def test_jobs_never_run_as_root(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfig, match="as root"):
        read_users(written(tmp_path, f"[a]\n{text}\n"))


def test_an_account_comes_before_the_tenant() -> None:
    users = {"a": Identity(1, 1), "b": Identity(2, 2)}
    plain = Job(JobId("j"), tenant="a", launch=Launch(("true",)))
    named = Job(JobId("j"), tenant="a", launch=Launch(("true",), account="b"))

    assert user_of(users, plain) == Identity(1, 1)
    assert user_of(users, named) == Identity(2, 2)
    assert user_of({}, plain) is None


def test_a_job_of_nobody_is_refused_rather_than_run_as_the_service() -> None:
    with pytest.raises(InvalidConfig, match="tenant 'c' has no user"):
        user_of({"a": Identity(1, 1)}, Job(JobId("j"), tenant="c", launch=Launch(("true",))))


def test_a_state_folder_that_users_cannot_reach_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    with pytest.raises(InvalidConfig, match=r"is closed to them|runs as root"):
        check_users({"a": Identity(61001, 61001)}, closed / "state")
