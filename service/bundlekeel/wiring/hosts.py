"""By which addresses this sidecar is known."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from bundlekeel.settings.model import Settings

WILDCARDS = ("0.0.0.0", "::")


def advertised(settings: Settings, bound_url: str) -> str:
    """Where other sidecars reach us: as set, else as bound; bound to every address, by our host name."""
    if settings.api.advertised_url is None and settings.api.host in WILDCARDS:
        bound = urlsplit(bound_url)
        return f"{bound.scheme}://{socket.gethostname()}:{bound.port}"
    return settings.api.advertised_url or bound_url


def served_hosts(settings: Settings) -> tuple[str, ...]:
    """Host headers the API takes: those named, and the one by which the other sidecars reach us."""
    own = settings.api.advertised_url
    by_name = [socket.gethostname()] if own is None and settings.api.host in WILDCARDS else []
    return (*settings.api.allowed_hosts, *([urlsplit(own).netloc] if own else by_name))
