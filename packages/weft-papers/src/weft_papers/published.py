"""Policies as their authors' code has them, where it departs from what a user would choose.

Each `authors.py` has one policy, a subclass of the one that users choose, named like any policy in
a file: `--policy .../weft_papers/sia/authors.py:AuthorsSia`, for short `authors/sia` here.
"""

from __future__ import annotations

import os
from pathlib import Path

from weft.app.policy_file import build_policy
from weft.core.plan.policy import Policy

CLASSES = {
    "antman": "MuriAntman",
    "astraea": "AuthorsAstraea",
    "gavel": "AuthorsGavel",
    "iadeep": "AuthorsIADeep",
    "lucid": "AuthorsLucid",
    "pollux": "AuthorsPollux",
    "shockwave": "AuthorsShockwave",
    "sia": "AuthorsSia",
}
SHORT = "authors/"


def find_authors_class(spec: str) -> str:
    """`authors/NAME:OPTIONS` as the file and class that it means; any other spec as it is."""
    if not spec.startswith(SHORT):
        return spec
    name, _, options = spec.removeprefix(SHORT).partition(":")
    file = os.path.relpath(Path(__file__).parent / name / "authors.py")
    return f"{file}:{CLASSES[name]}" + (f":{options}" if options else "")


def build_named(spec: str) -> Policy:
    """The policy of a spec that may be short for one of this folder."""
    return build_policy(find_authors_class(spec))
