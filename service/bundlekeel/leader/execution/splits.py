"""Steps of one split: compute the position, write the intent, call the broker, and read the boundaries again.

policy -> owner -> boundaries -> topics -> position -> policy -> intent -> permit -> split -> boundaries (-> ownership
channel).

In extensible mode brokers reject more than one position per call (412), so a plan requests only one. The call is sent
at most once. If its result is unknown, or an earlier leader did not finish the split, the boundaries decide. The new
bundles stay on their broker until the next plan moves them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from bundlekeel.leader.execution.move import EXTENSIBLE, ExecutorLimits, LeaderTerm, MovePorts, refusal_code, stale_code
from bundlekeel.leader.execution.split_intents import (
    SplitIntent,
    SplitOutcome,
    SplitProgress,
    read_division,
    split_path,
)
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminApiError, BundlekeelError, CodecError, LeadershipLost, StaleWrite, StoreError
from bundlekeel.model.load import TopicLoad
from bundlekeel.model.names import namespace_of, parse_bundle
from bundlekeel.model.plan import Refusal, Split
from bundlekeel.planning.splitting.children import SplitChildren, holds, split_children
from bundlekeel.planning.splitting.positions import NoCut, split_bundle
from bundlekeel.ports import DocumentChange

_log = structlog.get_logger(__name__)

ONE_BOUNDARY = "brokers with the extensible load manager accept one position per split"
SplitPolicy = Callable[[str], Awaitable[Refusal | None]]


class SplitRefused(Exception):
    """Ends a split before its call. `code` and `error` give the reason."""

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
    """Splits one bundle at a time, until it is stopped or its leader term ends.

    `policy` may refuse before anything is read. `prepare` receives the new bundles right before the call to the broker.
    """

    ports: MovePorts
    term: LeaderTerm
    limits: ExecutorLimits = field(default_factory=ExecutorLimits)
    policy: SplitPolicy = _allow
    prepare: Callable[[SplitChildren], None] = _ignore
    _ended: str = ""
    _count: int = 0
    _busy: bool = False
    # Intents of this splitter that could not be removed from the store.
    _left: set[str] = field(default_factory=set)

    async def split(self, split: Split, *, max_bundles: int, cycle_id: str = "") -> SplitOutcome:
        """Execute one split. Errors are part of the outcome.

        `max_bundles`: highest number of bundles that the namespace may have afterwards. `cycle_id`: the cycle or task
        that planned the split."""
        self._count += 1
        clock = self.ports.clock
        started = clock.boot()
        blank = SplitOutcome(
            bundle=split.bundle,
            broker=split.broker,
            rule=split.rule,
            outcome="refused",
            started_wall_ms=clock.wall_ms(),
            epoch=self.term.epoch,
            intent_id=f"{self.term.epoch}.s{self._count}",
            cycle_id=cycle_id,
        )
        self._busy = True
        try:
            children = await self._positions(split, max_bundles)
            blank = replace(blank, positions=positions_of(children), split=children)
            ended = await self._carry_out(split, blank)
        except SplitRefused as refused:
            ended = replace(blank, code=refused.code, error=refused.error)
        finally:
            self._busy = False
        return replace(ended, ended_wall_ms=clock.wall_ms(), seconds=clock.boot() - started)

    async def stop(self, seconds: float) -> None:
        """Start no more splits, and wait for a running one for at most `seconds`."""
        self._ended = self._ended or Code.STOPPING
        deadline = self.ports.clock.boot() + seconds
        while self._busy and self.ports.clock.boot() < deadline:
            await self.ports.clock.sleep(self.limits.poll_first_seconds)

    # --- before ----------------------------------------------------------------------------------------------

    async def _check_policy(self, split: Split) -> None:
        refusal = await self.policy(split.bundle)
        if refusal is not None:
            raise SplitRefused(refusal.code, refusal.detail)

    async def _positions(self, split: Split, max_bundles: int) -> SplitChildren:
        if self._ended:
            raise SplitRefused(self._ended, "not begun")
        await self._check_policy(split)
        try:
            owner = await self.ports.ownership.owner(split.bundle)
            edges = await self.ports.metadata.boundaries(namespace_of(split.bundle))
        except StoreError as error:
            raise SplitRefused(error.code, str(error)) from error
        except CodecError as error:
            raise SplitRefused(Code.STORE_UNAVAILABLE, str(error)) from error
        if edges is None or not holds(edges, split.bundle):
            raise SplitRefused(Code.NO_SUCH_BUNDLE)
        if owner is None:
            raise SplitRefused(Code.UNOWNED)
        if owner.disabled:
            raise SplitRefused(Code.IN_TRANSIT, f"{owner.broker_id} is unloading it")
        if owner.broker_id != split.broker:
            raise SplitRefused(Code.OWNER_CHANGED, f"owned by {owner.broker_id}")
        if len(edges) - 1 + max(1, len(split.at)) > max_bundles:
            raise SplitRefused(Code.NAMESPACE_MAXIMUM, f"{len(edges) - 1} bundles")
        if len(split.at) > 1 and self.ports.load_manager() == EXTENSIBLE:
            raise SplitRefused(Code.NOT_SUPPORTED, f"{len(split.at)} boundaries; {ONE_BOUNDARY}")
        try:
            topics = await self.ports.admin.topic_loads(split.bundle, split.broker)
        except AdminApiError as error:
            raise SplitRefused(refusal_code(error), str(error)) from error
        return cut_of(split, topics)

    # --- the call --------------------------------------------------------------------------------------------

    async def _carry_out(self, split: Split, blank: SplitOutcome) -> SplitOutcome:
        path = split_path(split.bundle)
        # Check again: reading a broker's statistics may take seconds, and a split cannot be undone.
        await self._check_policy(split)
        await self._announce(split, blank, path)
        # As with moves, errors end up as the outcome, unless this task itself is cancelled.
        (ended,) = await asyncio.gather(self._call(split, blank), return_exceptions=True)
        if isinstance(ended, SplitOutcome):
            outcome = ended
        else:
            text = "split ended with an unexpected error; its outcome is recorded as unknown"
            _log.error(text, bundle=split.bundle, exc_info=ended)
            outcome = replace(blank, outcome="unknown", code=Code.INTERNAL_ERROR, error=repr(ended))
        if outcome.code != Code.NOT_LEADER:
            await self._remove(path, version=0)
        return outcome

    async def _call(self, split: Split, blank: SplitOutcome) -> SplitOutcome:
        assert blank.split is not None
        try:
            self.term.permit()
            self.prepare(blank.split)
            positions = None if split.halves else blank.positions
            await self.ports.commands.split(split.bundle, positions=positions, at=split.broker, permit=self.term.permit)
            return await self._confirm(blank, "")
        except LeadershipLost as error:
            # The permit is checked before each hop, so nothing was sent. The next leader settles the intent.
            self._ended = Code.NOT_LEADER
            return replace(blank, code=Code.NOT_LEADER, error=str(error))
        except StoreError as error:
            # The permit failed: the store is unreachable or migrates. Nothing was sent.
            return replace(blank, code=error.code, error=str(error))
        except AdminApiError as error:
            if error.outcome_unknown:
                return await self._confirm(blank, str(error))
            return replace(blank, code=refusal_code(error), error=str(error))
        except BundlekeelError as error:
            return replace(blank, code=Code.NOT_PERMITTED, error=str(error))

    async def flush(self) -> None:
        """Try again to remove the intents of finished splits. Does nothing if the store does not respond."""
        if not self._busy:
            for left in sorted(self._left):
                await self._remove(left, version=-1)

    async def _announce(self, split: Split, blank: SplitOutcome, path: str) -> None:
        for left in sorted(self._left):
            await self._remove(left, version=-1)
        now = self.ports.clock.wall_ms()
        intent = SplitIntent(
            id=blank.intent_id,
            bundle=split.bundle,
            broker=split.broker,
            rule=split.rule,
            positions=blank.positions,
            epoch=self.term.epoch,
            member=self.term.member,
            wall_ms=now,
            deadline_ms=now + int(self.limits.intent_seconds * 1000),
            cycle_id=blank.cycle_id,
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
            # The write may have succeeded nevertheless, so the node is removed before the next split.
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
        """Read the boundaries until the split is complete or the deadline has passed.

        `error`: the error of the call; "": the broker confirmed it."""
        clock, pause, unreadable = self.ports.clock, self.limits.poll_first_seconds, ""
        deadline, before = clock.boot() + self.limits.confirm_seconds, self.ports.metadata.migration_now
        while True:
            progress = SplitProgress(divided=False)
            try:
                progress, unreadable = await read_division(self.ports, blank.bundle, blank.positions), ""
            except (StoreError, CodecError) as failure:
                unreadable = str(failure)
            if progress.complete:
                return replace(blank, outcome="done", error=error)
            if clock.boot() >= deadline:
                break
            await clock.sleep(min(pause, max(0.0, deadline - clock.boot())))
            pause = min(pause * 2, self.limits.poll_max_seconds)
        if (stale := await stale_code(self.ports, before)) is not None:
            return replace(blank, outcome="unknown", code=stale, error=error)
        if unreadable:
            return replace(blank, outcome="unknown", code=Code.STORE_UNAVAILABLE, error=error or unreadable)
        if progress.divided:
            unfinished = f"not settled in the channel: {', '.join(progress.unfinished)}"
            return replace(blank, outcome="unknown", code=Code.SPLIT_UNFINISHED, error=error or unfinished)
        if error:
            return replace(blank, outcome="unknown", code=Code.NO_ANSWER, error=error)
        return replace(blank, code=Code.NOTHING_SPLIT, error="the broker did not split the bundle")


def positions_of(split: SplitChildren) -> tuple[int, ...]:
    """Return the hash positions between the new bundles of a split, ascending."""
    return tuple(parse_bundle(child).lower for child in split.children[1:])


def cut_of(split: Split, topics: Sequence[TopicLoad]) -> SplitChildren:
    """Return the new bundles of a split: divided at `split.at`, or else so that each has a similar part of the load.

    The load is that of the limit which the bundle exceeds (`split.rule`). Raises SplitRefused if the bundle's topics do
    not allow the split."""
    name = parse_bundle(split.bundle)
    inside = [topic for topic in topics if name.lower <= topic.hash <= name.upper]
    if split.at:
        outside = [f"0x{position:08x}" for position in split.at if not name.lower < position < name.upper]
        if outside:
            raise SplitRefused(Code.NARROW_RANGE, f"{', '.join(outside)}: not strictly inside {name.range}")
        if len(inside) < 2 and not split.halves:
            raise SplitRefused(Code.SINGLE_TOPIC, "brokers do not split a bundle with fewer than two topics")
        return split_children(split.bundle, sorted(set(split.at)), inside)
    weights = _weights(split.rule, inside)
    if len(inside) > 1 and split.rule in ("hot", "msg_rate", "bandwidth") and not any(weights):
        # A newly loaded bundle has no statistics until the broker's next run. A split in the middle might not help.
        raise SplitRefused(Code.NO_LOAD_DATA, f"{split.broker} has no statistics of its topics yet")
    cut = split_bundle([topic.hash for topic in inside], weights, name.lower, name.upper)
    if isinstance(cut, NoCut):
        raise SplitRefused(cut.code, cut.sentence)
    return split_children(split.bundle, cut.positions, inside)


def _weights(rule: str, topics: Sequence[TopicLoad]) -> list[float]:
    if rule == "topics":
        return [1.0] * len(topics)
    if rule == "sessions":
        return [float(topic.sessions) for topic in topics]
    rates = [topic.traffic[0] + topic.traffic[1] for topic in topics]
    sizes = [topic.traffic[2] + topic.traffic[3] for topic in topics]
    if rule in ("msg_rate", "bandwidth"):
        return rates if rule == "msg_rate" else sizes
    # As in the load score: the mean of the shares of messages and bytes.
    all_rates, all_sizes = sum(rates) or 1.0, sum(sizes) or 1.0
    return [rate / all_rates + size / all_sizes for rate, size in zip(rates, sizes, strict=True)]
