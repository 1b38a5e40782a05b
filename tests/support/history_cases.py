"""Sequences of plan inputs as a leader would record them, random by seed, and their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from bundlekeel.core.guard.state import BegunMove, SplitFailed
from bundlekeel.core.history.frames import frame_of, outcome_of
from bundlekeel.core.history.record import CycleRecord, Frame, recorded
from bundlekeel.core.model.load import ExcludedBroker
from bundlekeel.core.operations.owned import with_owned
from bundlekeel.core.planning.engine import PlanInput, plan
from bundlekeel.core.planning.memory import CompatMemory, Hits
from bundlekeel.ports.history import hour_of
from tests.support.builders import NOW_MS, broker, bundle_name
from tests.support.random_cases import random_case

# The beginning of an hour.
START_MS = NOW_MS // 3_600_000 * 3_600_000


def sequence(cycles: int, seed: int, *, start_ms: int = START_MS, every_ms: int = 10_000) -> Iterator[PlanInput]:
    """Inputs whose wall time goes on: now the same cluster with changed figures, now quite another one."""
    rng = np.random.default_rng(seed)
    given = random_case(rng)
    for number in range(cycles):
        given = random_case(rng) if not rng.integers(4) else _changed(given, rng)
        yield replace(given, snapshot=replace(given.snapshot, wall_ms=start_ms + number * every_ms))


def _changed(given: PlanInput, rng: np.random.Generator) -> PlanInput:
    """The same cluster later: some rows have new figures, the strategy remembers, people asked for something."""
    made = plan(given)
    bundles = given.snapshot.bundles
    latest = bundles.latest.copy()
    for row in rng.choice(len(bundles), size=int(rng.integers(0, len(bundles))), replace=False):
        latest[row] = rng.choice([0.0, -0.0, float(np.round(rng.random() * 1e6, 3))])
    snapshot = replace(given.snapshot, bundles=replace(bundles, latest=latest))
    if not rng.integers(3):
        snapshot = replace(snapshot, excluded=(ExcludedBroker(broker_id="x:1", code="STALE", detail="é"),))
    owned: dict[str, frozenset[str]] = {}
    if not rng.integers(3):
        owned = {broker(0): frozenset(bundle_name(number, "t/owned") for number in range(int(rng.integers(1, 4))))}
        snapshot = with_owned(snapshot, owned)
    names, brokers = list(bundles.names) or ["t/ns/0x00000000_0x10000000"], snapshot.brokers.ids
    guard = replace(
        given.guard,
        quarantined={(brokers[0], brokers[-1]): NOW_MS} if rng.integers(2) else {},
        last_hour=(BegunMove(bundle=names[0], source=brokers[0], target=brokers[-1], at_ms=NOW_MS, share=0.1),),
        cordoned=frozenset(brokers[:1]) if not rng.integers(4) else frozenset(),
        split_failed={names[-1]: SplitFailed(at_ms=NOW_MS, code="NO_ANSWER")},
        rate=None if rng.integers(2) else 3,
    )
    memory = replace(
        made.memory,
        split_hits={names[0]: Hits(side="hot", low=1)},
        compat=CompatMemory(usage={brokers[0]: 0.1 + 0.2}, listed=brokers),
    )
    return replace(given, snapshot=snapshot, guard=guard, memory=memory, ledger=made.ledger, owned=owned)


def records_of(given: Iterable[PlanInput], *, epoch: int = 1, first: int = 1) -> list[CycleRecord]:
    """What a leader records of them: a whole picture first and in each new hour, changes in between."""
    found: list[CycleRecord] = []
    before: tuple[int, Frame] | None = None
    for number, item in enumerate(given, first):
        if found and hour_of(found[-1].wall_ms) != hour_of(item.snapshot.wall_ms):
            before = None
        made, frame = plan(item), frame_of(item)
        outcome = outcome_of(made, {"cycle": number, "acted": False}, acted=False, software="test")
        found.append(recorded(before, frame, epoch=epoch, cycle=number, outcome=outcome))
        before = number, frame
    return found
