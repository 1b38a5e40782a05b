"""The admin adapter against misbehaving servers: requests, their targets, and the error of each failure."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bundlekeel.model.errors import (
    AdminApiError,
    AdminFault,
    AdminRefused,
    AdminTimeout,
    AdminUnauthorized,
    AdminUnreachable,
    ConnectionRefused,
    LeadershipLost,
    RedirectLoop,
    UnknownHostRedirect,
)
from bundlekeel.ports import BrokerEndpoint
from bundlekeel.ports.commands import by_person
from bundlekeel.pulsar.admin import AdminOptions, AdminTls, HttpBrokerAdmin
from bundlekeel.pulsar.admin.hosts import InsecureRedirect
from bundlekeel.pulsar.admin.routes import AdminRoute
from bundlekeel.pulsar.admin.transport import AdminCall, AdminHttp
from bundlekeel.settings.token_source import TokenSource
from tests.support.admin_kit import Kit, brokers, kit, redirect, self_signed, unload  # brokers, kit: fixtures
from tests.support.contracts.admin import BUNDLE, OTHER, TOPIC, Recorder
from tests.support.http_brokers import Answer, HttpBrokers, Seen, answer
from tests.support.memory_source import RealClock

__all__ = ["brokers", "kit"]
TRACE = (
    "\n --- An unexpected error occurred in the server ---\n\nMessage: Failed to unload\n\nStacktrace:\n\n"
    "java.lang.RuntimeException: secret internals\n\tat org.apache.pulsar.broker.Foo.bar(Foo.java:1)\n"
)
FAST = AdminOptions(connect_timeout=0.5, read_timeout=0.3, query_timeout=0.3)


@pytest.fixture
async def make(brokers: HttpBrokers) -> AsyncIterator[Callable[..., Kit]]:
    """Build adapters over the brokers; closed afterwards, their counters compared with the wire."""
    kits: list[Kit] = []

    def build(token: TokenSource | None = None, options: AdminOptions | None = None) -> Kit:
        kits.append(Kit(brokers, options or AdminOptions(read_timeout=5), token))
        return kits[-1]

    yield build
    for one in kits:
        await one.admin.close()
    counted = sum(one.telemetry.total("admin_requests_total") for one in kits)
    unsent = sum(one.telemetry.total("admin_requests_total", code="unreachable") for one in kits)
    assert counted - unsent == len(brokers.seen), "every request on the wire is counted, and what was not sent apart"
    assert sum(len(one.telemetry.timed) for one in kits) == len(brokers.seen), "and only those have a time"


async def test_a_redirect_keeps_method_query_and_token(brokers: HttpBrokers, make: Callable[..., Kit]) -> None:
    """Each hop is a PUT with the broker's own query and our token."""
    kit = make(TokenSource("canary"))
    await kit.admin.unload(BUNDLE, destination=brokers.ids[2], at=brokers.ids[2], permit=kit.permit)
    assert [request.method for request in brokers.seen] == ["PUT"] * 3
    assert [request.headers["authorization"] for request in brokers.seen] == ["Bearer canary"] * 3
    assert [request.query for request in brokers.seen] == [
        {"destinationBroker": brokers.ids[2]},
        {"destinationBroker": brokers.ids[2], "authoritative": "false"},
        {"authoritative": "true"},
    ]
    assert kit.permit.asked == 6, "before connecting, and again right before each request leaves"
    assert kit.telemetry.total("admin_requests_total", code="307", method="PUT") == 2
    assert len(kit.telemetry.timed) == 3


async def test_counters_of_a_broker_that_left_the_registry_are_read_without_the_token(
    brokers: HttpBrokers, make: Callable[..., Kit]
) -> None:
    """Another process may have its address by then. Redirects are not followed, and no other request is sent there."""
    kit, (first, *others) = make(TokenSource("canary")), brokers.ids
    left = brokers.endpoints()[first]
    kit.admin.set_endpoints({name: endpoint for name, endpoint in brokers.endpoints().items() if name in others})
    brokers.script(0, lambda _request: Answer(body=b"process_cpu_seconds_total 3\n"), redirect(f"http://{others[0]}"))
    (reading,) = await kit.admin.counters(left)
    assert reading.cpu_seconds == 3
    with pytest.raises(AdminApiError):
        await kit.admin.counters(left)
    with pytest.raises(AdminUnreachable, match="not registered"):
        await kit.admin.cpu_seconds(first)
    assert [(request.target, "authorization" in request.headers) for request in brokers.seen] == [
        ("/metrics/", False),
        ("/metrics/", False),
    ]


SEGMENTS = {
    "controllerBroker": "b:1",
    "layout": {
        "epoch": 0,
        "segments": {
            "0": {"name": "segment://t1/seg/a b/0000-7fff-0", "state": "ACTIVE", "ownerBroker": "b:2"},
            "1": {"name": "segment://t1/seg/a b/8000-ffff-1", "state": "ACTIVE", "ownerBroker": None},
            "2": {"name": "segment://t1/seg/a b/c/8000-ffff-1", "state": "SEALED", "ownerBroker": "http://b:3"},
        },
    },
}


async def test_a_claim_of_a_segment_is_a_read_of_its_topic_at_the_controller(brokers: HttpBrokers, kit: Kit) -> None:
    """Any broker redirects to the controller. It looks up all segments, so the request needs a permit."""
    brokers.script(0, redirect(f"http://{brokers.ids[1]}"))
    brokers.script(1, lambda _request: Answer(body=json.dumps(SEGMENTS).encode()))
    name = "segment://t1/seg/a b/0000-7fff-0"
    assert await kit.admin.claim(name, broker_id=brokers.ids[0], permit=kit.permit) == "b:2"
    assert [request.target for request in brokers.seen] == ["/admin/v2/scalable/t1/seg/a%20b/stats"] * 2
    assert kit.permit.asked == 4, "before connecting, and again right before each request leaves"


@pytest.mark.parametrize(
    "body", [b"{}", b'{"layout":5}', b'{"layout":{"segments":{"0":5,"1":{"name":5}}}}', json.dumps(SEGMENTS).encode()]
)
async def test_a_segment_without_owner(brokers: HttpBrokers, kit: Kit, body: bytes) -> None:
    brokers.always(0, lambda _request: Answer(body=body))
    with pytest.raises(AdminFault, match="names no owner of segment://t1/seg/a b/8000-ffff-1"):
        await kit.admin.claim("segment://t1/seg/a b/8000-ffff-1", broker_id=brokers.ids[0], permit=kit.permit)


async def test_a_name_that_is_not_a_segment_is_not_claimed(brokers: HttpBrokers, kit: Kit) -> None:
    with pytest.raises(AdminRefused, match="is not the name of a segment"):
        await kit.admin.claim("segment://t1/seg/a", broker_id=brokers.ids[0], permit=kit.permit)
    assert brokers.seen == []


async def test_a_redirect_keeps_the_body(brokers: HttpBrokers) -> None:
    """A body reaches the last hop unchanged."""
    telemetry = Recorder()
    http = AdminHttp(telemetry=telemetry, clock=RealClock(), options=AdminOptions(read_timeout=5))
    kit = Kit(brokers, AdminOptions())
    http.hosts = kit.admin.http.hosts
    brokers.script(0, redirect(f"http://{brokers.ids[1]}"))
    brokers.script(1, answer(204))
    route = AdminRoute(method="PUT", template="/admin/v2/namespaces/{tenant}/{namespace}/{range}/split")
    reply = await http.follow(
        AdminCall(route=route, target="/x/split?unload=false", content=b"[1,2]", permit=by_person), at=brokers.ids[0]
    )
    await http.close()
    await kit.admin.close()
    assert reply.hops == (brokers.ids[0], brokers.ids[1])
    assert [(s.method, s.target, s.body) for s in brokers.seen] == [("PUT", "/x/split?unload=false", b"[1,2]")] * 2


@pytest.mark.parametrize("ring", [(0,), (0, 1), (0, 1, 2)], ids=["loop", "ping-pong", "circle"])
async def test_loops_end(brokers: HttpBrokers, make: Callable[..., Kit], ring: tuple[int, ...]) -> None:
    for here, there in zip(ring, ring[1:] + ring[:1], strict=True):
        brokers.always(here, redirect(f"http://{brokers.ids[there]}"))
    with pytest.raises(RedirectLoop):
        await unload(make(), brokers)
    assert len(brokers.seen) == len(ring)


async def test_endless_redirects_end(brokers: HttpBrokers, make: Callable[..., Kit]) -> None:
    """Redirects to ever new queries end after five."""

    def onwards(request: Seen) -> Answer:
        target = f"http://{brokers.ids[0]}{request.path}?n={len(brokers.seen)}"
        return Answer(status=307, headers={"Location": target})

    brokers.always(0, onwards)
    with pytest.raises(RedirectLoop):
        await unload(make(), brokers)
    assert len(brokers.seen) == 6


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1{target}",
        "http://evil.example{target}",
        "//evil.example{target}",
        "ftp://{first}{target}",
        "http://{first}@evil.example{target}",
        "http://user:pw@{first}{target}",
        "http://{first}/admin/v2/brokers/shutdown",
        "http://{first}{target}/../../../../brokers/shutdown",
    ],
)
async def test_foreign_redirects_are_not_followed(
    brokers: HttpBrokers, make: Callable[..., Kit], location: str
) -> None:
    """A redirect to anything but the same path at a known broker ends the call; no further request leaves."""
    brokers.script(
        1,
        lambda current: Answer(
            status=307, headers={"Location": location.format(target=current.target, first=brokers.ids[0])}
        ),
    )
    with pytest.raises(UnknownHostRedirect):
        await unload(make(TokenSource("canary")), brokers, at=1)
    assert len(brokers.seen) == 1


async def test_a_broker_that_left_is_foreign(brokers: HttpBrokers, make: Callable[..., Kit]) -> None:
    """Hosts are those registered now, not those ever seen."""
    kit = make()
    endpoints = brokers.endpoints()
    del endpoints[brokers.ids[1]]
    kit.admin.set_endpoints(endpoints)
    with pytest.raises(UnknownHostRedirect):
        await unload(kit, brokers)
    assert [request.broker for request in brokers.seen] == [brokers.ids[0]]


async def test_https_to_http_is_refused(tmp_path: Path) -> None:
    """A TLS broker that redirects to plain text gets no second request; verification uses the given CA only."""
    cert, context = self_signed(tmp_path)
    brokers = HttpBrokers(2)
    brokers.script(0, redirect(f"http://{brokers.ids[1]}"))
    endpoints = {
        brokers.ids[0]: BrokerEndpoint(broker_id=brokers.ids[0], web_url="", web_url_tls=f"https://{brokers.ids[0]}"),
        brokers.ids[1]: brokers.endpoints()[brokers.ids[1]],
    }

    counts = Recorder()

    def build(tls: AdminTls, telemetry: Recorder) -> HttpBrokerAdmin:
        admin = HttpBrokerAdmin(telemetry=telemetry, clock=RealClock(), tls=tls)
        admin.set_endpoints(endpoints)
        return admin

    trusting, strict = build(AdminTls(trust_certs=cert), Recorder()), build(AdminTls(), counts)
    async with brokers.serve(tls={0: context}):
        with pytest.raises(InsecureRedirect):
            await trusting.unload(BUNDLE, destination=None, at=brokers.ids[0], permit=by_person)
        with pytest.raises(AdminUnreachable):
            await strict.unload(BUNDLE, destination=None, at=brokers.ids[0], permit=by_person)
        await trusting.close()
        await strict.close()
    assert [request.broker for request in brokers.seen] == [brokers.ids[0]]
    assert counts.total("admin_requests_total", code="unreachable", method="PUT") == 1, "its handshake failed"


async def test_permit_is_asked_before_each_hop(brokers: HttpBrokers, make: Callable[..., Kit]) -> None:
    """Leadership lost between two hops stops the chain there."""
    kit = make()

    def lose(request: Seen) -> Answer:
        kit.permit.error = LeadershipLost("over")
        return redirect(f"http://{brokers.ids[1]}")(request)

    brokers.script(0, lose)
    with pytest.raises(LeadershipLost):
        await unload(kit, brokers)
    assert [request.broker for request in brokers.seen] == [brokers.ids[0]]


async def test_a_rotated_token_is_picked_up_after_401(
    brokers: HttpBrokers, make: Callable[..., Kit], tmp_path: Path
) -> None:
    """After one 401 the file is read again and the request repeated once, with the new token."""
    file = tmp_path / "token"
    file.write_text("old-one\n")
    source = TokenSource(file=file)

    def rotate(_request: Seen) -> Answer:
        stamp = file.stat()
        file.write_text("new-one\n")
        _set_mtime(file, stamp.st_mtime_ns)
        return Answer(status=401)

    brokers.script(1, rotate)
    await unload(make(source), brokers, at=1)
    assert [request.headers["authorization"] for request in brokers.seen] == ["Bearer old-one", "Bearer new-one"]


def _set_mtime(file: Path, mtime_ns: int) -> None:
    """Same inode, size and mtime: only the 401 tells that the content differs."""
    os.utime(file, ns=(mtime_ns, mtime_ns))


async def test_a_changed_token_file_is_read_without_a_401(
    brokers: HttpBrokers, make: Callable[..., Kit], tmp_path: Path
) -> None:
    """A rotation as kubelet does it (a symlink renamed) is seen by the next request."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
    link = tmp_path / "data"
    link.symlink_to("first")
    kit = make(TokenSource.parse(f"file:{link}/token"))
    await kit.admin.runtime_configuration(brokers.ids[0])
    (tmp_path / "swap").symlink_to("second")
    (tmp_path / "swap").rename(link)
    await kit.admin.runtime_configuration(brokers.ids[0])
    assert [request.headers["authorization"] for request in brokers.seen] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_token_that_stays_wrong_is_sent_once(
    brokers: HttpBrokers, make: Callable[..., Kit], status: int
) -> None:
    brokers.always(1, answer(status, reason="This operation requires super-user access"))
    with pytest.raises(AdminUnauthorized, match="super-user") as caught:
        await unload(make(TokenSource("canary")), brokers, at=1)
    assert len(brokers.seen) == 1
    assert "canary" not in repr(caught.value) + str(caught.value) + repr(TokenSource("canary"))


@pytest.mark.parametrize(
    ("status", "reason", "kind", "says"),
    [
        (404, "Namespace does not exist\nand more", AdminRefused, "Namespace does not exist"),
        (409, "inactive destination broker", AdminRefused, "inactive destination broker"),
        (412, "Invalid upper boundary", AdminRefused, "Invalid upper boundary"),
        (408, "timeout", AdminFault, "timeout"),
        (429, "slow down", AdminFault, "slow down"),
        (499, "closed", AdminFault, "closed"),
        (500, TRACE, AdminFault, "Failed to unload"),
        (503, "", AdminFault, "Status"),
    ],
)
async def test_s15_statuses_become_types(
    brokers: HttpBrokers, make: Callable[..., Kit], status: int, reason: str, kind: type[AdminApiError], says: str
) -> None:
    """4xx is a refusal, but what proxies say late (S.15) and 5xx are unknown outcomes; the reason is one line, without
    a stack trace; nothing repeats."""
    brokers.script(1, answer(status, reason=reason))
    with pytest.raises(kind) as caught:
        await unload(make(), brokers, at=1)
    assert (caught.value.status, caught.value.reason) == (status, says)
    assert caught.value.outcome_unknown == (kind is AdminFault)
    assert "Foo.java" not in str(caught.value)
    assert len(brokers.seen) == 1


@pytest.mark.parametrize("fault", [Answer(hang=True), Answer(reset=True)], ids=["hang", "reset"])
async def test_silence_after_sending_is_unknown_and_never_repeated(
    brokers: HttpBrokers, make: Callable[..., Kit], fault: Answer
) -> None:
    """No answer after the request left: outcome unknown, one request on the wire."""
    brokers.script(1, lambda _request: fault)
    started = time.monotonic()
    with pytest.raises(AdminTimeout) as caught:
        await unload(make(options=FAST), brokers, at=1)
    assert caught.value.outcome_unknown
    assert time.monotonic() - started < 2
    assert len(brokers.seen) == 1


async def test_a_cancelled_request_is_counted(brokers: HttpBrokers, make: Callable[..., Kit]) -> None:
    """A request that left is counted even when its caller gives up."""
    kit = make()
    arrived = asyncio.Event()

    def hang(_request: Seen) -> Answer:
        arrived.set()
        return Answer(hang=True)

    brokers.script(1, hang)
    task = asyncio.ensure_future(unload(kit, brokers, at=1))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kit.telemetry.total("admin_requests_total", code="aborted") == 1


async def test_nobody_listens(brokers: HttpBrokers, make: Callable[..., Kit]) -> None:
    """A refused connection provably sent nothing; a read goes on to the next broker, a mutation too. Each attempt is
    counted, and a read at that broker is repeated once."""
    kit = make()
    dead = "127.0.0.1:1"
    kit.admin.set_endpoints({dead: BrokerEndpoint(broker_id=dead, web_url=f"http://{dead}"), **brokers.endpoints()})
    with pytest.raises(ConnectionRefused) as caught:
        await kit.admin.unload(BUNDLE, destination=None, at=dead, permit=kit.permit)
    assert not caught.value.outcome_unknown
    assert kit.telemetry.total("admin_requests_total", code="unreachable", method="PUT") == 1
    with pytest.raises(AdminUnreachable):
        await kit.admin.runtime_configuration(dead)
    assert kit.telemetry.total("admin_requests_total", code="unreachable", method="GET") == 2
    assert await kit.admin.dynamic_configuration() == {}
    await kit.admin.set_dynamic("loadBalancerSheddingEnabled", "false", permit=kit.permit)
    assert brokers.model.dynamic == {"loadBalancerSheddingEnabled": "false"}


@pytest.mark.parametrize(
    "fault", [Answer(hang=True), Answer(reset=True), Answer(status=500)], ids=["hang", "reset", "500"]
)
async def test_a_setting_without_an_answer_is_made_at_the_next_broker(
    brokers: HttpBrokers, make: Callable[..., Kit], fault: Answer
) -> None:
    """A setting is written as a whole, so writing it twice has no further effect. `read_timeout` is for unloads."""
    order, looks = sorted(range(3), key=brokers.ids.__getitem__), []

    async def look() -> None:
        looks.append(len(brokers.seen))

    brokers.always(order[0], lambda _request: fault)
    kit, started = make(options=replace(FAST, read_timeout=60)), time.monotonic()
    await kit.admin.set_dynamic("loadBalancerSheddingEnabled", "false", permit=kit.permit, look_again=look)
    assert brokers.model.dynamic == {"loadBalancerSheddingEnabled": "false"}
    await kit.admin.delete_dynamic("loadBalancerSheddingEnabled", permit=kit.permit, look_again=look)
    assert brokers.model.dynamic == {}
    assert [request.broker for request in brokers.seen] == [brokers.ids[index] for index in order[:2]] * 2
    assert looks == [0, 1, 2, 3]
    assert kit.permit.asked == 8
    assert time.monotonic() - started < 30


async def test_a_setting_that_may_not_be_made_any_more_is_not_made_at_the_next_broker(
    brokers: HttpBrokers, make: Callable[..., Kit]
) -> None:
    order = sorted(range(3), key=brokers.ids.__getitem__)
    kit = make(options=FAST)

    async def look() -> None:
        if brokers.seen:
            raise LeadershipLost("seen again")

    def lose(_request: Seen) -> Answer:
        kit.permit.error = LeadershipLost("lost")
        return Answer(hang=True)

    brokers.script(order[0], lambda _request: Answer(hang=True), lose)
    with pytest.raises(LeadershipLost):
        await kit.admin.set_dynamic("loadBalancerSheddingEnabled", "false", permit=kit.permit, look_again=look)
    with pytest.raises(LeadershipLost):
        await kit.admin.set_dynamic("loadBalancerSheddingEnabled", "false", permit=kit.permit)
    assert [request.broker for request in brokers.seen] == [brokers.ids[order[0]]] * 2
    assert brokers.model.dynamic == {}


async def test_a_claim_reports_a_redirect_without_following(brokers: HttpBrokers, make: Callable[..., Kit]) -> None:
    """A 307 of a lookup names a broker; a foreign one is an error. One request either way."""
    kit = make()
    brokers.script(0, redirect(f"http://{brokers.ids[2]}"), redirect("http://evil.example"))
    assert await kit.admin.claim(TOPIC, broker_id=brokers.ids[0], permit=kit.permit) == brokers.ids[2]
    with pytest.raises(UnknownHostRedirect):
        await kit.admin.claim(TOPIC, broker_id=brokers.ids[0], permit=kit.permit)
    assert len(brokers.seen) == 2


@pytest.mark.parametrize("body", [b"", b"[]", b"not json", b'{"brokerUrl": null}'])
async def test_an_answer_without_sense_is_a_fault(brokers: HttpBrokers, make: Callable[..., Kit], body: bytes) -> None:
    """A 200 that is not what the route promises is an unknown outcome, never a success."""
    brokers.script(0, answer(200, body=body))
    with pytest.raises(AdminFault):
        await make().admin.claim(TOPIC, broker_id=brokers.ids[0], permit=by_person)


async def test_a_claim_knows_brokers_by_service_url(brokers: HttpBrokers, make: Callable[..., Kit]) -> None:
    """Answers without a web URL are mapped by the binary one; a broker not known yet by its web URL."""
    kit = make()
    endpoint = BrokerEndpoint(broker_id="b:1", web_url="http://b:1", service_url="pulsar://b:6650")
    kit.admin.set_endpoints({**brokers.endpoints(), "b:1": endpoint})
    brokers.script(
        0, answer(200, body=b'{"brokerUrl": "pulsar://b:6650"}'), answer(200, body=b'{"httpUrl": "http://new:8080/"}')
    )
    assert await kit.admin.claim(TOPIC, broker_id=brokers.ids[0], permit=kit.permit) == "b:1"
    assert await kit.admin.claim(TOPIC, broker_id=brokers.ids[0], permit=kit.permit) == "new:8080"


async def test_a_v1_namespace_is_refused_before_anything_leaves(brokers: HttpBrokers, make: Callable[..., Kit]) -> None:
    """Names we cannot express never become a URL."""
    kit = make()
    for bundle in ("t/cluster/ns/0x00000000_0xffffffff", "t/ns/LARGEST", "", "t//0x00000000_0xffffffff"):
        with pytest.raises(AdminRefused):
            await kit.admin.unload(bundle, destination=None, at=brokers.ids[0], permit=kit.permit)
    with pytest.raises(AdminRefused):
        await kit.admin.claim("persistent://only/two", broker_id=brokers.ids[0], permit=kit.permit)
    assert OTHER not in brokers.model.owners
