"""Decisions as spans of OpenTelemetry."""

from __future__ import annotations

import pytest

from weft.runtime.deciding.decision import find_tracer, trace_decision


def test_a_decision_is_a_span_with_what_was_decided() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    kept, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))

    trace_decision({"policy": "fifo", "started": 2}, 0.25, provider.get_tracer("test"))

    (span,) = kept.get_finished_spans()
    assert span.name == "weft.decision"
    assert dict(span.attributes) == {"weft.policy": "fifo", "weft.started": 2}
    assert span.end_time - span.start_time == 250_000_000


def test_nothing_is_traced_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    find_tracer.cache_clear()

    assert find_tracer() is None
