"""Kinds of documents of Bundlekeel itself, with values of the right type out of range, as a sidecar uses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final, cast

from bundlekeel.leader.execution.intents import settle_intents
from bundlekeel.leader.execution.split_intents import settle_splits
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.documents import encode
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import StoreError
from bundlekeel.model.names import parse_bundle
from bundlekeel.quotas.enforcing.owned_limits import OwnedLimits
from bundlekeel.requests.doctor_checks import document_check
from bundlekeel.wiring.features import installed
from tests.support.builders import bundle_name
from tests.support.foreign_input import Kind
from tests.support.foreign_uses import as_json, node_name, run
from tests.support.memory_coordination import _Node
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, TestClock

OTHER: Final = bundle_name(0)


class _StillClock(TestClock):
    """Leases do not run out, however slow the machine is."""

    def boot(self) -> float:
        """Seconds on the boot clock, which stands still."""
        return self.offset


@cache
def _sidecar(_kind: object) -> FakeSidecar:
    """A leader of its own for each kind, after a cycle."""
    sidecar = FakeSidecar(FakeCluster(clock=_StillClock()), mode="recommend")
    run(sidecar.lead())
    run(sidecar.shared_state.begin_term(sidecar.shared_state.current_epoch()))
    sidecar.cycle.adopt(CycleState(), sidecar.shared_state.current_epoch())
    run(sidecar.cycle.turn())
    return sidecar


def _put(sidecar: FakeSidecar, path: str, data: bytes) -> None:
    nodes = sidecar.cluster.store.nodes
    nodes[path] = _Node(data, version=nodes[path].version + 1 if path in nodes else 0)


def _folder_name(folder: str, node: bytes) -> Callable[[bytes], None]:
    """Names of nodes below a folder of the shared state: a term, the requests and the doctor read them."""

    def read(data: bytes) -> None:
        name = node_name(data)
        if not name:
            return
        sidecar = _sidecar(folder)
        _put(sidecar, f"{folder}/{name}", node)
        try:
            run(_read_all(sidecar))
        finally:
            sidecar.cluster.store.nodes.pop(f"{folder}/{name}", None)

    return read


async def _read_all(sidecar: FakeSidecar) -> None:
    state: SharedState = sidecar.shared_state
    epoch = state.current_epoch()
    await state.begin_term(epoch)
    state.taken_over()
    async for _ in state.read_averages():
        pass
    await _settle(sidecar)
    with suppress(StoreError):
        await OwnedLimits(sidecar.coordination).load()
    await OwnedLimits(sidecar.coordination).read_report()
    await sidecar.service.tasks()
    await document_check(sidecar.coordination, [feature.check_documents for feature in installed()])


async def _settle(sidecar: FakeSidecar) -> None:
    ports, epoch = sidecar.executor._ports, sidecar.shared_state.current_epoch()
    await settle_splits(ports, epoch=epoch, first_seen={})
    await settle_intents(ports.coordination, ports.ownership, epoch=epoch, clock=ports.clock, first_seen={})


def _stored(
    path: str, use: Callable[[FakeSidecar], Awaitable[object]], *, head: bytes = b""
) -> Callable[[bytes], None]:
    """A document at `path`, which a sidecar reads and uses."""

    def read(data: bytes) -> None:
        sidecar = _sidecar((path, use))
        _put(sidecar, path, head + data)
        run(cast("Any", use(sidecar)))

    return read


async def _use_state(sidecar: FakeSidecar) -> None:
    """Read the state as the next leader, for one cycle, and show it in the API."""
    state = sidecar.shared_state
    epoch = state.current_epoch()
    await state.begin_term(epoch)
    sidecar.cycle.adopt(state.taken_over(), epoch)
    sidecar.outage.remember(state.shared.cycle_state.brokers, state.shared.wall_ms)
    report = await sidecar.cycle.turn()
    assert report.code is not Code.INTERNAL_ERROR, "the cycle failed; its log contains the traceback"
    sidecar.service.capture()
    await state.save(CycleState(cycle=1), {}, epoch=epoch)


async def _use_moves(sidecar: FakeSidecar) -> None:
    sidecar.cluster.store.nodes["state/leader/0000"].data = _HEAD + encode(_STATE)
    await sidecar.shared_state.begin_term(sidecar.shared_state.current_epoch())
    sidecar.shared_state.taken_over()
    sidecar.cycle.plan_input(sidecar.cycle.demand_snapshot())
    sidecar.service.capture()


async def _use_desired(sidecar: FakeSidecar) -> None:
    """The gate and the plan follow it, and the API shows it."""
    await sidecar.shared_state.refresh()
    sidecar.gate.see(sidecar.cycle.picture)  # type: ignore[arg-type]
    sidecar.gate.cluster_obstacle()
    sidecar.cycle.plan_input(sidecar.cycle.demand_snapshot())
    sidecar.service.capture()
    await sidecar.service.requests.operations()


async def _use_requests(sidecar: FakeSidecar) -> None:
    await sidecar.executions.serve()
    await sidecar.service.tasks()


async def _use_reviews(sidecar: FakeSidecar) -> None:
    await sidecar.reviews.all()
    await sidecar.reviews.settle()


async def _use_intents(sidecar: FakeSidecar) -> None:
    await _settle(sidecar)
    sidecar.service.capture()


async def _use_outage(sidecar: FakeSidecar) -> None:
    await sidecar.outage.look()
    sidecar.outage.view()
    sidecar.outage.obstacle()


async def _use_quotas(sidecar: FakeSidecar) -> None:
    limits = OwnedLimits(sidecar.coordination)
    with suppress(StoreError):
        sizes, native = await limits.load()
        await limits.store(sidecar.shared_state.current_epoch(), sizes)
        await limits.store_native(sidecar.shared_state.current_epoch(), native)


_REQUEST: Final = {"by": "a", "reason": "r", "since_ms": 1}
_EXCESS: Final = {"side": "hot", "since_ms": 1, "seconds": 1.5, "cost": 1.5, "rate": 1.5, "readings": 1}
_COURSE: Final = {"level": 0.7, "until_ms": 1, "traffic": 1.5, "seconds": 1.5, "readings": [[0.7, 1.5]]}
_COURSE_FULL: Final = _COURSE | {
    "excess": _EXCESS,
    "acted": _EXCESS,
    "swing": {"seconds": 1.5, "rate": 1.5, "at_ms": 1},
}
_MOVE_PLAN: Final = {
    "bundle": OTHER,
    "source": BROKERS[0],
    "target": BROKERS[1],
    "rule": "avg",
    "threshold": 0.1,
    "source_before": 0.7,
    "source_after": 0.5,
    "target_before": 0.1,
    "target_after": 0.3,
    "runner_up": "",
    "traffic": [1.5, 1.5, 1.5, 1.5],
    "pressure": [1.5] * 6,
}
_ENTRY: Final = {
    "bundle": OTHER,
    "source": BROKERS[0],
    "target": BROKERS[1],
    "opened_ms": 1,
    "landed_ms": 2,
    "traffic": [1.5, 1.5, 1.5, 1.5],
    "pressure": [1.5] * 6,
}
_EFFECT: Final = {"move": _MOVE_PLAN, "at_ms": 1, "mean": 0.5, "source_before": 0.7, "target_before": 0.1}
_PAIR: Final = {"source": BROKERS[0], "target": BROKERS[1]}
_COST: Final = {"reported": 1, "steady": [1.5, 1.5], "since": 0, "idle": 1.5, "near": [1.5] * 3, "far": [1.5] * 3}
_STATE: Final = {
    "epoch": 1,
    "wall_ms": 1,
    "awaited_ms": 1,
    "cycle_state": {
        "cycle": 2,
        "completed_ms": 1,
        "brokers": list(BROKERS),
        "memory": {
            "courses": dict.fromkeys(BROKERS, _COURSE_FULL),
            "split_hits": {OTHER: {"side": "hot", "low": 1, "reported": 1, "at_ms": 1}},
            "turn": 1,
            "costs": {"brokers": dict.fromkeys(BROKERS, _COST), "prior": [1.5, 1.5], "compared": 1},
            "compat": {"usage": {BROKERS[0]: 1.5}, "low": {BROKERS[0]: 1}, "condition_hits": 1, "turn": 1},
        },
        "ledger": {
            "entries": [_ENTRY, _ENTRY | {"bundle": bundle_name(1), "landed_ms": 0}],
            "baselines": [{"broker": BROKERS[0], "usage": [1.5, 1.5, 1.5, 1.5], "since_ms": 1}],
        },
        "recent": {OTHER: {"at_ms": 1, "source": BROKERS[0]}},
        "split_failed": {OTHER: {"at_ms": 1, "code": "SingleTopic"}},
        "recent_splits": {
            OTHER: {
                "split": {
                    "parent": OTHER,
                    "children": [bundle_name(1)],
                    "shares": [[0.5, 0.5, 0.5, 0.5]],
                    "topics": [0.5],
                },
                "at_ms": 1,
            }
        },
        "effects": {
            "open": [_EFFECT | {"source_after": 0.5, "target_after": 0.3}],
            "judged": [
                _PAIR
                | {"bundles": [OTHER], "at_ms": 1, "begun_ms": 1, "predicted": 1.5, "realised": 1.5, "word": "good"}
            ],
            "pairs": [_PAIR | {"useless": 1, "at_ms": 1, "until_ms": 1}],
            "reverted": [[OTHER, 1]],
        },
        "external_moves": {"undone": [[OTHER, 1]], "rest_until_ms": 1},
    },
    "report": {"cycle": 1, "wall_ms": 1, "sentence": "s", "code": "c", "planned": 1, "seconds": {"total": 1.5}},
    "tasks": [{"task": "r1", "state": "running", "left_ms": 1}],
    "realised": {"buckets": [{"at_ms": 1, "seconds": 1.5, "weighted": 1.5, "moves": 1}], "last_ms": 1},
}
_MOVES: Final = [
    {
        "bundle": bundle_name(1),
        "source": BROKERS[0],
        "destination": BROKERS[1],
        "outcome": "done",
        "wall_ms": 1,
        "started_ms": 1,
        "landed_ms": 1,
        "landed_on": BROKERS[1],
        "seconds": 1.5,
        "epoch": 9,
    }
]
_ADOPTED: Final = {
    "digest": "d",
    "strategy": "avg",
    "values": {"overloaded_threshold_percent": 80.0},
    "instead_of": {},
    "since_ms": 1,
    "compared_ms": 1,
    "trial_seconds": 1.5,
    "imbalance_high": 1.5,
    "moves_high": 1.5,
}
_DESIRED: Final = {
    "mode": "act",
    "mode_ms": 1,
    "pause": _REQUEST | {"until_ms": 1},
    "person_reverted_ms": 1,
    "pauses": {"tenant:t": _REQUEST | {"until_ms": 1}},
    "pinned": {OTHER: _REQUEST | {"until_ms": 1}},
    "excluded": {"t/ns": _REQUEST | {"until_ms": 1}},
    **{name: {BROKERS[0]: _REQUEST} for name in ("cordons", "drains", "warms", "stops")},
    "adopted": _ADOPTED,
    "reverted": {"d": {"values": {"move_price": 1.5}, "by": "a", "reason": "r", "since_ms": 1}},
    "quotas": {"g": _REQUEST | {"members": ["t/ns"], "publish_messages": 1.5, "dispatch_bytes": 1.5}},
}
_INTENT: Final = {
    "id": "1.1",
    "bundle": OTHER,
    "epoch": 0,
    "member": "m",
    "wall_ms": 1,
    "deadline_ms": 2,
    "cycle_id": "1",
}
_HALF: Final = (parse_bundle(OTHER).lower + parse_bundle(OTHER).upper) // 2
_QUOTED: Final = OTHER.replace("/", "%2F")
_HEAD: Final = (1).to_bytes(4, "big")


_FOLDERS: Final = {
    "moves": encode(_MOVES),
    "state/leader": _HEAD + encode(_STATE),
    "state/averages": encode({"bundles": []}),
    "requests": as_json({"kind": "plan", "hash": "a"}),
    "intents": as_json(_INTENT | {"from": "a", "to": "b", "topic": ""}),
    "splits": as_json(_INTENT | {"broker": "b", "rule": "hot", "positions": [5]}),
    "quotas/held": encode({"rows": []}),
    "quotas/report": _HEAD + encode({}),
}
DOCUMENTS: Final[dict[str, Kind]] = {
    **{f"name below {folder}": Kind(_folder_name(folder, node), b"00000012") for folder, node in _FOLDERS.items()},
    "state, in use": Kind(_stored("state/leader/0000", _use_state, head=_HEAD), as_json(_STATE), packed=True),
    "moves, in use": Kind(_stored("moves/00000000", _use_moves), as_json(_MOVES), packed=True),
    "desired, in use": Kind(_stored("desired", _use_desired), as_json(_DESIRED), packed=True),
    "takeover, in use": Kind(
        _stored("takeover", _use_desired),
        as_json(
            {
                "by": "a",
                "reason": "b",
                "wall_ms": 1,
                "overrides": {"k": None},
                "runtime": {"b": {"k": "v"}},
                "namespaces": ["t/ns"],
                "excluded_by_us": ["t/ns"],
                "active": True,
                "ended": {"by": "a", "reason": "r", "wall_ms": 1, "deadman": False},
            }
        ),
    ),
    "request, in use": Kind(
        _stored("requests/req-0", _use_requests),
        as_json({"kind": "move", "bundle": OTHER, "source": BROKERS[0], "target": BROKERS[1], "left_ms": 1, "by": "a"}),
    ),
    "reviews, in use": Kind(
        _stored("reviews", _use_reviews),
        as_json(
            {
                "items": [
                    {
                        "id": "1",
                        "kind": "plan",
                        "title": "t",
                        "body": {"hash": "a"},
                        "by": "a",
                        "reason": "r",
                        "at_ms": 1,
                        "state": "approved",
                        "reviewer": "b",
                        "decided_ms": 2,
                        "task": "r1",
                    }
                ]
            }
        ),
        packed=True,
    ),
    "intent, in use": Kind(
        _stored(f"intents/{_QUOTED}", _use_intents),
        as_json(_INTENT | {"from": BROKERS[0], "to": BROKERS[1], "topic": ""}),
    ),
    "split, in use": Kind(
        _stored(f"splits/{_QUOTED}", _use_intents),
        as_json(_INTENT | {"broker": BROKERS[0], "rule": "hot", "positions": [_HALF]}),
    ),
    "outage, in use": Kind(
        _stored("outage", _use_outage), as_json({"by": "m", "why": "w", "since_ms": 1, "back_ms": 2, "expected": ["b"]})
    ),
    "quotas held, in use": Kind(
        _stored("quotas/held/0000", _use_quotas),
        as_json({"rows": [["persistent://t/n/x", "publish", "g", [5, 5, False, 1], [[5, 5, False, 1]]]]}),
        packed=True,
    ),
    "quotas native, in use": Kind(
        _stored("quotas/native", _use_quotas),
        as_json(
            {
                "groups": {
                    "g": {
                        "original": [1, 1, 1, 1],
                        "attached": {"t/n": ""},
                        "serving": {"brokers": ["b"], "newest": 1, "gone": {"c": 1}},
                    }
                }
            }
        ),
        packed=True,
    ),
}
