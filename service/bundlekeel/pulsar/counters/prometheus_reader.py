"""Counters of brokers from the operator's Prometheus, which scrapes them anyway: brokers get no extra load."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx

from bundlekeel.model.counters import CounterReading
from bundlekeel.model.errors import AdminFault, AdminTimeout, AdminUnauthorized, CodecError
from bundlekeel.model.names import broker_id_of_url
from bundlekeel.model.uris import host_and_port
from bundlekeel.ports import BrokerEndpoint, Clock
from bundlekeel.pulsar.decoding import decoded
from bundlekeel.pulsar.formats.broker_metrics import PROCESS_CPU, SCRAPED_NAMES, decode_label_values, decode_scrapes
from bundlekeel.pulsar.formats.external_input import LARGE, clean, text_of
from bundlekeel.settings.tls import ClientTls
from bundlekeel.settings.token_source import TokenSource

# Seconds for which the list of Prometheus' label values is cached.
_KNOWN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions:
    """Options of the Prometheus client. Times in seconds.

    `cluster`: the brokers' clusterName; empty: any. `labels`: labels of all series of the cluster. `broker_label`: the
    label that distinguishes its brokers. Its value is a broker's `host:port` or host, the name of its pod, or an
    address of its host. `window`: maximum age of the scrapes that are read; should include at least two scrapes.
    """

    url: str
    cluster: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    broker_label: str = "instance"
    window: float = 120.0
    timeout: float = 10.0


class PrometheusCounters:
    """`ports.TopicCounters` over Prometheus' HTTP API. It can be created anywhere, but is used only in an event
    loop."""

    def __init__(
        self,
        options: PrometheusOptions,
        clock: Clock,
        *,
        tls: ClientTls | None = None,
        token: TokenSource | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._token = token
        # If operators configured a label `cluster`, it may have replaced Pulsar's own label of that name.
        self._clusters = {options.cluster, options.labels.get("cluster", "")} - {""} if options.cluster else ()
        self._known: tuple[float, list[str]] = (float("-inf"), [])
        # Brokers matched by each value, with the time of the last match (boot clock, seconds).
        self._matched: dict[str, dict[str, float]] = {}
        self._http = httpx.AsyncClient(
            timeout=options.timeout,
            trust_env=False,
            verify=(tls or ClientTls()).context(field="prometheus.tls_trust_certs_file"),
            headers={"Accept-Encoding": "identity"},
        )

    async def counters(self, broker: BrokerEndpoint) -> Sequence[CounterReading]:
        """Return the last three scrapes of a broker, oldest first. Raises AdminApiError if there is no scrape."""
        name = await self._name_of(broker)
        selector = self._selector({self._options.broker_label: name}, f'__name__=~"{"|".join(SCRAPED_NAMES)}"')
        body = await self._ask("query", {"query": f"{selector}[{self._options.window:.0f}s]"})
        try:
            readings = await decoded(decode_scrapes, body, clusters=tuple(self._clusters))
        except CodecError as error:
            text = f"counters of {broker.broker_id} in Prometheus: {error.code}: {error}"
            raise AdminFault(text, status=200, reason=error.code) from error
        if not readings:
            raise AdminFault(f"Prometheus did not scrape {name} in {self._options.window:.0f} s", status=200)
        return readings

    async def close(self) -> None:
        """Close pooled connections."""
        await self._http.aclose()

    async def _name_of(self, broker: BrokerEndpoint) -> str:
        """Return the value of `broker_label` for this broker.

        Raises AdminFault if no value or several values match this broker, or if its value also matches another
        broker."""
        at, names = self._known
        if self._clock.boot() - at > _KNOWN_SECONDS:
            names = await self._names()
            self._known = self._clock.boot(), names
        matches = await _matching(broker, names)
        if len(matches) != 1:
            examples = ", ".join(names[:5]) or "none"
            text = f"{len(matches) or 'no'} values of {self._options.broker_label} stand for {broker.broker_id}"
            raise AdminFault(f"{text}; Prometheus knows {examples}", status=200)
        now = self._clock.boot()
        brokers = self._matched.setdefault(matches[0], {})
        brokers[broker.broker_id] = now
        if several := [name for name, since in brokers.items() if now - since <= 2 * _KNOWN_SECONDS][1:]:
            text = f"{self._options.broker_label}={matches[0]} stands for {len(several) + 1} brokers"
            raise AdminFault(f"{text}, {broker.broker_id} among them", status=200)
        return matches[0]

    async def _names(self) -> list[str]:
        selector = self._selector({}, f'__name__="{PROCESS_CPU}"')
        since = self._clock.wall_ms() / 1000 - self._options.window
        body = await self._ask(
            f"label/{self._options.broker_label}/values", {"match[]": selector, "start": f"{since:.0f}"}
        )
        try:
            return await decoded(decode_label_values, body)
        except CodecError as error:
            raise AdminFault(str(error), status=200) from error

    def _selector(self, equal: Mapping[str, str], *others: str) -> str:
        """Return a Prometheus selector from the cluster's labels, the labels `equal`, and other matchers."""
        labels = {**self._options.labels, **equal}
        return "{" + ",".join([*(f"{label}={json.dumps(value)}" for label, value in labels.items()), *others]) + "}"

    async def _ask(self, path: str, fields: Mapping[str, str]) -> bytes:
        """Return the body of Prometheus' response. Raises AdminApiError, whose text never contains headers (tokens)."""
        url = f"{self._options.url.rstrip('/')}/api/v1/{path}"
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token.current()}"}
        try:
            # The timeout of httpx applies to each piece of a response, this one to the whole response.
            async with (
                asyncio.timeout(self._options.timeout),
                self._http.stream("GET", url, params=dict(fields), headers=headers) as answer,
            ):
                content = bytearray()
                async for chunk in answer.aiter_raw():
                    content += chunk
                    if len(content) > LARGE.nbytes:
                        raise AdminFault(f"Prometheus answered with more than {LARGE.nbytes} bytes", status=200)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise AdminTimeout(f"Prometheus did not answer: {type(error).__name__}") from error
        if answer.status_code in (401, 403):
            if self._token is not None:
                self._token.forget()
            raise AdminUnauthorized(f"Prometheus refused: {answer.status_code}", status=answer.status_code)
        if not answer.is_success:
            excerpt = clean(text_of(bytes(content[:200])))
            raise AdminFault(f"Prometheus answered {answer.status_code}: {excerpt}", status=answer.status_code)
        return bytes(content)


async def _matching(broker: BrokerEndpoint, names: Sequence[str]) -> list[str]:
    """Return the label values that match a broker. Rules are tried in order, until one matches any value."""
    urls = [url for url in (broker.web_url, broker.web_url_tls) if url]
    places = [host_and_port(url) for url in urls]
    hosts = {host for host, _ in places}
    rules = (set(map(broker_id_of_url, urls)), hosts, {host.split(".")[0] for host in hosts})
    for accepted in rules:
        if matches := [name for name in names if name and name in accepted]:
            return matches
    addresses = ({host for name in hosts for host in await _addresses(name)} | hosts) - {""}
    ports = {port for _, port in places}
    alike = [(name, *host_and_port(f"//{name}")) for name in names]
    here = [(name, port) for name, host, port in alike if host in addresses]
    # Brokers on one host differ by their ports. A separate metrics port differs from all of them.
    return [name for name, port in here if port in ports] or [name for name, _ in here]


async def _addresses(host: str) -> set[str]:
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: a name that cannot be encoded
        return set()
    return {str(item[4][0]) for item in addresses}
