"""Numbers as people read them."""

from __future__ import annotations

import math
from typing import NamedTuple


def duration(hours: float, half: float = 0.0) -> str:
    """`42 s`, `7.3 min`, `5.61 ± 0.2 h` or `12.4 d`; `half` is of an interval, 0 for none."""
    seconds = hours * 3600.0
    if seconds < 100:
        return f"{seconds:.3g}{_spread(half * 3600.0)} s"
    if seconds < 5400:
        return f"{seconds / 60:.3g}{_spread(half * 60.0)} min"
    if hours < 72:
        return f"{hours:.3g}{_spread(half)} h"
    return f"{hours / 24:.3g}{_spread(half / 24)} d"


def percent(fraction: float, half: float = 0.0) -> str:
    """`61 %`, with a decimal where it matters, or `61 ± 4 %`."""
    value, spread = 100.0 * fraction, _spread(100.0 * half)
    return f"{value:.1f}{spread} %" if value < 10 else f"{value:.0f}{spread} %"


def number(value: float, half: float = 0.0) -> str:
    """Three digits that count, and `± 0.2` where there is an interval."""
    return (f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}") + _spread(half)


def _spread(half: float) -> str:
    """Half an interval in two digits, nothing for 0."""
    if not half:
        return ""
    return f" ± {half:,.0f}" if half >= 10 else f" ± {half:.2g}"


# Seconds as people read them: in s, min, h or d.


class Unit(NamedTuple):
    """A unit of time: how it is written and how many seconds it has."""

    name: str
    seconds: float


SECOND, MINUTE, HOUR, DAY = Unit("s", 1.0), Unit("min", 60.0), Unit("h", 3600.0), Unit("d", 86400.0)
# A unit is used from this many seconds on; days only from two, since "30 h" reads better.
FROM = ((172800.0, DAY), (3600.0, HOUR), (60.0, MINUTE))
COARSE = (0.1, 1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000, 31536000)
FINE = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800),
    *(3600, 7200, 14400, 28800, 57600, 86400, 172800, 345600, 604800, 1209600, 2592000, 5184000),
)
DENSE_DECADES = 2.2


def unit_for(seconds: float) -> Unit:
    """The unit in which `seconds` is easiest to read."""
    return next((unit for least, unit in FROM if seconds >= least), SECOND)


def axis_unit(span_s: float) -> Unit:
    """The unit for an axis of this length: minutes, hours or days."""
    if span_s > 4 * DAY.seconds:
        return DAY
    return HOUR if span_s > 2 * HOUR.seconds else MINUTE


def fix_digits(value: float) -> str:
    """About three digits with the zeros at their end, so that a column lines up."""
    size = abs(value)
    if math.isnan(value):
        return "—"
    if size >= 99.95 or value == int(value):
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.095 else f"{value:.2g}"


def human(seconds: float) -> str:
    """`43 s`, `12.5 min`, `3.2 h`, `4.1 d`."""
    return duration(seconds / HOUR.seconds)


def log_ticks(low_s: float, high_s: float) -> tuple[list[float], list[str]]:
    """Round durations between two, for a logarithmic axis, and how they are written."""
    decades = math.log10(high_s / low_s)
    marks = [float(t) for t in (FINE if decades < DENSE_DECADES else COARSE)]
    kept = [t for t in marks if low_s <= t <= high_s]
    return kept, [_tick(t) for t in kept]


def _tick(seconds: float) -> str:
    unit = DAY if seconds >= DAY.seconds else unit_for(seconds)
    return f"{seconds / unit.seconds:g} {unit.name}"
