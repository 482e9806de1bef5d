"""Decisions as spans of OpenTelemetry, where somebody collects them.

Only its API is used: `opentelemetry-instrument weft serve`, or any program that configures an SDK,
says where spans go. Without one of its variables in the environment nothing is imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

WISHES = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT")


def trace_decision(
    facts: Mapping[str, str | int | float], took_s: float, tracer: Any = None
) -> None:
    """One span that ended now, with what was decided as its attributes."""
    used = tracer or find_tracer()
    if used is None:
        return
    end = time.time_ns()
    span = used.start_span("weft.decision", start_time=end - int(took_s * 1e9))
    for name, value in facts.items():
        span.set_attribute(f"weft.{name}", value)
    span.end(end)


@cache
def find_tracer() -> Any:
    """That of the process; None where nobody wishes for spans, or the package is not there."""
    if not any(os.environ.get(name) for name in WISHES):
        return None
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("weft")
