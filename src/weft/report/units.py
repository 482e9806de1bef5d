"""Numbers as people read them."""

from __future__ import annotations


def duration(hours: float) -> str:
    """`42 s`, `7.3 min`, `5.61 h` or `12.4 d`."""
    seconds = hours * 3600.0
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 5400:
        return f"{seconds / 60:.3g} min"
    if hours < 72:
        return f"{hours:.3g} h"
    return f"{hours / 24:.3g} d"


def percent(fraction: float) -> str:
    """`61 %`, with a decimal where it matters."""
    value = 100.0 * fraction
    return f"{value:.1f} %" if value < 10 else f"{value:.0f} %"


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
