"""Documents of our own whose values have the right type but are out of range are unreadable, as others are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bundlekeel.leader.execution.intents import decode_intent
from bundlekeel.leader.execution.split_intents import decode_split
from bundlekeel.leader.gate.outage import OutageRecord
from bundlekeel.leader.gate.outage import _decode as decode_notice
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.documents import (
    AveragesPart,
    Desired,
    LeaderState,
    decode,
    decode_moves,
    decode_request,
    decode_state,
    encode,
)
from bundlekeel.leader.state.shared_state import DESIRED, MOVES, STATE
from bundlekeel.leader.state.takeover_record import TAKEOVER, TakeoverRecord, decode_look, decode_takeover
from bundlekeel.model.errors import CodecError
from bundlekeel.ports import Document
from tests.support.world import FakeCluster, FakeSidecar

FAR = 10**17
BUNDLE = "t/n/0x00000000_0xffffffff"
MOVE = {"bundle": BUNDLE, "source": "a", "destination": "b", "outcome": "done", "wall_ms": 1, "started_ms": 1}
MOVE |= {"landed_ms": 1, "landed_on": "b", "seconds": 1.5, "epoch": 1}
REQUEST = {"by": "a", "reason": "r", "since_ms": 1}


def state(**fields: Any) -> LeaderState:
    own = {name: fields.pop(name) for name in ("epoch", "wall_ms", "report", "tasks") if name in fields}
    data = (1).to_bytes(4, "big") + encode({"epoch": 1, **own, "cycle_state": {"cycle": 2, **fields}})
    return decode_state([Document(path="state/0000", data=data, version=0)], what="state")


EXTERNAL = {"undone": [[BUNDLE, 5]], "rest_until_ms": 5}
SPLIT = {"parent": BUNDLE, "children": ["a", "b"], "shares": [[1.5] * 4] * 2, "topics": [0.5, 0.5]}
LEDGER = {"opened_ms": 1, "bundle": BUNDLE, "source": "a", "target": "b", "traffic": [1, 1, 1, 1], "pressure": [1] * 6}


def test_s06_what_we_store_is_in_range() -> None:
    leader_state = state(
        external_moves=EXTERNAL, recent={BUNDLE: {"at_ms": 5, "source": "a"}}, ledger={"entries": [LEDGER]}
    )
    assert leader_state.cycle_state.external_moves.rest_until_ms == 5
    assert leader_state.cycle_state.ledger.entries[0].opened_ms == 1
    assert decode_moves(encode([MOVE]), what="m")
    pin = REQUEST | {"until_ms": 1}
    pinned = decode(encode({"pinned": {BUNDLE: pin}, "excluded": {"t/n": REQUEST}}), Desired).pinned
    assert msgspec.to_builtins(pinned) == {BUNDLE: pin}


@pytest.mark.parametrize("wrong", [FAR, -5, 2**63])
@pytest.mark.parametrize(
    "fields",
    [
        lambda wrong: {"epoch": wrong},
        lambda wrong: {"cycle": wrong},
        lambda wrong: {"wall_ms": wrong},
        lambda wrong: {"completed_ms": wrong},
        lambda wrong: {"external_moves": EXTERNAL | {"rest_until_ms": wrong}},
        lambda wrong: {"external_moves": EXTERNAL | {"undone": [[BUNDLE, wrong]]}},
        lambda wrong: {"recent": {BUNDLE: {"at_ms": wrong, "source": "a"}}},
        lambda wrong: {"ledger": {"entries": [LEDGER | {"opened_ms": wrong}]}},
        lambda wrong: {"ledger": {"entries": [LEDGER | {"pressure": [wrong % 2] * 5}]}},
        lambda wrong: {"ledger": {"baselines": [{"broker": "b", "usage": [wrong % 2], "since_ms": 1}]}},
        lambda wrong: {"memory": {"costs": {"brokers": {"b": {"near": [wrong % 2]}}}}},
        lambda wrong: {"recent_splits": {BUNDLE: {"split": SPLIT | {"topics": [wrong % 2] * 3}, "at_ms": 1}}},
        lambda wrong: {"report": {"wall_ms": wrong}},
        lambda wrong: {"tasks": [{"task": "r1", "state": "done", "wall_ms": wrong}]},
    ],
)
def test_s06_a_state_out_of_range_is_unreadable(fields: Any, wrong: int) -> None:
    with pytest.raises(CodecError):
        state(**fields(wrong))


@pytest.mark.parametrize("wrong", [FAR, -5])
def test_s06_other_documents_out_of_range_are_unreadable(wrong: int) -> None:
    pause = REQUEST | {"until_ms": wrong}
    takeover = {"by": "a", "reason": "r", "wall_ms": 1, "overrides": {}, "runtime": {}, "active": False}
    takeover |= {"namespaces": [], "excluded_by_us": [], "ended": None}
    ended = {"by": "a", "reason": "r", "wall_ms": wrong, "deadman": False}
    intent = {"id": "1.1", "bundle": BUNDLE, "from": "a", "to": "b", "epoch": 1, "member": "m", "cycle_id": "1"}
    intent |= {"wall_ms": wrong, "deadline_ms": wrong + 1, "topic": ""}
    split = {"id": "1.1", "bundle": BUNDLE, "broker": "a", "positions": [5], "epoch": 1, "member": "m", "cycle_id": "1"}
    split |= {"wall_ms": wrong, "deadline_ms": wrong + 1}
    path = "intents/" + BUNDLE.replace("/", "%2F")
    readers = [
        lambda: decode(encode({"pause": pause}), Desired),
        lambda: decode(encode({"pauses": {"tenant:t": pause}}), Desired),
        lambda: decode(encode({"pinned": {BUNDLE: pause}}), Desired),
        lambda: decode(encode({"excluded": {"t/n": pause}}), Desired),
        lambda: decode(encode({"cordons": {"b:1": REQUEST | {"since_ms": wrong}}}), Desired),
        lambda: decode(encode({"mode_ms": wrong}), Desired),
        lambda: decode_moves(encode([MOVE | {"landed_ms": wrong}]), what="m"),
        lambda: decode_moves(encode([MOVE | {"epoch": wrong}]), what="m"),
        lambda: decode_request(json.dumps({"left_ms": wrong}).encode(), what="r"),
        lambda: decode(encode({"bundles": [], "wall_ms": wrong}), AveragesPart),
        lambda: decode_takeover(json.dumps(takeover | {"wall_ms": wrong}).encode()),
        lambda: decode_takeover(json.dumps(takeover | {"ended": ended}).encode()),
        lambda: decode_intent(Document(path=path, data=json.dumps(intent).encode(), version=0)),
        lambda: decode_split(Document(path=path, data=json.dumps(split).encode(), version=0), BUNDLE),
    ]
    for reader in readers:
        with pytest.raises(CodecError):
            reader()
    assert decode_look(Document(path="failsafe", data=json.dumps({"wall_ms": wrong}).encode(), version=0)) == 0
    assert decode_notice(msgspec.json.encode(OutageRecord(since_ms=wrong))) is None


@pytest.mark.parametrize("epoch", [None, "2", [2], {}])
async def test_s06_a_move_without_a_term_is_set_aside(epoch: Any) -> None:
    """A new leader compares the terms of moves with that of the ledger: each of its terms began with an error."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    nodes, term = sidecar.cluster.store.nodes, sidecar.shared_state.current_epoch()
    await sidecar.shared_state.save(CycleState(cycle=1), {}, epoch=term)
    data = (1).to_bytes(4, "big") + encode({"epoch": term, "wall_ms": 5, "ledger": {"entries": [LEDGER]}})
    nodes[f"{STATE}/0000"].data = data
    record = MOVE | {"epoch": epoch} if epoch is not None else {k: v for k, v in MOVE.items() if k != "epoch"}
    await sidecar.coordination.write_shared(f"{MOVES}/00000000", encode([record]), version=None)
    await sidecar.shared_state.begin_term(term)
    assert not sidecar.shared_state.taken_over().ledger.entries
    assert sidecar.shared_state.unreadable[MOVES]


@pytest.mark.parametrize("fields", [{"left_ms": "5"}, {"override_cool_down": "true"}, {"unload": 1}])
async def test_s06_a_request_with_numbers_as_texts_is_set_aside(fields: Any) -> None:
    """The list of tasks expects numbers: with such a request it ended with an error, for all tasks."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.coordination.create_sequential("requests/req-", json.dumps({"kind": "plan"} | fields).encode())
    assert [task.state for task in await sidecar.service.tasks()] == ["waiting"]
    assert sidecar.shared_state.unreadable["requests"]


async def test_s06_a_rest_of_ages_is_set_aside_and_not_stored_again() -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    epoch = sidecar.shared_state.current_epoch()
    await sidecar.shared_state.save(CycleState(cycle=1), {}, epoch=epoch)
    bad = encode({"epoch": epoch, "cycle_state": {"external_moves": EXTERNAL | {"rest_until_ms": FAR}}})
    sidecar.cluster.store.nodes[f"{STATE}/0000"].data = (1).to_bytes(4, "big") + bad
    await sidecar.shared_state.begin_term(epoch)
    assert STATE in sidecar.shared_state.unreadable[STATE]
    assert sidecar.shared_state.cycle_state().external_moves.rest_until_ms == 0


async def test_s06_a_takeover_of_ages_is_set_aside() -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    record = TakeoverRecord(by="a", reason="r", wall_ms=FAR, overrides={}, runtime={})
    await sidecar.coordination.write_shared(TAKEOVER, record.encode(), version=None)
    await sidecar.coordination.write_shared(DESIRED, encode(Desired(mode_ms=FAR)), version=None)
    await sidecar.shared_state.refresh()
    assert sidecar.shared_state.takeover is None
    assert sidecar.shared_state.unreadable[TAKEOVER]
    assert sidecar.shared_state.desired.pause is not None, "as any desired state that cannot be read"
