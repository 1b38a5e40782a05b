"""Sidecars that lack one safeguard each. The checker must find a violation of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from bundlekeel.leader.execution.intents import INTENTS
from bundlekeel.leader.state.documents import Desired, decode, encode
from bundlekeel.leader.state.leadership import Leadership
from bundlekeel.model.errors import AdminApiError, LeadershipLost, StoreError
from bundlekeel.ports import Document, DocumentChange
from bundlekeel.ports.commands import Permit, UnloadAnswer
from tests.support.chaos_world import ChaosSidecar, FarBrokers, FarStore


class _Always:
    """A leadership that permits every write."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leadership, name)

    def permit(self, epoch: int) -> None:
        """Permit the write, even after the end of the term."""


class FarAway(ChaosSidecar):
    """A sidecar with every safeguard. All its connections to brokers are slow."""

    slow_connects = 1.0


class WithoutPermit(FarAway):
    """A sidecar that does not check whether it still leads."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.executor._leadership = _Always(self.leadership)  # type: ignore[assignment]


class _EndsItself(_Always):
    """A leadership that treats a suspended connection as the end of its term."""

    def permit(self, epoch: int) -> None:
        try:
            self._leadership.permit(epoch)
        except StoreError as error:
            raise LeadershipLost(str(error)) from error


class GivesUpEarly(FarAway):
    """A sidecar that treats a suspended connection as the end of its term, so its executor stops and leaves an
    intent.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.executor._leadership = _EndsItself(self.leadership)  # type: ignore[assignment]


class _NoIntents(FarStore):
    """A store to which no intent is ever written."""

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        await super().write_fenced(epoch, [item for item in changes if item.path.rpartition("/")[0] != INTENTS])


class WithoutIntents(ChaosSidecar):
    """A sidecar that sends calls without writing an intent before."""

    store_kind = _NoIntents


class _AsksAgain(FarBrokers):
    """A connection to brokers that repeats requests without a response."""

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        try:
            return await super().unload(bundle, destination=destination, at=at, permit=permit)
        except AdminApiError:
            return await super().unload(bundle, destination=destination, at=at, permit=permit)


class BlindRetry(ChaosSidecar):
    """A sidecar that repeats every failed call, even if the call had an effect."""

    brokers_kind = _AsksAgain


class _Deaf(FarStore):
    """A store that returns no operator requests."""

    async def read(self, path: str) -> Document | None:
        node = await super().read(path)
        return replace(node, data=b"") if node is not None and path == "desired" else node


class WithoutRequests(ChaosSidecar):
    """A sidecar that ignores operators' requests."""

    store_kind = _Deaf


class _DeafToCordons(FarStore):
    """A store that returns no cordons."""

    async def read(self, path: str) -> Document | None:
        node = await super().read(path)
        desired = decode(node.data, Desired) if node is not None and path == "desired" else None
        if node is None or desired is None:
            return node
        return replace(node, data=encode(msgspec.structs.replace(desired, cordons={})))


class WithoutCordons(ChaosSidecar):
    """A sidecar that ignores cordons and follows all other requests."""

    store_kind = _DeafToCordons


class _Unfenced(FarStore):
    """A store that accepts writes of an earlier epoch."""

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        try:
            await super().write_fenced(epoch, changes)
        except LeadershipLost:
            await super().write_fenced(self.store.nodes["epoch"].version, changes)


class WithoutFence(WithoutPermit):
    """A sidecar that can write after its term: neither its own deadline nor the store prevents that."""

    store_kind = _Unfenced


class _NoRecords(FarStore):
    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        await super().write_fenced(epoch, [item for item in changes if item.path.rpartition("/")[0] != "moves"])


class Forgetful(ChaosSidecar):
    """A sidecar that does not record its moves, so that the next leader has no cool-downs."""

    store_kind = _NoRecords
