"""The file with the namespaces of tenants."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.core.errors import InvalidConfig
from weft.engines.kubernetes.namespaces import account_name, read_tenants
from weft.engines.kubernetes.pods import Mount, PodSettings

SITE = PodSettings("", "weft", "image", account="jobs", mounts=(Mount("/nfs"),))


def read(tmp_path: Path, text: str) -> dict[str, PodSettings]:
    path = tmp_path / "tenants.toml"
    path.write_text(text)
    return read_tenants(path, SITE, Path("/nfs/state"))


def test_a_section_says_what_differs_from_the_engines_options(tmp_path: Path) -> None:
    sites = read(
        tmp_path,
        """
        [vision]
        namespace = "vision"
        [nlp]
        namespace = "team-nlp"
        acts_as = "scheduler"
        account = "runner"
        pull_secret = "registry"
        mounts = "data:/nfs"
        """,
    )

    vision, nlp = sites["vision"], sites["nlp"]
    assert account_name(vision) == "system:serviceaccount:vision:weft"
    assert (vision.account, vision.mounts) == ("jobs", (Mount("/nfs"),))
    assert account_name(nlp) == "system:serviceaccount:team-nlp:scheduler"
    assert (nlp.account, nlp.pull_secret) == ("runner", "registry")
    assert nlp.mounts == (Mount("/nfs", "data"),)


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("", "names no tenant"),
        ("vision = 1", r"tenants\.vision is not a table"),
        ("[vision]", r"tenants\.vision\.namespace is ''"),
        ('[vision]\nnamespace = "No Name"', r"namespace is 'No Name'"),
        ('[vision]\nnamespace = "a"\nacount = "b"', "no setting 'acount'; did you mean 'account'"),
        ('[vision]\nnamespace = "a"\nmounts = "x"', "'x' is no mount"),
        ('[a]\nnamespace = "n"\n[b]\nnamespace = "n"', "'a' and 'b' have one namespace, 'n'"),
        ("[", "cannot read tenants from"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, trouble: str) -> None:
    with pytest.raises(InvalidConfig, match=trouble):
        read(tmp_path, text)
