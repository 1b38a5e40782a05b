"""A `BrokerModel` behind real sockets: one HTTP server a broker, every request recorded as it came over the wire.

Scripts replace the model for single requests: any status and headers, silence, or a connection reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from bundlekeel.planning.guard.rate import ClientSigns
from bundlekeel.ports import BrokerEndpoint
from tests.support.memory_admin import BrokerModel, ModelReply

# `unload` and `splitAlgorithmName` of the two splits that the port promises.
BY_POSITIONS = ("false", "specified_positions_divide")
BY_HALVES = ("false", "range_equally_divide")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request as it arrived."""

    broker: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The path, still percent-encoded."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """The query, decoded."""
        return {key: values[-1] for key, values in parse_qs(urlsplit(self.target).query).items()}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A scripted answer. `hang` says nothing, `reset` cuts the connection; both after reading the request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    hang: bool = False
    reset: bool = False


Script = Callable[[Seen], Answer]


def answer(status: int, *, reason: str = "", location: str = "", body: bytes = b"") -> Script:
    """A script of one fixed answer; `reason` becomes Pulsar's JSON error body."""
    if reason:
        body = json.dumps({"reason": reason}).encode()
    return lambda _request: Answer(status=status, headers={"Location": location} if location else {}, body=body)


class HttpBrokers:
    """Three (or `names`) brokers on loopback. `script(i, ...)` queues answers of broker i before the model's."""

    def __init__(self, count: int = 3, model: type[BrokerModel] = BrokerModel) -> None:
        self.seen: list[Seen] = []
        self.sockets = [_bound_socket() for _ in range(count)]
        self.ids = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in self.sockets]
        self.model = model(self.ids)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._scripts: list[deque[Script]] = [deque() for _ in range(count)]
        self._always: list[Script | None] = [None] * count

    def script(self, index: int, *scripts: Script) -> None:
        """Queue answers for the next requests at a broker."""
        self._scripts[index].extend(scripts)

    def always(self, index: int, script: Script) -> None:
        """Answer every request at a broker (after its queue) by this script."""
        self._always[index] = script

    def endpoints(self) -> dict[str, BrokerEndpoint]:
        """All brokers, registered."""
        return self.model.endpoints()

    @contextlib.asynccontextmanager
    async def serve(self, *, tls: Mapping[int, ssl.SSLContext] | None = None) -> AsyncIterator[HttpBrokers]:
        """Listen; brokers named in `tls` speak https."""
        for index, sock in enumerate(self.sockets):
            context = (tls or {}).get(index)
            server = await asyncio.start_server(self._handler(index), sock=sock, ssl=context)
            self._servers.append(server)
        try:
            yield self
        finally:
            await self._stop()

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    def _handler(self, index: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._connection(index, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accept

    async def _connection(self, index: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(self.ids[index], reader)) is not None:
                self.seen.append(request)
                reply = self._answer(index, request)
                if reply.hang:
                    await asyncio.Event().wait()
                if reply.reset:
                    _reset(writer)
                    return
                writer.write(_render(reply))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    def _answer(self, index: int, request: Seen) -> Answer:
        if self._scripts[index]:
            return self._scripts[index].popleft()(request)
        always = self._always[index]
        if always is not None:
            return always(request)
        return self._from_model(self.ids[index], request)

    def _from_model(self, broker: str, call: Seen) -> Answer:
        parts = [unquote(part) for part in call.path.strip("/").split("/")]
        model = self.model
        match (call.method, *parts):
            case ("GET", "admin", "v2", "brokers", "configuration", "runtime"):
                return _json(model.runtime(broker))
            case ("GET", "admin", "v2", "brokers", "configuration", "values"):
                return _json(model.dynamic)
            case ("POST", "admin", "v2", "brokers", "configuration", key, value):
                return _reply(model.set_dynamic(key, value), call)
            case ("DELETE", "admin", "v2", "brokers", "configuration", key):
                model.dynamic.pop(key, None)
                return Answer()
            case ("PUT", "admin", "v2", "namespaces", tenant, namespace, rng, "unload"):
                destination = call.query.get("destinationBroker")
                return _reply(model.unload(f"{tenant}/{namespace}/{rng}", at=broker, destination=destination), call)
            case ("PUT", "admin", "v2", "namespaces", tenant, namespace, rng, "split"):
                how = call.query.get("unload"), call.query.get("splitAlgorithmName")
                if how not in (BY_POSITIONS, BY_HALVES):
                    return Answer(status=412, body=b'{"reason": "another split than the port promises"}')
                bundle, positions = f"{tenant}/{namespace}/{rng}", None if how == BY_HALVES else json.loads(call.body)
                reply = model.split(bundle, at=broker, positions=positions)
                return _reply(replace(reply, query={**call.query, **reply.query}), call)
            case ("GET", "admin", "v2", "brokers", cluster, asked, "ownedNamespaces"):
                return _owned(model, broker, cluster, asked)
            case ("GET", "admin", "v2", "broker-stats", "topics"):
                return _json(_topic_stats(model, broker))
            case ("GET", "admin", "v2", "broker-stats", "metrics"):
                return _json(_metrics(model.signs.get(broker)))
            case ("GET", "metrics"):
                return _prometheus(model, broker)
            case ("GET", "admin", "v2", "broker-stats", "mbeans"):
                return _json(_mbeans(model, broker))
            case ("GET", "admin", "v2", "namespaces", tenant, namespace, rng, "topicHashPositions"):
                return _positions(model, broker, f"{tenant}/{namespace}/{rng}", call)
            case ("GET", "lookup", "v2", "topic", domain, tenant, namespace, topic):
                authoritative = call.query.get("authoritative") == "true"
                reply = model.lookup(f"{domain}://{tenant}/{namespace}/{topic}", at=broker, authoritative=authoritative)
                return _json({"httpUrl": f"http://{reply.to}"}) if reply.status == 200 else _reply(reply, call)
        return Answer(status=404)


def _owned(model: BrokerModel, broker: str, cluster: str, path: str) -> Answer:
    if cluster != model.static[broker]["clusterName"] or path != broker:
        return Answer(status=404)
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return _json(dict.fromkeys(model.owned_by(broker), status))


def _positions(model: BrokerModel, broker: str, bundle: str, request: Seen) -> Answer:
    owner = model.owners.get(bundle)
    if owner is None:
        return _reply(ModelReply(status=412, reason="Failed to find ownership for ServiceUnit"), request)
    if owner.broker_id != broker:
        return _reply(ModelReply(status=307, to=owner.broker_id, query={"authoritative": "false"}), request)
    positions = {load.topic: load.hash for load in model.loads_of(bundle)}
    return _json({"bundle": bundle, "topicHashPositions": positions})


def _metrics(signs: ClientSigns | None) -> list[dict[str, dict[str, object]]]:
    """Three of the groups a broker lists: a namespace's ledgers, its connections, its topic loads."""
    if signs is None:
        return [{"metrics": {"jvm_total_memory": 1}, "dimensions": {"metric": "jvm_metrics"}}]
    latency = signs.latency_ms
    stored = {} if latency is None else {f"brk_AddEntryLatencyBuckets_{latency}_{latency}": 12.5}
    opened: dict[str, object] = {"brk_connection_created_total_count": signs.connections, "brk_active_connections": 3}
    failed: dict[str, object] = {"brk_topic_load_failed_count": float(signs.failures), "brk_topic_load_rate_s": 0.1}
    return [
        {"metrics": {"brk_ml_AddEntryErrors": 0.0, **stored}, "dimensions": {"namespace": "public/default"}},
        {"metrics": opened, "dimensions": {"metric": "broker_connection"}},
        {"metrics": failed, "dimensions": {"metric": "pulsar_topic_load_times"}},
    ]


_FIGURES = (
    *("in_messages_total", "out_messages_total", "in_bytes_total", "out_bytes_total"),
    *("consumers_count", "producers_count"),
)


def _prometheus(model: BrokerModel, broker: str) -> Answer:
    """A few lines of the page that Prometheus scrapes; without anything to tell it is one a broker would not show."""
    signs, counted = model.signs.get(broker), model.counted.get(broker)
    lines = []
    if signs is not None and signs.lookups_failed is not None:
        lines = [
            "# TYPE pulsar_broker_lookup_failures counter",
            f'pulsar_broker_lookup_failures_total{{cluster="local"}} {float(signs.lookups_failed)}',
            'pulsar_broker_lookup_failures_created{cluster="local"} 1.79E9',
        ]
    if counted is not None:
        lines.append(f'process_cpu_seconds_total{{cluster="local"}} {model.cpu.get(broker, "")}')
        lines += [
            f'pulsar_{name}{{cluster="local",topic="{topic}"}} {values[column]}'
            for column, name in enumerate(_FIGURES)
            for topic, values in counted.items()
        ]
    return Answer(status=200, body="\n".join([*lines, ""]).encode()) if lines else Answer(status=401)


def _mbeans(model: BrokerModel, broker: str) -> list[dict[str, dict[str, object]]]:
    """Two of the beans a broker lists; a JVM that has not measured yet says -1."""
    load = model.cpu.get(broker, -1.0)
    return [
        {"metrics": {"LoadedClassCount": 9000}, "dimensions": {"MBean": "java.lang:type=ClassLoading"}},
        {
            "metrics": {
                "AvailableProcessors": 1,
                "CpuLoad": load,
                "Name": "Linux",
                "ProcessCpuLoad": 0.0,
                "ProcessCpuTime": int(1e9 * load),
            },
            "dimensions": {"MBean": "java.lang:type=OperatingSystem"},
        }
        if load >= 0
        else {"metrics": {"CpuLoad": load}, "dimensions": {"MBean": "java.lang:type=OperatingSystem"}},
    ]


def _topic_stats(model: BrokerModel, broker: str) -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    """Statistics of every topic the broker owns that has any: namespace, range, domain, topic."""
    stats: dict[str, dict[str, dict[str, dict[str, object]]]] = {}
    for bundle, owner in model.owners.items():
        if owner.broker_id != broker:
            continue
        namespace, _, rng = bundle.rpartition("/")
        for load in model.loads_of(bundle):
            if load.topic not in model.loads:
                continue
            domain = load.topic.partition("://")[0]
            names = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
            figures = dict(zip(names, load.traffic, strict=True)) | {"producerCount": load.sessions, "publishers": []}
            topics = stats.setdefault(namespace, {}).setdefault(rng, {}).setdefault(domain, {})
            topics[load.topic] = figures | {"subscriptions": {"s": {"consumers": []}}}
    return stats


def _reply(reply: ModelReply, request: Seen) -> Answer:
    if reply.status == 307:
        query = urlencode(dict(reply.query), quote_via=quote)
        return Answer(status=307, headers={"Location": f"http://{reply.to}{request.path}?{query}"})
    body = json.dumps({"reason": reply.reason}).encode() if reply.reason else b""
    return Answer(status=reply.status, body=body)


def _json(body: object) -> Answer:
    return Answer(headers={"Content-Type": "application/json"}, body=json.dumps(body).encode())


def _render(reply: Answer) -> bytes:
    headers = {**reply.headers, "Content-Length": str(len(reply.body))}
    if reply.status == 204:
        del headers["Content-Length"]
    lines = [f"HTTP/1.1 {reply.status} Status", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + reply.body


async def _read_request(broker: str, reader: asyncio.StreamReader) -> Seen | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    request, *lines = head.split("\r\n")
    method, target, _ = request.split(" ")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(broker=broker, method=method, target=target, headers=headers, body=body)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST: no FIN, as a killed process behind a NAT leaves it."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _bound_socket() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock
