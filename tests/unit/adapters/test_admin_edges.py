"""The admin adapter at the edges: permits that end while connecting, and answers that nothing can read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bundlekeel.adapters.admin import AdminOptions, routes, transport
from bundlekeel.core.model.errors import AdminApiError, AdminFault, AdminRefused, LeadershipLost
from bundlekeel.ports import BrokerEndpoint
from tests.support.admin_kit import Kit, unload
from tests.support.contracts.admin import BUNDLE, TOPIC, fill
from tests.support.http_brokers import Answer, HttpBrokers


@pytest.fixture
async def brokers() -> AsyncIterator[HttpBrokers]:
    """Three brokers that behave unless scripted."""
    served = HttpBrokers()
    fill(served.model)
    async with served.serve():
        yield served


@pytest.fixture
async def kit(brokers: HttpBrokers) -> AsyncIterator[Kit]:
    """An adapter over them."""
    made = Kit(brokers, AdminOptions(read_timeout=5))
    yield made
    await made.admin.close()


async def test_the_permit_is_asked_when_the_request_leaves(brokers: HttpBrokers, kit: Kit) -> None:
    """Connecting takes time, and a process may be stopped meanwhile: what is not permitted by then is not sent."""

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
    brokers.always(0, lambda _seen: Answer(status=307, headers={"Location": location}))
    with pytest.raises(AdminApiError):
        await unload(kit, brokers)
    with pytest.raises(AdminApiError):
        await kit.admin.claim(TOPIC, broker_id=brokers.ids[0], permit=kit.permit)


async def test_an_answer_nested_too_deeply(brokers: HttpBrokers, kit: Kit) -> None:
    """JSON that no parser gets to the end of is a fault of the broker, as text and as a reason."""
    deep = b"[" * 200_000
    brokers.always(0, lambda _seen: Answer(status=200, body=deep))
    with pytest.raises(AdminFault):
        await kit.admin.runtime_configuration(brokers.ids[0])
    brokers.always(0, lambda _seen: Answer(status=409, body=deep))
    with pytest.raises(AdminRefused):
        await unload(kit, brokers)


async def test_s02_an_answer_beyond_its_limit_is_not_read_to_its_end(
    brokers: HttpBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how much is read; the same answer at the limit is read."""
    monkeypatch.setattr(routes, "TOPIC_STATS", replace(routes.TOPIC_STATS, max_bytes=20))
    kit = Kit(brokers, AdminOptions())
    try:
        brokers.always(0, lambda _seen: Answer(body=b'{"t/ns": {}}'.ljust(20)))
        assert (await kit.admin.bundle_loads(brokers.ids[0])).names == ()
        brokers.always(0, lambda _seen: Answer(body=b'{"t/ns": {}}'.ljust(21)))
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
        brokers.always(0, lambda _seen, page=page: Answer(body=page.encode()))
        with pytest.raises(AdminFault, match=refused):
            await kit.admin.counters(endpoint)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"t/ns": 5}'])
async def test_statistics_that_are_none(brokers: HttpBrokers, kit: Kit, body: bytes) -> None:
    """A typed error, not an empty broker: nobody may take silence for idleness."""
    brokers.always(0, lambda _seen: Answer(body=body))
    with pytest.raises(AdminFault, match="does not contain topic statistics"):
        await kit.admin.bundle_loads(brokers.ids[0])
