"""Sequences of plan inputs as a leader would record them, random by seed, and their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from bundlekeel.model.load import ExcludedBroker
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import BegunMove, SplitFailed
from bundlekeel.planning.memory import CompatMemory, Hits
from bundlekeel.planning.owned import with_owned
from bundlekeel.recalibration.history.frames import frame_of, outcome_of
from bundlekeel.recalibration.history.ports import hour_of
from bundlekeel.recalibration.history.record import Frame, HistoryRecord, recorded
from tests.support.builders import NOW_MS, broker, bundle_name
from tests.support.random_cases import random_case

# The beginning of an hour.
START_MS = NOW_MS // 3_600_000 * 3_600_000


def sequence(cycles: int, seed: int, *, start_ms: int = START_MS, every_ms: int = 10_000) -> Iterator[PlanInput]:
    """Yield inputs with increasing wall time: either the same cluster with other values, or another cluster."""
    rng = np.random.default_rng(seed)
    case = random_case(rng)
    for number in range(cycles):
        case = random_case(rng) if not rng.integers(4) else _changed(case, rng)
        yield replace(case, snapshot=replace(case.snapshot, wall_ms=start_ms + number * every_ms))


def _changed(before: PlanInput, rng: np.random.Generator) -> PlanInput:
    """Return the same cluster later: some rows have new values, the strategy has memory, operators have sent
    requests.
    """
    result = plan(before)
    bundles = before.snapshot.bundles
    latest = bundles.latest.copy()
    for row in rng.choice(len(bundles), size=int(rng.integers(0, len(bundles))), replace=False):
        latest[row] = rng.choice([0.0, -0.0, float(np.round(rng.random() * 1e6, 3))])
    snapshot = replace(before.snapshot, bundles=replace(bundles, latest=latest))
    if not rng.integers(3):
        snapshot = replace(snapshot, excluded=(ExcludedBroker(broker_id="x:1", code="STALE", detail="é"),))
    owned: dict[str, frozenset[str]] = {}
    if not rng.integers(3):
        owned = {broker(0): frozenset(bundle_name(number, "t/owned") for number in range(int(rng.integers(1, 4))))}
        snapshot = with_owned(snapshot, owned)
    names, brokers = list(bundles.names) or ["t/ns/0x00000000_0x10000000"], snapshot.brokers.ids
    guard = replace(
        before.guard,
        quarantined={(brokers[0], brokers[-1]): NOW_MS} if rng.integers(2) else {},
        last_hour=(BegunMove(bundle=names[0], source=brokers[0], target=brokers[-1], at_ms=NOW_MS, share=0.1),),
        cordoned=frozenset(brokers[:1]) if not rng.integers(4) else frozenset(),
        split_failed={names[-1]: SplitFailed(at_ms=NOW_MS, code="NO_ANSWER")},
        rate=None if rng.integers(2) else 3,
    )
    memory = replace(
        result.memory,
        split_hits={names[0]: Hits(side="hot", low=1)},
        compat=CompatMemory(usage={brokers[0]: 0.1 + 0.2}, listed=brokers),
    )
    return replace(before, snapshot=snapshot, guard=guard, memory=memory, ledger=result.ledger, owned=owned)


def records_of(inputs: Iterable[PlanInput], *, epoch: int = 1, first: int = 1) -> list[HistoryRecord]:
    """Return the records of a leader: a whole snapshot first and in each new hour, changes in between."""
    records: list[HistoryRecord] = []
    before: tuple[int, Frame] | None = None
    for number, item in enumerate(inputs, first):
        if records and hour_of(records[-1].wall_ms) != hour_of(item.snapshot.wall_ms):
            before = None
        result, frame = plan(item), frame_of(item)
        outcome = outcome_of(result, {"cycle": number, "acted": False}, acted=False, software="test")
        records.append(recorded(before, frame, epoch=epoch, cycle=number, outcome=outcome))
        before = number, frame
    return records
