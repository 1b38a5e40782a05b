"""A whole sidecar in four stages. Each stage needs only those before it."""

from __future__ import annotations

from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.leading import leading
from bundlekeel.wiring.outside import Outside
from bundlekeel.wiring.reading import reading
from bundlekeel.wiring.requests import requests
from bundlekeel.wiring.serving import Serving, serving


def sidecar(loaded: LoadedSettings, out: Outside) -> Serving:
    """Create a sidecar that reaches its cluster through `out`. Raises ConfigError if a file or a library is missing."""
    return serving(requests(leading(reading(loaded, out))))
