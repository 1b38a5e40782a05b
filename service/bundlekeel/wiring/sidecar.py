"""Creates a whole sidecar in four stages: reading, leading, requests, serving. Each needs only the stages before."""

from __future__ import annotations

from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.leading import leading
from bundlekeel.wiring.outside import Outside
from bundlekeel.wiring.reading import reading
from bundlekeel.wiring.requests import requests
from bundlekeel.wiring.serving import Serving, serving


def sidecar(loaded: LoadedSettings, out: Outside) -> Serving:
    """Create a sidecar that uses the adapters `out`. Raises ConfigError if a file or a library is missing."""
    return serving(requests(leading(reading(loaded, out))))
