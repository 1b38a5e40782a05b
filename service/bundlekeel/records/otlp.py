"""Traces sent to an OpenTelemetry collector over OTLP/HTTP, by OpenTelemetry's own library (extra `otel`).

The library collects spans and sends them in its own thread. It drops spans that the collector rejects, and this module
counts these. The library's standard environment variables apply where Bundlekeel has no settings:
`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_BSP_*`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from bundlekeel.ports import Telemetry
from bundlekeel.ports.traces import Span

_NANOSECONDS = 1_000_000


class CountingExporter:
    """A `SpanExporter` that passes spans to another exporter, and counts sent and failed spans."""

    def __init__(self, exporter: Any, telemetry: Telemetry) -> None:
        self._exporter = exporter
        self._telemetry = telemetry

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans. Failures are counted here, and the library logs them."""
        result: SpanExportResult = self._exporter.export(spans)
        outcome = "sent" if result is SpanExportResult.SUCCESS else "failed"
        self._telemetry.count("trace_spans_total", len(spans), outcome=outcome)
        return result

    def shutdown(self) -> None:
        """Shut down the exporter that sends."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return whether the exporter has sent all spans within the time limit."""
        return bool(self._exporter.force_flush(timeout_millis))


class OtlpTraces:
    """`ports.traces.SpanSink` that sends with an exporter. `resource`: attributes of this sidecar, for every span."""

    def __init__(self, exporter: Any, telemetry: Telemetry, resource: Mapping[str, str]) -> None:
        self._provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
        counted: Any = CountingExporter(exporter, telemetry)
        self._provider.add_span_processor(BatchSpanProcessor(counted))
        self._tracer = self._provider.get_tracer("bundlekeel")

    def add(self, root: Span) -> None:
        """Add one tree of spans."""
        # With an empty context the tree does not become a part of another trace in this process.
        self._add(root, trace.set_span_in_context(trace.INVALID_SPAN))

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()

    def _add(self, span: Span, context: Any) -> None:
        start = int(span.start_ms * _NANOSECONDS)
        otel_span = self._tracer.start_span(
            f"bundlekeel.{span.name}", context=context, attributes=dict(span.attributes), start_time=start
        )
        if span.error:
            otel_span.set_status(trace.StatusCode.ERROR, span.error)
        within = trace.set_span_in_context(otel_span)
        for child in span.children:
            self._add(child, within)
        otel_span.end(start + int(1000 * span.seconds * _NANOSECONDS))


def otlp_exporter(endpoint: str, *, seconds: float, trust_certs: Path | None) -> Any:
    """Return an exporter to this address. `seconds`: time limit for all attempts to send one batch."""
    certificates = None if trust_certs is None else str(trust_certs)
    return OTLPSpanExporter(endpoint=endpoint, timeout=seconds, certificate_file=certificates)
