"""Creates the traces of a sidecar if the settings enable them. Only then OpenTelemetry is loaded."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from bundlekeel import __version__
from bundlekeel.model.errors import ConfigError
from bundlekeel.ports import Clock, Telemetry
from bundlekeel.records.traces import Traces
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.tls import ClientTls

FIELD: Final = "traces.otlp_endpoint"


def traces_of(loaded: LoadedSettings, telemetry: Telemetry, clock: Clock, member: str) -> Traces | None:
    """Return the traces; None: the settings name no collector.

    Raises ConfigError if OpenTelemetry is missing, or if a file with certificates cannot be used.
    """
    section = loaded.settings.traces
    if section.otlp_endpoint is None:
        return None
    adapter = _traces_adapter()
    trusted = loaded.located(section.tls_trust_certs_file)
    if trusted is not None:
        # Check the file now, because the library would report an error only with the first trace.
        ClientTls(trust_certs=trusted).context(field="traces.tls_trust_certs_file")
    exporter = adapter.otlp_exporter(section.otlp_endpoint, seconds=section.timeout, trust_certs=trusted)
    resource = {
        "service.name": "bundlekeel",
        "service.version": __version__,
        "service.namespace": loaded.settings.cluster,
        "service.instance.id": member,
    }
    return Traces(adapter.OtlpTraces(exporter, telemetry, resource), clock)


def _traces_adapter() -> Any:
    try:
        return import_module("bundlekeel.records.otlp")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            "traces need OpenTelemetry: pip install '.[otel]' in the sources",
            field=FIELD,
            allowed="null, without OpenTelemetry",
        ) from None
