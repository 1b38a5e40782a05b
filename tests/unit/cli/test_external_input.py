"""What others wrote: it is read within bounds, or it is set aside by itself. Named by the items of issue H."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest

from bundlekeel.api.audit import SOCKET_OWNER, Audit, AuditTrail
from bundlekeel.cli.client import _decode_json
from bundlekeel.leader.execution.intents import INTENT_SECONDS, MARGIN_SECONDS, MoveOutcome, intent_path, settle_intents
from bundlekeel.leader.execution.move import MovePorts
from bundlekeel.leader.execution.split_intents import settle_splits, split_path
from bundlekeel.leader.state.shared_state import DESIRED, MOVES, STATE
from bundlekeel.model.errors import AdminApiError, AdminFault, StoreError
from bundlekeel.ports import DocumentChange
from bundlekeel.pulsar.admin import AdminOptions, routes
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.wiring.peers import HttpPeers
from tests.support.admin_kit import Kit, brokers, kit, unload  # fixtures
from tests.support.http_brokers import Answer, HttpBrokers
from tests.support.http_server import serving
from tests.support.memory_source import RealClock
from tests.support.split_bench import BUNDLE, Bench
from tests.support.world import FakeCluster, FakeSidecar

__all__ = ["brokers", "kit"]
NIGHTMARE = b'{"pause":' * 500 + b"1" + b"}" * 500


def page(body: bytes, *, status: int = 200, **headers: str) -> Callable[[object], Answer]:
    """One answer of any bytes; underscores in names of headers are hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _seen: Answer(status=status, headers=named, body=body)


# --- 2: an error page ---------------------------------------------------------------------------------------


async def test_h02_an_error_page_is_searched_once(brokers: HttpBrokers, kit: Kit) -> None:
    """Blanks behind an open title made the search cubic: 100 KB of them would not end before this test does."""
    brokers.script(1, page(b"<title>" + b" " * 100_000 + b"x", status=500))
    with pytest.raises(AdminFault) as caught:
        await unload(kit, brokers, at=1)
    assert caught.value.reason == "Status"


async def test_h02_a_title_is_still_the_reason(brokers: HttpBrokers, kit: Kit) -> None:
    """In whatever case, without control characters, of an error page that is read no further than its beginning."""
    body = b"<html><TITLE> Bad\x1b[2J gateway </TITLE>" + b"x" * 5_000_000
    brokers.script(1, page(body, status=502))
    with pytest.raises(AdminFault) as caught:
        await unload(kit, brokers, at=1)
    assert caught.value.reason == "Bad\ufffd[2J gateway"


# --- 3: a broker's words ------------------------------------------------------------------------------------


async def test_h03_a_record_that_cannot_be_encoded_spoils_no_other(brokers: HttpBrokers, kit: Kit) -> None:
    """A lone surrogate in a reason stood in the open chunk of records: nothing was recorded after it."""
    brokers.script(1, page(b'{"reason":"\\ud800 no"}', status=412))
    with pytest.raises(AdminApiError) as caught:
        await unload(kit, brokers, at=1)
    leader = await FakeSidecar(FakeCluster()).lead()
    epoch = leader.shared_state.current_epoch()
    for number, error in enumerate((str(caught.value), "\ud800", "fine")):
        record = _outcome(f"t/n/0x{number:08x}_0xffffffff", error).record()
        await leader.coordination.write_fenced(epoch, leader.shared_state.move_change(record))
    await leader.shared_state._read_moves()
    assert [item["error"].rpartition(" ")[2] for item in leader.shared_state.moves] == ["no", "\ufffd", "fine"]
    "".join(item["error"] for item in leader.shared_state.moves).encode()


@pytest.mark.parametrize("charset", ["base64", "hex", "idna", "utf-16", "unheard-of"])
async def test_h03_the_charset_of_an_answer_means_nothing(brokers: HttpBrokers, kit: Kit, charset: str) -> None:
    """Python would decode by it, and raise what no caller expects: the move's intent stayed for good."""
    brokers.script(1, page(b"busy", status=500, Content_Type=f"text/plain; charset={charset}"))
    with pytest.raises(AdminFault) as caught:
        await unload(kit, brokers, at=1)
    assert caught.value.reason == "busy" and caught.value.outcome_unknown


async def test_h03_an_unreadable_broker_costs_itself_in_a_cycle(brokers: HttpBrokers, kit: Kit) -> None:
    """Settings that cannot be read are those of a broker that did not answer; the others count."""
    brokers.always(0, page(b"\xff", status=500, Content_Type="text/plain; charset=base64"))
    brokers.always(1, page(b'{"a":' * 2000))
    config = BrokerConfig(kit.admin, RealClock())
    await config.refresh(brokers.endpoints())
    assert sorted(config.errors) == sorted(brokers.ids[:2])
    assert config.values(brokers.ids[2]) is not None


# --- 11: bytes of an answer ---------------------------------------------------------------------------------


async def test_h11_no_answer_is_unpacked(brokers: HttpBrokers, kit: Kit) -> None:
    """200 KB of gzip are 200 MB. Nobody asked for an encoding: the answer is unreadable, its outcome unknown."""
    bomb = gzip.compress(b'{"a":"' + b" " * 20_000_000 + b'"}')
    brokers.script(1, page(bomb, Content_Encoding="gzip"))
    tracemalloc.start()
    with pytest.raises(AdminFault, match="encoded as gzip") as caught:
        await kit.admin.runtime_configuration(brokers.ids[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
    assert caught.value.outcome_unknown
    assert {seen.headers["accept-encoding"] for seen in brokers.seen} == {"identity"}


async def test_h11_a_compressed_page_is_read_up_to_the_limit(
    brokers: HttpBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit applies to the decompressed bytes. A page that is cut or not gzip is an error, never a part."""
    monkeypatch.setattr(routes, "PROMETHEUS", replace(routes.PROMETHEUS, max_bytes=1_000_000))
    admin = Kit(brokers, AdminOptions()).admin
    owner = brokers.endpoints()[brokers.ids[1]]
    brokers.model.counted[owner.broker_id] = {}
    body = b"# a comment\n" * 50_000 + b"process_cpu_seconds_total 2.5\n"
    packed = gzip.compress(body)
    brokers.script(1, page(packed, Content_Encoding="gzip"))
    (found,) = await admin.counters(owner)
    assert found.cpu_seconds == 2.5
    assert brokers.seen[-1].headers["accept-encoding"] == "gzip"
    for answer in (gzip.compress(body * 100), packed[:-9], body):
        brokers.script(1, page(answer, Content_Encoding="gzip"))
        tracemalloc.start()
        with pytest.raises(AdminApiError):
            await admin.counters(owner)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5_000_000
    await admin.close()


@pytest.mark.parametrize("packed", [False, True])
async def test_h11_another_sidecar_has_a_limit_too(packed: bool) -> None:
    """An answer beyond it, or packed, is that of no sidecar."""
    plan = b'{"hash":"' + b"0" * 40_000_000 + b'","expires_ms":1,"moves":[]}'

    class Endless(BaseHTTPRequestHandler):
        """Answers with more than anybody needs."""

        def do_GET(self) -> None:
            """The same to every question."""
            body = gzip.compress(plan, 1) if packed else plan
            self.send_response(200)
            if packed:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with serving(Endless) as port:
        peers = HttpPeers()
        with pytest.raises(StoreError, match="did not answer"):
            await peers.plan(f"http://127.0.0.1:{port}", "abc")
        await peers.close()


# --- 10: documents under our root ---------------------------------------------------------------------------


async def _put(sidecar: FakeSidecar, path: str, data: bytes) -> None:
    before = await sidecar.coordination.read(path)
    await sidecar.coordination.write_shared(path, data, version=before.version if before else None)


@pytest.mark.parametrize(
    "data",
    [
        zlib.compress(NIGHTMARE),
        zlib.compress(b'{"later":' + b"[" * 2000 + b"]" * 2000 + b"}"),
        zlib.compress(b'{"mode":"' + b" " * 40_000_000 + b'"}'),
        zlib.compress(b'{"mode":"act"}')[:-3],
        b"\xff",
    ],
    ids=["deep", "deeper", "bomb", "torn", "bytes"],
)
async def test_h10_requests_nobody_can_read_are_a_pause(data: bytes) -> None:
    """It may be an emergency stop."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await _put(sidecar, DESIRED, data)
    await sidecar.shared_state.refresh()
    assert sidecar.shared_state.desired.pause is not None
    assert list(sidecar.shared_state.unreadable[DESIRED]) == [DESIRED]


@pytest.mark.parametrize(
    "records", [b"garbage", *(zlib.compress(text) for text in (b"[1, 2]", b"[{}]", b'[{"bundle": 7}]', b'{"a": 1}'))]
)
async def test_h10_records_that_are_none_keep_nobody_from_leading(records: bytes) -> None:
    """They are left out, and a new chunk begins behind them."""
    cluster = FakeCluster()
    first = await FakeSidecar(cluster, "a").lead()
    epoch = first.shared_state.current_epoch()
    await first.coordination.write_fenced(epoch, first.shared_state.move_change(_outcome(BUNDLE, "").record()))
    await first.shared_state.save(first.shared_state.cycle_state(), {}, epoch=first.shared_state.current_epoch())
    await _put(first, f"{MOVES}/00000000", records)
    cluster.store.expire(first.coordination)
    second = await FakeSidecar(cluster, "b").lead()
    second.shared_state.taken_over()
    assert second.shared_state.leading and list(second.shared_state.moves) == []
    assert list(second.shared_state.unreadable[MOVES]) == [f"{MOVES}/00000000"]
    change = second.shared_state.move_change(_outcome(BUNDLE, "").record())
    assert change[0].path == f"{MOVES}/00000001"


async def test_h10_the_leaders_state_inflates_within_a_limit() -> None:
    """A node of 40 KB that is 80 MB: what was known before stays, and a term still begins."""
    cluster = FakeCluster()
    first = await FakeSidecar(cluster, "a").lead()
    await first.shared_state.save(first.shared_state.cycle_state(), {}, epoch=first.shared_state.current_epoch())
    bomb = (1).to_bytes(4, "big") + zlib.compress(b'{"report":{"x":"' + b" " * 80_000_000 + b'"}}')
    await _put(first, f"{STATE}/0000", bomb)
    cluster.store.expire(first.coordination)
    second = FakeSidecar(cluster, "b")
    tracemalloc.start()
    await second.lead()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Pieces and their sum, 8 MiB each.
    assert peak < 20_000_000 and second.shared_state.leading
    assert list(second.shared_state.unreadable[STATE]) == [STATE]


@pytest.mark.parametrize(
    "data",
    [
        b'{"kind":"plan","reason":"\xff"}',
        b'{"moves":[1,2,3]}',
        b'{"request":' + b"[" * 3000,
        b'{"left_ms":' + b"9" * 400 + b"}",
        b"\xff\xfe",
    ],
)
async def test_h10_one_bad_request_does_not_hold_up_the_others(data: bytes) -> None:
    """It is taken with what can be read of it, or with nothing; the next one is taken too."""
    leader = await FakeSidecar(FakeCluster()).lead()
    await leader.coordination.create_sequential("requests/req-", data)
    await leader.shared_state.leave_request({"hash": "abc"})
    taken = await leader.shared_state.take_requests()
    assert [body.get("hash", "") for _, body in taken] == ["", "abc"]
    "".join(str(body) for _, body in taken).encode()


@pytest.mark.parametrize("when", ["9" * 400, "1" + "0" * 15, "-5", '"soon"'])
async def test_h10_an_intents_times_are_bounded(when: str) -> None:
    """400 digits kept everybody from leading; the bundle is left alone for the usual time, and is free then."""
    bench = await Bench().lead()
    record = {"id": "1.1", "bundle": BUNDLE, "from": "a", "to": "b", "epoch": 1, "member": "m", "wall_ms": 1}
    record |= {"deadline_ms": "WHEN", "cycle_id": "", "topic": ""}
    data = json.dumps(record).replace('"WHEN"', when).encode()
    await bench.world.coordination.write_fenced(1, [DocumentChange(path=intent_path(BUNDLE), data=data, create=True)])
    world, seen = await _successor(bench), dict[str, float]()
    first = await _settled(world, seen)
    assert (first.frozen, list(first.unreadable)) == (frozenset({BUNDLE}), [intent_path(BUNDLE)])
    bench.clock.now += INTENT_SECONDS + MARGIN_SECONDS + 1
    assert [item.outcome for item in (await _settled(world, seen)).settled] == ["unknown"]


@pytest.mark.parametrize("name", ["%2E%2E", "%2F", "%00", "x"])
async def test_h10_an_intent_of_no_bundle_is_left_where_it_is(name: str) -> None:
    """Nothing is asked of the store by such a name, and nothing frozen."""
    bench = await Bench().lead()
    await bench.world.coordination.write_fenced(1, [DocumentChange(path=f"intents/{name}", data=b"{}", create=True)])
    await bench.world.coordination.write_fenced(1, [DocumentChange(path=f"splits/{name}", data=b"{}", create=True)])
    world = await _successor(bench)
    bench.clock.now += 10_000
    found = await _settled(world, {})
    assert (found.frozen, found.settled, list(found.unreadable)) == (frozenset(), (), [f"intents/{name}"])
    assert list((await settle_splits(world, epoch=2, first_seen={}))[2]) == [f"splits/{name}"]


@pytest.mark.parametrize("positions", ["[0]", "[99999999999]", "[5, 3]", '["a"]', "[1e400]"])
async def test_h10_a_splits_positions_lie_inside_its_bundle(positions: str) -> None:
    """Others ended every attempt to lead with a ValueError."""
    bench = await Bench().lead()
    record = {"id": "1.1", "bundle": BUNDLE, "broker": "a", "rule": "r", "epoch": 1, "member": "m", "cycle_id": ""}
    record |= {"wall_ms": 1, "deadline_ms": 2, "positions": "HERE"}
    data = json.dumps(record).replace('"HERE"', positions).encode()
    await bench.world.coordination.write_fenced(1, [DocumentChange(path=split_path(BUNDLE), data=data, create=True)])
    frozen, settled, unreadable = await settle_splits(await _successor(bench), epoch=2, first_seen={})
    assert (frozen, settled, list(unreadable)) == (frozenset({BUNDLE}), [], [split_path(BUNDLE)])


# --- 13: terminals ------------------------------------------------------------------------------------------


async def test_h13_no_record_of_the_journal_holds_an_escape() -> None:
    """The path is decoded before it is written down: `%1b[2J` would clear the terminal of who reads it."""
    records: list[Any] = []

    async def refused(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"by":"ops\\u001b[2J","reason":"\\u009b2J\\u0007"}'}

    async def send(_message: Any) -> None:
        return None

    trail = AuditTrail(record=records.append, wall_ms=lambda: 1, boot=lambda: 1.0)
    audit = Audit(trail, unnamed=SOCKET_OWNER)
    scope = {"type": "http", "method": "POST", "path": "/api/v1/\x1b]0;x\x07\x9b", "client": None}
    await audit.signed(refused, scope, receive, send)
    texts = [value for value in records[0].values() if isinstance(value, str)]
    assert all(text.isprintable() for text in texts)
    assert records[0]["by"] == "ops\ufffd[2J"


async def _successor(bench: Bench) -> MovePorts:
    """The ports of who leads epoch 2."""
    return replace(bench.world, coordination=await bench.depose())


def _outcome(bundle: str, error: str) -> MoveOutcome:
    return MoveOutcome(bundle=bundle, source="a", destination="b", outcome="refused", error=error)


async def _settled(ports: MovePorts, seen: dict[str, float]) -> Any:
    return await settle_intents(ports.coordination, ports.ownership, epoch=2, clock=ports.clock, first_seen=seen)


def test_h13_what_the_command_line_prints_holds_no_escape() -> None:
    """Records written before, or by another release, are cleaned where they are read; line feeds stay."""
    answer = httpx.Response(200, content=b'[{"what":"PUT /\\u001b[2J\\u009b1m","detail":"one\\ntwo"}]')
    assert _decode_json(answer) == [{"what": "PUT /\ufffd[2J\ufffd1m", "detail": "one\ntwo"}]
