"""How much one tenant may ask of the service, so that it does not stop the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from weft.core.errors import InvalidConfig, did_you_mean
from weft.frozen import frozen


@frozen
class Limits:
    """Limits of each tenant; 0 is none. Admins have none: they could change them anyway.

    `rate` is requests per second, and `burst` how many may come at once; long answers count as
    several. `streams` are open event
    streams and followed logs, `jobs` those that have not ended, `gpus` what one job may ask for.
    `header_kib` is the longest header of a request and `body_mib` its longest body; `connections`
    are open ones of everyone together, and `header_s` and `body_s` how long a request may take to
    arrive.
    """

    rate: float = 50.0
    burst: float = 100.0
    streams: float = 50.0
    jobs: float = 10_000.0
    gpus: float = 0.0
    header_kib: float = 16.0
    body_mib: float = 2.0
    connections: float = 4_096.0
    header_s: float = 20.0
    body_s: float = 30.0


def read_limits(pairs: Sequence[str]) -> Limits:
    """Limits from `NAME=NUMBER`; InvalidConfig names what cannot be read."""
    known = [field.name for field in fields(Limits)]
    limits: dict[str, float] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            raise InvalidConfig(
                f"--limit {pair!r} is not NAME=NUMBER{did_you_mean(name, known)}",
                hint=f"limits are {', '.join(known)}",
            )
        try:
            limits[name] = float(text)
        except ValueError as error:
            raise InvalidConfig(f"--limit {pair!r}: {text!r} is not a number") from error
        if not 0.0 <= limits[name] < 1e12:
            raise InvalidConfig(f"--limit {pair!r} is out of range", hint="0 is no limit")
    return Limits(**limits)
