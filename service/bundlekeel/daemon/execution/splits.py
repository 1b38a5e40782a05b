"""One split: where to cut, the intent, the call, and the boundaries read again.

policy -> owner -> boundaries -> topics -> position -> policy -> intent -> permit -> split -> boundaries
(-> ownership channel).
In extensible mode brokers refuse more than one position a call (412); one is all we ever ask for.
The call is sent at most once, whatever its answer: an unknown outcome is settled by reading the boundaries, and so is
what another epoch left open. Children stay where they are; moving them is the business of the next plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import (
    AdminApiError,
    BundlekeelError,
    CodecError,
    LeadershipLost,
    StaleWrite,
    StoreError,
)
from bundlekeel.core.model.load import TopicLoad
from bundlekeel.core.model.names import namespace_of, parse_bundle
from bundlekeel.core.model.plan import Refusal
from bundlekeel.core.splitting.children import SplitChildren, holds, split_children
from bundlekeel.core.splitting.positions import NoCut, split_bundle
from bundlekeel.daemon.execution.move import EXTENSIBLE, ExecutorLimits, LeaderTerm, MovePorts, refusal_code, stale_code
from bundlekeel.daemon.execution.split_intents import (
    SplitIntent,
    SplitOutcome,
    SplitProgress,
    read_division,
    split_path,
)
from bundlekeel.ports import DocumentChange

_log = structlog.get_logger(__name__)

ONE_BOUNDARY = "brokers with the extensible load manager take one a split"
SplitPolicy = Callable[[str], Awaitable[Refusal | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequest:
    """One bundle to split at its owner, by which rule. `max_bundles`: as many as its namespace may have; `at`, `halves`
    as in `Split`."""

    bundle: str
    broker: str
    rule: str
    max_bundles: int
    cycle_id: str = ""
    at: tuple[int, ...] = ()
    halves: bool = False


class SplitRefused(Exception):
    """Ends a split before its call; `code` and `error`: why."""

    def __init__(self, code: str, error: str = "") -> None:
        super().__init__(error)
        self.code = code
        self.error = error


async def _allow(_bundle: str) -> Refusal | None:
    return None


def _ignore(_split: SplitChildren) -> None:
    return None


@dataclass(slots=True, kw_only=True)
class Splitter:
    """Splits bundles, one after the other, until it is stopped or its term is over.

    `policy` may refuse before anything is read. `prepare` gets the children right before the call.
    """

    ports: MovePorts
    term: LeaderTerm
    limits: ExecutorLimits = field(default_factory=ExecutorLimits)
    policy: SplitPolicy = _allow
    prepare: Callable[[SplitChildren], None] = _ignore
    _ended: str = ""
    _count: int = 0
    _busy: bool = False
    # Intents of ours that still stand, because the store did not take their removal.
    _left: set[str] = field(default_factory=set)

    async def split(self, request: SplitRequest) -> SplitOutcome:
        """One split from its policy to the boundaries read again. What goes wrong is in the outcome."""
        self._count += 1
        clock = self.ports.clock
        started = clock.boot()
        blank = SplitOutcome(
            bundle=request.bundle,
            broker=request.broker,
            rule=request.rule,
            outcome="refused",
            started_wall_ms=clock.wall_ms(),
            epoch=self.term.epoch,
            intent_id=f"{self.term.epoch}.s{self._count}",
            cycle_id=request.cycle_id,
        )
        self._busy = True
        try:
            made = await self._positions(request)
            blank = replace(blank, positions=positions_of(made), split=made)
            ended = await self._carry_out(request, blank)
        except SplitRefused as refused:
            ended = replace(blank, code=refused.code, error=refused.error)
        finally:
            self._busy = False
        return replace(ended, ended_wall_ms=clock.wall_ms(), seconds=clock.boot() - started)

    async def stop(self, seconds: float) -> None:
        """Begin no more, and wait for what is under way, at most so long."""
        self._ended = self._ended or Code.STOPPING
        deadline = self.ports.clock.boot() + seconds
        while self._busy and self.ports.clock.boot() < deadline:
            await self.ports.clock.sleep(self.limits.poll_first_seconds)

    # --- before ----------------------------------------------------------------------------------------------

    async def _check_policy(self, request: SplitRequest) -> None:
        refusal = await self.policy(request.bundle)
        if refusal is not None:
            raise SplitRefused(refusal.code, refusal.detail)

    async def _positions(self, request: SplitRequest) -> SplitChildren:
        """Where to cut. SplitRefused when the bundle must not or cannot be split."""
        if self._ended:
            raise SplitRefused(self._ended, "not begun")
        await self._check_policy(request)
        try:
            owner = await self.ports.ownership.owner(request.bundle)
            edges = await self.ports.metadata.boundaries(namespace_of(request.bundle))
        except StoreError as error:
            raise SplitRefused(error.code, str(error)) from error
        except CodecError as error:
            raise SplitRefused(Code.STORE_UNAVAILABLE, str(error)) from error
        if edges is None or not holds(edges, request.bundle):
            raise SplitRefused(Code.NO_SUCH_BUNDLE)
        if owner is None:
            raise SplitRefused(Code.UNOWNED)
        if owner.disabled:
            raise SplitRefused(Code.IN_TRANSIT, f"{owner.broker_id} is unloading it")
        if owner.broker_id != request.broker:
            raise SplitRefused(Code.OWNER_CHANGED, f"owned by {owner.broker_id}")
        if len(edges) - 1 + max(1, len(request.at)) > request.max_bundles:
            raise SplitRefused(Code.NAMESPACE_MAXIMUM, f"{len(edges) - 1} bundles")
        if len(request.at) > 1 and self.ports.mode() == EXTENSIBLE:
            raise SplitRefused(Code.NOT_SUPPORTED, f"{len(request.at)} boundaries; {ONE_BOUNDARY}")
        try:
            topics = await self.ports.admin.topic_loads(request.bundle, request.broker)
        except AdminApiError as error:
            raise SplitRefused(refusal_code(error), str(error)) from error
        return cut_of(request, topics)

    # --- the call --------------------------------------------------------------------------------------------

    async def _carry_out(self, request: SplitRequest, blank: SplitOutcome) -> SplitOutcome:
        path = split_path(request.bundle)
        # Statistics of a whole broker may take seconds to come, and a split is for good.
        await self._check_policy(request)
        await self._announce(request, blank, path)
        # As with moves: whatever ends it is recorded where its intent stands, unless we are cancelled ourselves.
        (ended,) = await asyncio.gather(self._call(request, blank), return_exceptions=True)
        if isinstance(ended, SplitOutcome):
            outcome = ended
        else:
            _log.error("split ended unexpectedly", bundle=request.bundle, exc_info=ended)
            outcome = replace(blank, outcome="unknown", code=Code.INTERNAL_ERROR, error=repr(ended))
        if outcome.code != Code.NOT_LEADER:
            await self._remove(path, version=0)
        return outcome

    async def _call(self, request: SplitRequest, blank: SplitOutcome) -> SplitOutcome:
        assert blank.split is not None
        try:
            self.term.permit()
            self.prepare(blank.split)
            positions = None if request.halves else blank.positions
            await self.ports.commands.split(
                request.bundle, positions=positions, at=request.broker, permit=self.term.permit
            )
            return await self._confirm(blank, "")
        except LeadershipLost as error:
            # The permit is checked before each hop: nothing left. The next leader settles the intent.
            self._ended = Code.NOT_LEADER
            return replace(blank, code=Code.NOT_LEADER, error=str(error))
        except StoreError as error:
            # The permit again: the store is unreachable or migrates, and nothing left.
            return replace(blank, code=error.code, error=str(error))
        except AdminApiError as error:
            if error.outcome_unknown:
                return await self._confirm(blank, str(error))
            return replace(blank, code=refusal_code(error), error=str(error))
        except BundlekeelError as error:
            return replace(blank, code=Code.NOT_PERMITTED, error=str(error))

    async def flush(self) -> None:
        """Try again to remove intents of splits that are over. Quiet when the store still does not answer."""
        if not self._busy:
            for left in sorted(self._left):
                await self._remove(left, version=-1)

    async def _announce(self, request: SplitRequest, blank: SplitOutcome, path: str) -> None:
        for left in sorted(self._left):
            await self._remove(left, version=-1)
        now = self.ports.clock.wall_ms()
        intent = SplitIntent(
            id=blank.intent_id,
            bundle=request.bundle,
            broker=request.broker,
            rule=request.rule,
            positions=blank.positions,
            epoch=self.term.epoch,
            member=self.term.member,
            wall_ms=now,
            deadline_ms=now + int(self.limits.intent_seconds * 1000),
            cycle_id=request.cycle_id,
        )
        try:
            change = DocumentChange(path=path, data=intent.encode(), create=True)
            await self.ports.coordination.write_fenced(self.term.epoch, [change])
        except LeadershipLost as error:
            self._ended = Code.NOT_LEADER
            raise SplitRefused(Code.NOT_LEADER, str(error)) from error
        except StaleWrite as error:
            raise SplitRefused(Code.FROZEN_INTENT, str(error)) from error
        except StoreError as error:
            # The write may have arrived all the same: it is removed before the next one.
            self._left.add(path)
            raise SplitRefused(Code.STORE_UNAVAILABLE, str(error)) from error

    async def _remove(self, path: str, *, version: int) -> None:
        try:
            await self.ports.coordination.write_fenced(
                self.term.epoch, [DocumentChange(path=path, data=None, version=version)]
            )
            self._left.discard(path)
        except LeadershipLost:
            self._ended = Code.NOT_LEADER
        except StaleWrite:
            self._left.discard(path)
        except StoreError:
            self._left.add(path)

    async def _confirm(self, blank: SplitOutcome, error: str) -> SplitOutcome:
        """Read until the split is seen complete or time is up; `error` when the answer is not known."""
        clock, pause, unreadable = self.ports.clock, self.limits.poll_first_seconds, ""
        deadline, before = clock.boot() + self.limits.confirm_seconds, self.ports.metadata.migration_now
        while True:
            found = SplitProgress(divided=False)
            try:
                found, unreadable = await read_division(self.ports, blank.bundle, blank.positions), ""
            except (StoreError, CodecError) as failure:
                unreadable = str(failure)
            if found.complete:
                return replace(blank, outcome="done", error=error)
            if clock.boot() >= deadline:
                break
            await clock.sleep(min(pause, max(0.0, deadline - clock.boot())))
            pause = min(pause * 2, self.limits.poll_max_seconds)
        if (stale := await stale_code(self.ports, before)) is not None:
            return replace(blank, outcome="unknown", code=stale, error=error)
        if unreadable:
            return replace(blank, outcome="unknown", code=Code.STORE_UNAVAILABLE, error=error or unreadable)
        if found.divided:
            unfinished = f"not settled in the channel: {', '.join(found.unfinished)}"
            return replace(blank, outcome="unknown", code=Code.SPLIT_UNFINISHED, error=error or unfinished)
        if error:
            return replace(blank, outcome="unknown", code=Code.NO_ANSWER, error=error)
        return replace(blank, code=Code.NOTHING_SPLIT, error="the broker split nothing")


def positions_of(made: SplitChildren) -> tuple[int, ...]:
    """Where the children meet, ascending."""
    return tuple(parse_bundle(child).lower for child in made.children[1:])


def cut_of(request: SplitRequest, topics: Sequence[TopicLoad]) -> SplitChildren:
    """Positions that divide what the rule is about. SplitRefused when the bundle's topics do not allow any."""
    name = parse_bundle(request.bundle)
    inside = [topic for topic in topics if name.lower <= topic.hash <= name.upper]
    if request.at:
        outside = [f"0x{position:08x}" for position in request.at if not name.lower < position < name.upper]
        if outside:
            raise SplitRefused(Code.NARROW_RANGE, f"{', '.join(outside)}: not strictly inside {name.range}")
        if len(inside) < 2 and not request.halves:
            raise SplitRefused(Code.SINGLE_TOPIC, "brokers split nothing that has fewer than two topics")
        return split_children(request.bundle, sorted(set(request.at)), inside)
    weights = _weights(request.rule, inside)
    if len(inside) > 1 and request.rule in ("hot", "msg_rate", "bandwidth") and not any(weights):
        # Just moved, or just loaded: its statistics come with the broker's next run. Halved blindly it stays hot.
        raise SplitRefused(Code.NO_LOAD_DATA, f"{request.broker} has no statistics of its topics yet")
    cut = split_bundle([topic.hash for topic in inside], weights, name.lower, name.upper)
    if isinstance(cut, NoCut):
        raise SplitRefused(cut.code, cut.sentence)
    return split_children(request.bundle, cut.positions, inside)


def _weights(rule: str, topics: Sequence[TopicLoad]) -> list[float]:
    """What each topic carries of what the bundle has too much of."""
    if rule == "topics":
        return [1.0] * len(topics)
    if rule == "sessions":
        return [float(topic.sessions) for topic in topics]
    rates = [topic.traffic[0] + topic.traffic[1] for topic in topics]
    sizes = [topic.traffic[2] + topic.traffic[3] for topic in topics]
    if rule in ("msg_rate", "bandwidth"):
        return rates if rule == "msg_rate" else sizes
    # Load as the score sees it: the mean of the shares of messages and bytes.
    all_rates, all_sizes = sum(rates) or 1.0, sum(sizes) or 1.0
    return [rate / all_rates + size / all_sizes for rate, size in zip(rates, sizes, strict=True)]
