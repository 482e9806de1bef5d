"""What might be different, as it is typed: for `weft what-if` and `weft plan`."""

from __future__ import annotations

from typing import Any

from weft.core.errors import InvalidConfig


def read_changes(
    policy: str | None,
    limits: list[str] | None,
    weights: list[str] | None,
    nodes: str,
    jobs: list[str] | None = None,
) -> dict[str, Any]:
    """As the service takes it; what is not different is left out."""
    from weft.app.policy_file import read_policy_to_send
    from weft.core.codec.plain_values import encode

    sizes = [{"id": job, "gpus": _whole(job, count)} for job, count in _pairs("--job", jobs)]
    changes: dict[str, Any] = {
        "policy": None if policy is None else encode(read_policy_to_send(policy)),
        "limits": {who: _number(who, gpus) for who, gpus in _pairs("--limit", limits)},
        "weights": {who: _number(who, weight) for who, weight in _pairs("--weight", weights)},
        "nodes": nodes,
        "jobs": sizes,
    }
    return {name: change for name, change in changes.items() if change}


def _pairs(option: str, texts: list[str] | None) -> list[tuple[str, str]]:
    pairs = []
    for text in texts or ():
        name, equals, number = text.rpartition("=")
        if not equals or not name:
            raise InvalidConfig(f"{option} {text!r} is not NAME=NUMBER")
        pairs.append((name, number))
    return pairs


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidConfig(f"{name}={text} is not NAME=NUMBER") from None


def _whole(job: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise InvalidConfig(f"--job {job}={text} is not JOB=GPUS", hint="such as train-1=2")
    return int(text)
