"""Sidecars with one safeguard missing, put together otherwise: the checker has to catch each of them."""

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
    """A leadership whose permit is never refused."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leadership, name)

    def permit(self, epoch: int) -> None:
        """Whatever the time."""


class FarAway(ChaosSidecar):
    """A sidecar with every safeguard, whose connections to brokers all take long."""

    slow_connects = 1.0


class WithoutPermit(FarAway):
    """It does not check whether it still leads."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.executor._leadership = _Always(self.leadership)  # type: ignore[assignment]


class _EndsItself(_Always):
    """A leadership that takes a suspended connection for the end of its term."""

    def permit(self, epoch: int) -> None:
        try:
            self._leadership.permit(epoch)
        except StoreError as error:
            raise LeadershipLost(str(error)) from error


class GivesUpEarly(FarAway):
    """It treats a suspension as the end of its term: the executor stays idle and its intent open."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.executor._leadership = _EndsItself(self.leadership)  # type: ignore[assignment]


class _NoIntents(FarStore):
    """A store to which no intent is ever written."""

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        await super().write_fenced(epoch, [item for item in changes if item.path.rpartition("/")[0] != INTENTS])


class WithoutIntents(ChaosSidecar):
    """It calls without saying so before."""

    store_kind = _NoIntents


class _AsksAgain(FarBrokers):
    """Brokers that are asked again when they do not answer."""

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        try:
            return await super().unload(bundle, destination=destination, at=at, permit=permit)
        except AdminApiError:
            return await super().unload(bundle, destination=destination, at=at, permit=permit)


class BlindRetry(ChaosSidecar):
    """It repeats every call that fails, whether or not the call took effect."""

    brokers_kind = _AsksAgain


class _Deaf(FarStore):
    """A store in which people seem to want nothing."""

    async def read(self, path: str) -> Document | None:
        node = await super().read(path)
        return replace(node, data=b"") if node is not None and path == "desired" else node


class WithoutRequests(ChaosSidecar):
    """It does what it planned, whatever people want."""

    store_kind = _Deaf


class _DeafToCordons(FarStore):
    """A store that contains no cordons."""

    async def read(self, path: str) -> Document | None:
        node = await super().read(path)
        desired = decode(node.data, Desired) if node is not None and path == "desired" else None
        if node is None or desired is None:
            return node
        return replace(node, data=encode(msgspec.structs.replace(desired, cordons={})))


class WithoutCordons(ChaosSidecar):
    """It honors every request except those that keep bundles away from a broker."""

    store_kind = _DeafToCordons


class _Unfenced(FarStore):
    """A store that takes the writes of an epoch that is over."""

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        try:
            await super().write_fenced(epoch, changes)
        except LeadershipLost:
            await super().write_fenced(self.store.nodes["epoch"].version, changes)


class WithoutFence(WithoutPermit):
    """Nothing stops a leader of yesterday: neither its deadline nor the store."""

    store_kind = _Unfenced


class _NoRecords(FarStore):
    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        await super().write_fenced(epoch, [item for item in changes if item.path.rpartition("/")[0] != "moves"])


class Forgetful(ChaosSidecar):
    """It writes no records of its moves, so the next leader has no cool-down either."""

    store_kind = _NoRecords
