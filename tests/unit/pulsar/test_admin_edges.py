"""The admin adapter at the edges: permits that end while connecting, and answers that nothing can read."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from bundlekeel.model.errors import AdminApiError, AdminFault, AdminRefused, LeadershipLost
from bundlekeel.ports import BrokerEndpoint
from bundlekeel.pulsar import decoding
from bundlekeel.pulsar.admin import AdminOptions, failures, routes, transport
from bundlekeel.pulsar.admin.transport import AdminCall
from bundlekeel.pulsar.formats.broker_metrics import LOOKUP_FAILURES, PageLines
from tests.support.admin_kit import Kit, brokers, kit, unload  # fixtures
from tests.support.contracts.admin import BUNDLE, TOPIC
from tests.support.http_brokers import Answer, HttpBrokers

__all__ = ["brokers", "kit"]


async def test_the_permit_is_asked_when_the_request_leaves(brokers: HttpBrokers, kit: Kit) -> None:
    def over_once_connecting() -> None:
        kit.permit()
        kit.permit.error = LeadershipLost("the deadline passed while connecting")

    with pytest.raises(LeadershipLost):
        await kit.admin.unload(BUNDLE, destination=None, at=brokers.ids[0], permit=over_once_connecting)
    assert brokers.seen == []
    assert kit.telemetry.total("admin_requests_total") == 0, "the broker could be reached"
    kit.permit.error = None
    await unload(kit, brokers, at=1)
    assert len(brokers.seen) == 1


@pytest.mark.parametrize("location", ["http://[", "http://[::1", "//[x]/y"])
async def test_a_location_that_is_no_url(brokers: HttpBrokers, kit: Kit, location: str) -> None:
    """A typed error, for a move and for a lookup."""
    brokers.always(0, lambda _request: Answer(status=307, headers={"Location": location}))
    with pytest.raises(AdminApiError):
        await unload(kit, brokers)
    with pytest.raises(AdminApiError):
        await kit.admin.claim(TOPIC, broker_id=brokers.ids[0], permit=kit.permit)


async def test_an_answer_nested_too_deeply(brokers: HttpBrokers, kit: Kit) -> None:
    """JSON that no parser gets to the end of is a fault of the broker, as text and as a reason."""
    deep = b"[" * 200_000
    brokers.always(0, lambda _request: Answer(status=200, body=deep))
    with pytest.raises(AdminFault):
        await kit.admin.runtime_configuration(brokers.ids[0])
    brokers.always(0, lambda _request: Answer(status=409, body=deep))
    with pytest.raises(AdminRefused):
        await unload(kit, brokers)


async def test_s02_an_answer_beyond_its_limit_is_not_read_to_its_end(
    brokers: HttpBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how much is read; the same answer at the limit is read."""
    monkeypatch.setattr(routes, "TOPIC_STATS", replace(routes.TOPIC_STATS, max_bytes=20))
    kit = Kit(brokers, AdminOptions())
    try:
        brokers.always(0, lambda _request: Answer(body=b'{"t/ns": {}}'.ljust(20)))
        assert (await kit.admin.bundle_loads(brokers.ids[0])).names == ()
        brokers.always(0, lambda _request: Answer(body=b'{"t/ns": {}}'.ljust(21)))
        with pytest.raises(AdminFault, match="more than 20 bytes"):
            await kit.admin.bundle_loads(brokers.ids[0])
    finally:
        await kit.admin.close()


async def test_s02_what_is_held_of_a_page_is_limited(
    brokers: HttpBrokers, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of other metrics do not count."""
    monkeypatch.setattr(transport, "memory_share", lambda parts: 2000)
    endpoint = BrokerEndpoint(broker_id=brokers.ids[0], web_url="")
    row = 'pulsar_in_bytes_total{cluster="c",namespace="t/n",topic="persistent://t/n/topic"} 5\n'
    for counters, refused in ((1, "hold no"), (100, "more than 2000 bytes")):
        page = "process_cpu_seconds_total 3\n" + row * counters + "pulsar_other 5\n" * 1000
        brokers.always(0, lambda _request, page=page: Answer(body=page.encode()))
        with pytest.raises(AdminFault, match=refused):
            await kit.admin.counters(endpoint)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"t/ns": 5}'])
async def test_statistics_that_are_none(brokers: HttpBrokers, kit: Kit, body: bytes) -> None:
    brokers.always(0, lambda _request: Answer(body=body))
    with pytest.raises(AdminFault, match="does not contain topic statistics"):
        await kit.admin.bundle_loads(brokers.ids[0])


async def test_s02_invented_settings_are_refused(brokers: HttpBrokers, kit: Kit) -> None:
    """A broker has about 500 settings. Those of 1,000 brokers are held and compared."""
    for ask in (lambda: kit.admin.runtime_configuration(brokers.ids[0]), kit.admin.dynamic_configuration):
        for count, refused in ((2000, False), (2001, True)):
            body = json.dumps({f"key{number}": number for number in range(count)}).encode()
            for index in range(3):
                brokers.always(index, lambda _request, body=body: Answer(body=body))
            if refused:
                with pytest.raises(AdminFault, match="more than 2000 settings"):
                    await ask()
            else:
                assert (await ask())["key1"] == "1"


async def test_s02_a_small_gzip_answer_lets_the_loop_go_on(brokers: HttpBrokers, kit: Kit) -> None:
    page = b"process_cpu_seconds_total 3\n" + b"\n" * (16 << 20)
    body = gzip.compress(page)
    brokers.always(0, lambda _request: Answer(body=body, headers={"Content-Encoding": "gzip"}))
    turns, pieces = 0, [0]

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    keep = PageLines()

    def counted(piece: bytes) -> bytes:
        assert len(piece) <= transport._PIECE_BYTES
        pieces.append(turns)
        return keep(piece)

    ticks = asyncio.ensure_future(tick())
    call = AdminCall(route=routes.PROMETHEUS, target=routes.PROMETHEUS.path(), keep=counted, gzip=True)
    reply = await kit.admin.http.read(call, at=brokers.ids[0])
    ticks.cancel()
    assert reply.answer.content == b"process_cpu_seconds_total 3\n"
    assert all(later > earlier for earlier, later in pairwise(pieces)) and len(pieces) > 16


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin, broker: admin.runtime_configuration(broker),
        lambda admin, broker: admin.dynamic_configuration(),
        lambda admin, broker: admin.owned_bundles(broker, "c"),
        lambda admin, broker: admin.topics_of_bundle(BUNDLE, broker),
        lambda admin, broker: admin.cpu_load(broker),
        lambda admin, broker: admin.cpu_seconds(broker),
        lambda admin, broker: admin.claim(TOPIC, broker_id=broker, permit=lambda: None),
    ],
)
async def test_s02_no_answer_is_decoded_on_the_loop(
    brokers: HttpBrokers, kit: Kit, monkeypatch: pytest.MonkeyPatch, ask: Any
) -> None:
    """4 MiB with escapes took half a second."""
    body = b'{"topicHashPositions":{}}'
    for index in range(3):
        brokers.always(index, lambda _request: Answer(body=body))
    decoded: list[bytes] = []

    async def noted(decode: Any, data: bytes, **options: Any) -> Any:
        decoded.append(data)
        return await decoding.decoded(decode, data, **options)

    monkeypatch.setattr(failures, "decoded", noted)
    with suppress(AdminFault):
        await ask(kit.admin, brokers.ids[0])
    assert decoded == [body]


async def test_s02_of_failed_lookups_little_is_held(brokers: HttpBrokers, kit: Kit) -> None:
    """One line is enough: a search of 64 MiB held the interpreter for a second."""
    line = b"pulsar_broker_lookup_failures_total{x} 5\n"
    page = b"\n" + b"pulsar_broker_lookup_failures_total{x} \n" * 10_000 + line
    keep = PageLines([LOOKUP_FAILURES], most=1)
    assert len(keep(page) + keep(page) + keep(line)) < 100
    metrics = json.dumps([{"metrics": {"brk_connection_created_total_count": 3}}]).encode()
    replies = {"/metrics/": b"# x\n" + line + page}
    brokers.always(0, lambda current: Answer(body=replies.get(current.target, metrics)))
    assert (await kit.admin.client_signs(brokers.ids[0])).lookups_failed == 5
