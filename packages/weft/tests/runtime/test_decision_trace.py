"""Decisions as spans of OpenTelemetry."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from weft.runtime.deciding.decision import find_tracer, trace_decision


def test_a_decision_is_a_span_with_what_was_decided() -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))

    trace_decision({"policy": "fifo", "started": 2}, 0.25, provider.get_tracer("test"))

    (span,) = kept.get_finished_spans()
    assert span.name == "weft.decision"
    assert span.attributes == {"weft.policy": "fifo", "weft.started": 2}
    assert (span.end_time or 0) - (span.start_time or 0) == 250_000_000


def test_nothing_is_traced_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    find_tracer.cache_clear()

    assert find_tracer() is None
