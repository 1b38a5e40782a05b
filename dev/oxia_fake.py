"""An Oxia server in memory, to which tests migrate the metadata of a Pulsar cluster (PIP-454). It is never shipped.

It runs with the packages of `requirements/oxia.lock` and prints its port. Each namespace has one shard. There
is no persistence, no authentication and no TLS. Sequence updates and the search for a neighbouring key are missing.
Source: `client.proto` in the wheel of Oxia's client for Python.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

# The folder itself, because the package needs further ones. Messages and services are generated here: without types.
sys.path.append(str(Path(grpc.__file__).parents[1] / "oxia" / "internal" / "proto"))
pb, services = grpc.protos_and_services("client.proto")
Servicer: Any = services.OxiaClientServicer
REAP_SECONDS = 0.25


@dataclass(slots=True, kw_only=True)
class Record:
    """A value with its version. `session`: id of the session with which it ends. `indexes`: secondary keys by index."""

    value: bytes
    version: Any
    indexes: list[tuple[str, str]]


@dataclass(slots=True, kw_only=True)
class Session:
    """A session and the end of its time limit, if no heartbeat comes (seconds on the monotonic clock)."""

    seconds: float
    deadline: float = 0.0

    def beat(self) -> None:
        """Start the time limit again."""
        self.deadline = time.monotonic() + self.seconds


@dataclass(slots=True, kw_only=True)
class Shard:
    """All records of a namespace. `offset`: number of the last change."""

    number: int
    records: dict[str, Record] = field(default_factory=dict)
    sessions: dict[int, Session] = field(default_factory=dict)
    offset: int = -1
    batches: list[Any] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def keys(self, start: str, end: str) -> list[str]:
        """Return the keys from `start` to before `end` in Oxia's order; "": without limit."""
        keys = sorted(self.records, key=order)
        return [
            key for key in keys if (not start or order(key) >= order(start)) and (not end or order(key) < order(end))
        ]

    def selected(self, request: Any) -> Iterator[tuple[str | None, str]]:
        """Yield secondary key (None without an index) and key of the records that a list or scan selects."""
        start, end = request.start_inclusive, request.end_exclusive
        if not request.HasField("secondary_index_name"):
            yield from ((None, key) for key in self.keys(start, end))
            return
        for second, key in sorted(
            (second, key)
            for key, record in self.records.items()
            for name, second in record.indexes
            if name == request.secondary_index_name
        ):
            if second >= start and (not end or second < end):
                yield second, key

    def write(self, request: Any) -> Any:
        """Apply a batch of changes, and notify the listeners. Each change is checked alone."""
        self.offset += 1
        notifications: dict[str, Any] = {}
        answer = pb.WriteResponse(
            puts=[self._put(item, notifications) for item in request.puts],
            deletes=[pb.DeleteResponse(status=self._delete(item, notifications)) for item in request.deletes],
        )
        for item in request.delete_ranges:
            for key in self.keys(item.start_inclusive, item.end_exclusive):
                del self.records[key]
            notifications[item.start_inclusive] = pb.Notification(
                type=pb.KEY_RANGE_DELETED, key_range_last=item.end_exclusive
            )
            answer.delete_ranges.add(status=pb.OK)
        self._notify(notifications)
        return answer

    def _put(self, request: Any, notifications: dict[str, Any]) -> Any:
        key = self._next_in_sequence(request) if request.sequence_key_delta else request.key
        before = self.records.get(key)
        if not _expected(request, before):
            return pb.PutResponse(status=pb.UNEXPECTED_VERSION_ID)
        if request.HasField("session_id") and request.session_id not in self.sessions:
            return pb.PutResponse(status=pb.SESSION_DOES_NOT_EXIST)
        now_ms = time.time_ns() // 1_000_000
        version = pb.Version(
            version_id=self.offset,
            modifications_count=before.version.modifications_count + 1 if before else 0,
            created_timestamp=before.version.created_timestamp if before else now_ms,
            modified_timestamp=now_ms,
            session_id=request.session_id if request.HasField("session_id") else None,
            client_identity=request.client_identity if request.HasField("client_identity") else None,
        )
        indexes = [(item.index_name, item.secondary_key) for item in request.secondary_indexes]
        self.records[key] = Record(value=request.value, version=version, indexes=indexes)
        kind = pb.KEY_MODIFIED if before else pb.KEY_CREATED
        notifications[key] = pb.Notification(type=kind, version_id=self.offset)
        return pb.PutResponse(status=pb.OK, version=version, key=key if request.sequence_key_delta else None)

    def _next_in_sequence(self, request: Any) -> str:
        last = max((key for key in self.records if key.startswith(f"{request.key}-")), default="")
        numbers = [int(part) for part in last[len(request.key) + 1 :].split("-")] if last else []
        numbers += [0] * (len(request.sequence_key_delta) - len(numbers))
        steps = zip(numbers, request.sequence_key_delta, strict=True)
        key: str = request.key + "".join(f"-{number + step:020d}" for number, step in steps)
        return key

    def _delete(self, request: Any, notifications: dict[str, Any]) -> int:
        record = self.records.get(request.key)
        if record is None:
            return int(pb.KEY_NOT_FOUND)
        if not _expected(request, record):
            return int(pb.UNEXPECTED_VERSION_ID)
        del self.records[request.key]
        notifications[request.key] = pb.Notification(type=pb.KEY_DELETED)
        return int(pb.OK)

    def get(self, request: Any) -> Any:
        """Return the record with this key."""
        if request.key not in self.records:
            return pb.GetResponse(status=pb.KEY_NOT_FOUND)
        return self.answer(request.key, value=request.include_value, named=False)

    def answer(self, key: str, *, value: bool = True, named: bool = True, second: str | None = None) -> Any:
        """Return a record as a response. `second`: its secondary key."""
        record = self.records[key]
        return pb.GetResponse(
            status=pb.OK,
            version=record.version,
            value=record.value if value else None,
            key=key if named else None,
            secondary_index_key=second,
        )

    def end(self, session: int) -> None:
        """End a session, and delete its records."""
        if self.sessions.pop(session, None) is None:
            return
        keys = [
            key
            for key, record in self.records.items()
            if record.version.HasField("session_id") and record.version.session_id == session
        ]
        self.offset += 1
        for key in keys:
            del self.records[key]
        self._notify({key: pb.Notification(type=pb.KEY_DELETED) for key in keys})

    def _notify(self, notifications: dict[str, Any]) -> None:
        if notifications:
            now_ms = time.time_ns() // 1_000_000
            batch = pb.NotificationBatch(
                shard=self.number, offset=self.offset, timestamp=now_ms, notifications=notifications
            )
            self.batches.append(batch)
        self.changed.set()
        self.changed = asyncio.Event()


def order(key: str) -> list[tuple[int, str]]:
    """Return what a key is sorted by: the keys of a directory come before those of its subdirectories."""
    *directories, name = key.split("/")
    return [*((1, item) for item in directories), (0, name)]


def _expected(request: Any, record: Record | None) -> bool:
    if not request.HasField("expected_version_id"):
        return True
    version: int = record.version.version_id if record else -1
    return bool(request.expected_version_id == version)


class Server(Servicer):  # type: ignore[misc]
    """All shards. Requests for a session contain no namespace, so the numbers of shards are unique."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._shards: list[Shard] = []
        self._namespaces: dict[str, Shard] = {}

    async def GetShardAssignments(self, request: Any, _: Any) -> AsyncIterator[Any]:
        name = request.namespace or "default"
        if name not in self._namespaces:
            self._namespaces[name] = Shard(number=len(self._shards))
            self._shards.append(self._namespaces[name])
        shard = pb.ShardAssignment(
            shard=self._namespaces[name].number,
            leader=f"127.0.0.1:{self._port}",
            int32_hash_range=pb.Int32HashRange(min_hash_inclusive=0, max_hash_inclusive=2**32 - 1),
        )
        router = pb.ShardKeyRouter.XXHASH3
        yield pb.ShardAssignments(
            namespaces={name: pb.NamespaceShardsAssignment(assignments=[shard], shard_key_router=router)}
        )
        await asyncio.Event().wait()

    async def Write(self, request: Any, _: Any) -> Any:
        return self._shards[request.shard].write(request)

    async def WriteStream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        shard = self._shards[int(dict(context.invocation_metadata()).get("shard-id", 0))]
        async for request in requests:
            yield shard.write(request)

    async def Read(self, request: Any, _: Any) -> AsyncIterator[Any]:
        shard = self._shards[request.shard]
        yield pb.ReadResponse(gets=[shard.get(item) for item in request.gets])

    async def List(self, request: Any, _: Any) -> AsyncIterator[Any]:
        yield pb.ListResponse(keys=[key for _, key in self._shards[request.shard].selected(request)])

    async def RangeScan(self, request: Any, _: Any) -> AsyncIterator[Any]:
        shard = self._shards[request.shard]
        yield pb.RangeScanResponse(
            records=[shard.answer(key, second=second) for second, key in shard.selected(request)]
        )

    async def GetNotifications(self, request: Any, _: Any) -> AsyncIterator[Any]:
        shard = self._shards[request.shard]
        if request.HasField("start_offset_exclusive"):
            at = next((i for i, b in enumerate(shard.batches) if b.offset > request.start_offset_exclusive), None)
            at = len(shard.batches) if at is None else at
        else:
            at = len(shard.batches)
            yield pb.NotificationBatch(shard=shard.number, offset=shard.offset)
        while True:
            for batch in shard.batches[at:]:
                at += 1
                yield batch
            if at == len(shard.batches):
                await shard.changed.wait()

    async def CreateSession(self, request: Any, _: Any) -> Any:
        shard = self._shards[request.shard]
        shard.offset += 1
        session = shard.sessions[shard.offset] = Session(seconds=request.session_timeout_ms / 1000)
        session.beat()
        return pb.CreateSessionResponse(session_id=shard.offset)

    async def KeepAlive(self, request: Any, context: Any) -> Any:
        session = self._shards[request.shard].sessions.get(request.session_id)
        if session is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "session not found")
            raise AssertionError
        session.beat()
        return pb.KeepAliveResponse()

    async def CloseSession(self, request: Any, _: Any) -> Any:
        self._shards[request.shard].end(request.session_id)
        return pb.CloseSessionResponse()

    async def end_sessions(self) -> None:
        """End the sessions without a heartbeat in time, until cancelled."""
        while True:
            await asyncio.sleep(REAP_SECONDS)
            for shard in self._shards:
                for number, session in list(shard.sessions.items()):
                    if session.deadline < time.monotonic():
                        shard.end(number)


class Health(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Says that the server is healthy (`grpc.health.v1.Health/Check`), without a further package."""

    def service(self, details: Any) -> Any:
        async def check(_request: bytes, _context: Any) -> bytes:
            return b"\x08\x01"

        return grpc.unary_unary_rpc_method_handler(check) if details.method.endswith("Health/Check") else None


async def main() -> None:
    """Print the port, and serve until the process is stopped."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    oxia = Server(port)
    services.add_OxiaClientServicer_to_server(oxia, server)
    server.add_generic_rpc_handlers([Health()])
    await server.start()
    print(port, flush=True)
    await oxia.end_sessions()


if __name__ == "__main__":
    asyncio.run(main())
