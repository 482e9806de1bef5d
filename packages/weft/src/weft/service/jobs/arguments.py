"""Arguments that tell a job from others of its name: values of its sweep or its command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, pairwise

from weft.core.model.launch import Launch
from weft.service.access.redaction import mask

MOST, LONGEST = 8, 24  # they travel with every row of a list
NAME = re.compile(r"-{0,2}[A-Za-z_][\w.-]{0,39}")


def arguments_of(launch: Launch | None, secrets: Sequence[str] = ()) -> dict[str, str]:
    """The first values by name, cut short; a flag has an empty one."""
    if launch is None:
        return {}
    known = dict(launch.parameters) or _options(launch.command)
    shown = ((name, value) for name, value in known.items() if not launch.is_secret(name))
    return {name: _cut(mask(value, secrets)) for name, value in islice(shown, MOST)}


def _options(command: Sequence[str]) -> dict[str, str]:
    """`--lr 0.1`, `--lr=0.1`, `lr=0.1` and `--amp`, as a program's command has them."""
    options: dict[str, str] = {}
    for word, following in pairwise((*command, "")):
        name, equals, value = word.partition("=")
        if not NAME.fullmatch(name) or not (equals or word.startswith("--")):
            continue
        if not equals and not following.startswith("--"):
            value = following
        options[name.lstrip("-")] = value
    return options


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
