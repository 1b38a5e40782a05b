"""Hosts that may be called, directly or after a redirect: the web endpoints of the current brokers.

A redirect is followed only to such a host, to the same path, and never from https to http. The token is sent to no
other host, and without encryption only to a broker that offers no https.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urljoin, urlsplit

from bundlekeel.model.errors import AdminUnreachable, UnknownHostRedirect
from bundlekeel.model.names import broker_id_of_url
from bundlekeel.ports import BrokerEndpoint

Origin = tuple[str, str, int]
_DEFAULT_PORTS = {"http": 80, "https": 443}


class InsecureRedirect(UnknownHostRedirect):
    """Raised for a redirect from https to http: it is not followed, so that the token is not sent unencrypted."""


class KnownHosts:
    """The brokers' web addresses. A new object is created for each registry change: brokers that left are not called.

    `use_tls`: https only. `with_token`: a token is sent, so prefer https where a broker offers http and https.
    """

    def __init__(
        self, endpoints: Mapping[str, BrokerEndpoint], *, use_tls: bool = False, with_token: bool = False
    ) -> None:
        self._use_tls = use_tls
        self._with_token = with_token
        self._endpoints = dict(endpoints)
        self._by_origin: dict[Origin, str] = {}
        self._by_service: dict[str, str] = {}
        for broker_id, endpoint in endpoints.items():
            for url in (endpoint.web_url, endpoint.web_url_tls):
                origin = origin_of(url)
                if origin is not None:
                    self._by_origin[origin] = broker_id
            if endpoint.service_url:
                self._by_service[endpoint.service_url.rstrip("/")] = broker_id

    def brokers(self) -> list[str]:
        """Return all broker ids, sorted."""
        return sorted(self._endpoints)

    def base_url(self, broker_id: str) -> str:
        """Return the base URL of a broker. Raises AdminUnreachable if it has no usable endpoint."""
        endpoint = self._endpoints.get(broker_id)
        if endpoint is None:
            raise AdminUnreachable(f"{broker_id} is not registered", reason="not registered")
        first, second = endpoint.web_url, endpoint.web_url_tls
        if self._use_tls:
            # With TLS configured there is no fallback to plain text.
            first, second = endpoint.web_url_tls, ""
        elif self._with_token:
            first, second = second, first
        url = (first or second).rstrip("/")
        if origin_of(url) is None:
            raise AdminUnreachable(f"{broker_id} has no usable web endpoint", reason="no endpoint")
        return url

    def load_manager(self, broker_id: str) -> str:
        """Return the class of the broker's registered load manager; "": unknown."""
        endpoint = self._endpoints.get(broker_id)
        return "" if endpoint is None else endpoint.load_manager

    def broker_at(self, url: str) -> str | None:
        """Return the id of the broker whose web endpoint this URL belongs to, or None."""
        origin = origin_of(url)
        return None if origin is None else self._by_origin.get(origin)

    def answering_broker(self, body: Mapping[str, object]) -> str | None:
        """Return the id of the broker that a lookup response names; None: it names no broker.

        The broker is found by its registered web or service URL. Otherwise its id is derived from the web URL.
        """
        urls = [str(body.get(key) or "") for key in ("httpUrl", "httpUrlTls")]
        for url in urls:
            if (broker_id := self.broker_at(url)) is not None:
                return broker_id
        for key in ("brokerUrl", "nativeUrl", "brokerUrlTls", "brokerUrlSsl"):
            if (broker_id := self._by_service.get(str(body.get(key) or "").rstrip("/"))) is not None:
                return broker_id
        # A broker that has just joined is not known yet, but its id is the host and port of its web service.
        return next((broker_id_of_url(url) for url in urls if url), None)

    def next_hop(self, current: str, location: str) -> str:
        """Return the URL of a redirect. Raises UnknownHostRedirect if the redirect must not be followed."""
        target = joined(current, location).split("#", 1)[0]
        broker_id = self.broker_at(target)
        if broker_id is None:
            host = urlsplit(target).netloc.rpartition("@")[2]
            raise UnknownHostRedirect(f"redirect to {host or 'nowhere'}, which is not a registered broker", url=current)
        before, after = urlsplit(current), urlsplit(target)
        if before.scheme == "https" and after.scheme == "http":
            raise InsecureRedirect(f"redirect from https to http at {after.netloc}", url=current)
        if unquote(before.path) != unquote(after.path):
            raise UnknownHostRedirect(f"redirect to another path at {after.netloc}", url=current)
        if after.scheme == "http" and self._with_token:
            return self.base_url(broker_id) + target[len(f"http://{after.netloc}") :]
        return target


def joined(current: str, location: str) -> str:
    """Return the target of a Location header; "": it is not a URL."""
    try:
        return urljoin(current, location)
    except ValueError:
        return ""


def origin_of(url: str) -> Origin | None:
    """Return scheme, host and port of a web URL; None for others, and for a URL with credentials."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname.lower(), port or _DEFAULT_PORTS[parts.scheme]
