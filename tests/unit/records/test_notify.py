"""Notifications: which records are sent, to whom, the number of attempts, and no address is ever shown."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from structlog.testing import capture_logs

from bundlekeel.model.errors import NotificationError
from bundlekeel.planning.guard.external_moves import ExternalMove
from bundlekeel.ports.records import EVENTS, Notification
from bundlekeel.pulsar.channel.findings import FindingCode
from bundlekeel.records.journal import FileJournal
from bundlekeel.records.kubernetes_events import KubernetesEndpoint, KubernetesEvents
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.records.notification_texts import NotificationTexts
from bundlekeel.records.notifications import BACKOFF, QUEUE, NotificationReceiver, Notifications, ObservedJournal
from bundlekeel.records.webhooks import Webhook, WebhookAddress
from bundlekeel.settings.describe import describe
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.settings.tls import ClientTls
from bundlekeel.wiring.logs import secrets_of
from bundlekeel.wiring.notifications import notifications
from tests.support.http_inbox import Inbox, inbox
from tests.support.memory_source import RealClock
from tests.support.world import FakeCluster, FakeSidecar

CANARY = "c4nary-h00k-5ecret"
NOTICE = Notification(
    event="stops",
    severity="warning",
    reason="SecondBalancer",
    text="nothing is carried out: <others> & we",
    wall_ms=1_700_000_000_123,
    cluster="east",
    member="keel-0",
    details={"epoch": 3, "outcomes": {"done": 2}, "brokers": ["b1", "b2"]},
)


class Impatient(RealClock):
    """Sleeps that are noted instead of slept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Only a turn of the loop."""
        self.slept.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def box() -> Iterator[Inbox]:
    """A receiver."""
    with inbox() as result:
        yield result


def teller(notices: NotificationTexts, *records: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(event, severity, reason) of the notices of these records."""
    return [(item.event, item.severity, item.reason) for record in records for item in notices.of(record)]


def notices(leads: bool = True) -> NotificationTexts:
    return NotificationTexts(cluster="east", member=lambda: "keel-0", leads=lambda: leads)


def cycle(**changes: Any) -> dict[str, Any]:
    """A leader's cycle that did nothing."""
    base = {"kind": "cycle", "epoch": 1, "cycle": 7, "wall_ms": 5, "code": "Balanced", "plan": "ab", "obstacle": None}
    return base | {"outcomes": {}, "splits": {}, "sentence": "even"} | changes


# --- which records are told ---


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        (cycle(), []),
        (cycle(outcomes={"done": 3}), [("executions", "info", "CarriedOut")]),
        (cycle(outcomes={"done": 3, "unknown": 1}), [("executions", "warning", "CarriedOut")]),
        (cycle(splits={"done": 1}), [("executions", "info", "CarriedOut")]),
        (cycle(epoch=None, outcomes={"done": 3}), []),
        ({"kind": "request", "what": "pause", "sentence": "x", "wall_ms": 1}, [("stops", "info", "Pause")]),
        ({"kind": "request", "what": "deadman", "sentence": "x", "wall_ms": 1}, [("stops", "warning", "Deadman")]),
        ({"kind": "request", "what": "drain of b1", "sentence": "x", "wall_ms": 1}, [("executions", "info", "Drain")]),
        ({"kind": "external_move", "sentence": "x", "wall_ms": 1}, [("findings", "warning", "ExternalMove")]),
        ({"kind": "adoption", "sentence": "x", "wall_ms": 1}, [("adoption", "info", "ThresholdsAdopted")]),
        ({"kind": "move", "sentence": "x", "wall_ms": 1}, []),
        ({}, []),
    ],
)
def test_what_is_told_of_a_record(record: dict[str, Any], lines: list[tuple[str, str, str]]) -> None:
    """Work, stops, findings and adoptions; never each move, never a follower's cycle."""
    assert teller(notices(), record) == lines


def test_an_external_move_names_both_brokers() -> None:
    move = ExternalMove(bundle="t/ns/0x0_0x1", source="b1", target="b2", at_ms=1)
    (notice,) = notices().of(move.record())
    assert notice.details == {"bundle": "t/ns/0x0_0x1", "source": "b1", "destination": "b2"}


def test_findings_are_told_once_by_the_leader() -> None:
    """Every replica finds them; a bundle owned twice is critical, an end is good news."""
    record = {
        "kind": "finding",
        "event": "appeared",
        "code": str(FindingCode.OWNED_TWICE),
        "sentence": "x",
        "wall_ms": 1,
    }
    assert teller(notices(leads=False), record) == []
    assert teller(notices(), record, record | {"event": "gone"}) == [
        ("findings", "critical", "OwnedTwice"),
        ("findings", "info", "OwnedTwice"),
    ]


def test_a_stop_is_told_when_it_lasts_and_when_it_is_over() -> None:
    stopped, blind = cycle(obstacle="SecondBalancer"), cycle(plan=None, code="StoreUnavailable")
    watch = notices()
    assert teller(watch, blind, cycle(), stopped) == []
    assert teller(watch, stopped, stopped) == [("stops", "warning", "SecondBalancer")]
    assert teller(watch, cycle(obstacle="Paused")) == [("stops", "info", "ActsAgain")]
    assert teller(watch, blind, blind) == [("stops", "warning", "StoreUnavailable")]
    assert teller(watch, cycle(epoch=None), cycle()) == []


async def test_a_real_leaders_moves_are_told(box: Inbox) -> None:
    sidecar = FakeSidecar(FakeCluster())
    output = Notifications(
        [sink(box)], sidecar.telemetry, RealClock(), cluster="c", member=lambda: "m", leads=lambda: True
    )
    sidecar.cycle.journal = ObservedJournal(sidecar.journal, output.observe)
    await sidecar.lead()
    report = await sidecar.cycle.turn()
    await output.close()
    (posted,) = box.posted
    assert posted.body["event"] == "executions" and posted.body["text"] == report.sentence
    assert posted.body["details"]["outcomes"] == {"done": len(report.outcomes)}


# --- sending ---


def sink(box: Inbox, path: str = "/hook", **changes: Any) -> NotificationReceiver:
    """A webhook at this path."""
    options = {"name": "ops", "notifier": Webhook(WebhookAddress(box.url(path))), "events": frozenset(EVENTS)}
    return NotificationReceiver(**(options | changes))


def running(clock: RealClock, *sinks: NotificationReceiver) -> tuple[Notifications, PrometheusTelemetry]:
    telemetry = PrometheusTelemetry()
    output = Notifications(sinks, telemetry, clock, cluster="east", member=lambda: "keel-0", leads=lambda: True)
    return output, telemetry


def counted(telemetry: PrometheusTelemetry, outcome: str, name: str = "ops") -> float | None:
    return telemetry.registry.get_sample_value("bundlekeel_notifications_total", {"sink": name, "outcome": outcome})


async def test_each_outcome_is_counted_from_zero(box: Inbox) -> None:
    _, telemetry = running(Impatient(), sink(box))
    assert [counted(telemetry, outcome) for outcome in ("sent", "failed", "dropped")] == [0, 0, 0]


PAUSE = {"kind": "request", "what": "pause", "sentence": "ann asked for pause", "wall_ms": 1, "by": "ann"}


async def until(condition: Any) -> None:
    """Wait for it, a minute at most: a hundred requests take long on a busy machine."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what it waits for happens in a server's thread
            await asyncio.sleep(0.005)


async def test_retries_back_off_and_then_it_is_sent(box: Inbox) -> None:
    """500, a closed connection and 429 are tried again, later each time."""
    clock = Impatient()
    notifier, telemetry = running(clock, sink(box))
    box.answers.extend([500, 0, 429])
    task = asyncio.create_task(notifier.run())
    notifier.observe(PAUSE)
    await until(lambda: counted(telemetry, "sent"))
    assert clock.slept == list(BACKOFF[:3]) and len(box.posted) == 4
    assert telemetry.registry.get_sample_value("bundlekeel_notifications_waiting", {"sink": "ops"}) == 0
    task.cancel()
    await notifier.close()


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (400, 1), (307, 1), (503, 1 + len(BACKOFF))])
async def test_given_up(box: Inbox, status: int, attempts: int) -> None:
    """A wrong address is not tried again, a redirect not followed; an outage is given up after all attempts."""
    notifier, telemetry = running(Impatient(), sink(box))
    box.answers.extend([status] * attempts)
    task = asyncio.create_task(notifier.run())
    notifier.observe(PAUSE)
    await until(lambda: counted(telemetry, "failed"))
    assert [item.path for item in box.posted] == ["/hook"] * attempts
    notifier.observe(PAUSE)
    await until(lambda: counted(telemetry, "sent"))
    task.cancel()
    await notifier.close()


async def test_a_hanging_receiver_holds_up_nobody_and_its_queue_is_bounded(box: Inbox) -> None:
    with inbox() as other:
        slow = sink(box, notifier=Webhook(WebhookAddress(box.url()), seconds=15.0))
        notifier, telemetry = running(RealClock(), slow, sink(other, name="other"))
        box.answers.append(-1)
        task = asyncio.create_task(notifier.run())
        notifier.observe(PAUSE)
        await until(lambda: box.posted and counted(telemetry, "sent", "other"))
        for number in range(QUEUE + 5):
            notifier.observe(PAUSE | {"sentence": str(number)})
        assert len(slow.waiting) == QUEUE and counted(telemetry, "dropped") == 6
        await until(lambda: (counted(telemetry, "sent", "other") or 0) >= QUEUE - 1)
        box.release.set()
        await until(lambda: counted(telemetry, "sent") == QUEUE)
        assert [item.body["text"] for item in box.posted[-2:]] == [str(QUEUE + 3), str(QUEUE + 4)]
        task.cancel()
        await notifier.close()


async def test_requests_of_a_sink(box: Inbox) -> None:
    """Only its events, from its severity on."""
    picky = sink(box, events=frozenset({"stops", "findings"}), min_severity="warning")
    notifier, _ = running(Impatient(), picky)
    notifier.observe(PAUSE)
    notifier.observe(cycle(outcomes={"unknown": 1}))
    notifier.observe({"kind": "external_move", "sentence": "them", "wall_ms": 1})
    await notifier.close()
    assert [item.body["text"] for item in box.posted] == ["them"]


# --- what is sent ---


async def test_the_generic_payload(box: Inbox) -> None:
    await Webhook(WebhookAddress(box.url("/a?b=c"))).send(NOTICE)
    (posted,) = box.posted
    assert posted.path == "/a?b=c" and posted.headers["content-type"] == "application/json"
    assert posted.body == {
        "version": 1,
        "source": "bundlekeel",
        "cluster": "east",
        "member": "keel-0",
        "event": "stops",
        "severity": "warning",
        "reason": "SecondBalancer",
        "text": NOTICE.text,
        "wall_ms": 1_700_000_000_123,
        "time": "2023-11-14T22:13:20.123Z",
        "details": {"epoch": 3, "outcomes": {"done": 2}, "brokers": ["b1", "b2"]},
    }
    text = (Path(__file__).parents[3] / "docs/operations/notifications.md").read_text()
    assert all(f'"{key}"' in text for key in posted.body)


async def test_the_slack_payload_is_escaped(box: Inbox) -> None:
    """`<` and `&` are control signs there."""
    await Webhook(WebhookAddress(box.url()), kind="slack").send(NOTICE)
    body = box.posted[0].body
    (attachment,) = body["attachments"]
    assert body["text"] == "Bundlekeel, east: SecondBalancer"
    assert attachment["text"] == "nothing is carried out: &lt;others&gt; &amp; we"
    assert [item["value"] for item in attachment["fields"]] == ["3", "done 2", "b1, b2"]


@pytest.mark.parametrize("word", ["@all", "@channel", "@here", "@ALL", "@everyone", "@ops-team"])
async def test_h25_nobody_is_called_by_a_name_in_a_notification(box: Inbox, word: str) -> None:
    """Mattermost and Rocket.Chat read `@word` as a mention anywhere, so a bundle's name could notify a user."""
    hook = Webhook(WebhookAddress(box.url()), kind="slack")
    notice = replace(
        NOTICE, cluster=word, reason=word, text=f"{word} a{word}", member=word, details={word: word, "b": [word]}
    )
    await hook.send(notice)
    await hook.close()
    text = json.dumps(box.posted[0].body, ensure_ascii=False)
    assert not re.search(r"@\w", text)
    assert text.replace("\u200b", "").count(word) == 10


async def test_the_address_file_is_read_each_time(box: Inbox, tmp_path: Path) -> None:
    """A rotated secret needs no restart; a missing one is tried again."""
    file = tmp_path / "url"
    hook = Webhook(WebhookAddress(file=file))
    with pytest.raises(NotificationError) as missing:
        await hook.send(NOTICE)
    assert missing.value.again
    for path in ("/one", "/two"):
        file.write_text(box.url(path) + "\n")
        await hook.send(NOTICE)
    assert [item.path for item in box.posted] == ["/one", "/two"]
    await hook.close()


async def test_kubernetes_events(tmp_path: Path) -> None:
    """Over TLS with the cluster's authority, with the token as it is then; notes are cut to what the server takes."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "namespace").write_text("pulsar")
    context = ClientTls(trust_certs=tmp_path / "ca.crt").context(field="x")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    with inbox(server) as box:
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(box.port)}
        assert KubernetesEndpoint.from_environment(environ, "broker-0", tmp_path) is None
        (tmp_path / "token").write_text("first")
        assert KubernetesEndpoint.from_environment({}, "broker-0", tmp_path) is None
        place = KubernetesEndpoint.from_environment(environ, "broker-0", tmp_path)
        assert place is not None
        events = KubernetesEvents(place, tls=context)
        await events.send(NOTICE)
        (tmp_path / "token").write_text("second")
        await events.send(
            Notification(
                event="executions",
                severity="info",
                reason="CarriedOut",
                text="é" * 900,
                wall_ms=0,
                cluster="east",
                member="m" * 200,
            )
        )
        await events.close()
    one, two = box.posted
    assert one.path == "/apis/events.k8s.io/v1/namespaces/pulsar/events"
    assert [item.headers["authorization"] for item in (one, two)] == ["Bearer first", "Bearer second"]
    assert one.body["regarding"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "pulsar", "name": "broker-0"}
    assert (one.body["reason"], one.body["type"], two.body["type"]) == ("SecondBalancer", "Warning", "Normal")
    assert one.body["eventTime"] == "2023-11-14T22:13:20.123000Z"
    assert len(two.body["note"].encode()) <= 1024 and len(two.body["reportingInstance"]) == 128


# --- secrets and settings ---


def loaded(**hook: Any) -> LoadedSettings:
    """Settings with one webhook."""
    return load_settings(None, {"notify": {"webhooks": [{"name": "ops", **hook}]}}, environ={})


async def test_the_address_is_found_nowhere(box: Inbox, tmp_path: Path) -> None:
    """Not in shown settings, logs, errors, tracebacks, metrics or the journal, whatever goes wrong."""
    settings = loaded(url=box.url(f"/{CANARY}"))
    assert CANARY in "".join(secrets_of(settings.settings))
    output = [
        repr(settings),
        str(settings.settings),
        settings.settings.model_dump_json(),
        json.dumps(describe(settings)),
    ]
    telemetry = PrometheusTelemetry()
    notifier = notifications(settings, telemetry, Impatient(), member=lambda: "m", leads=lambda: True)
    assert notifier is not None
    journal = ObservedJournal(FileJournal(tmp_path / "j", telemetry=telemetry), notifier.observe)
    with capture_logs() as logs:
        box.answers.extend([500, 404])
        task = asyncio.create_task(notifier.run())
        journal.append(PAUSE)
        await until(lambda: counted(telemetry, "failed"))
        task.cancel()
        await notifier.close()
    assert box.posted[0].path == f"/{CANARY}"
    journal.close()
    output += [str(logs), telemetry.render("")[0].decode(), (tmp_path / "j").read_text()]
    for address in (f"http://127.0.0.1:1/{CANARY}", f"ftp://{CANARY}", f"http://[{CANARY}", f"{CANARY}"):
        with pytest.raises(NotificationError) as error:
            await Webhook(WebhookAddress(address)).send(NOTICE)
        output += [str(error.value), repr(error.value.__context__) if not error.value.__suppress_context__ else ""]
    assert all(CANARY not in text for text in output)


async def test_s06_a_notification_with_a_time_out_of_range_does_not_stop_the_others(box: Inbox) -> None:
    notifier, telemetry = running(Impatient(), sink(box))
    task = asyncio.create_task(notifier.run())
    notifier.observe(PAUSE | {"wall_ms": 10**17})
    notifier.observe(PAUSE)
    await until(lambda: counted(telemetry, "sent"))
    assert counted(telemetry, "failed") == 1
    task.cancel()
    await notifier.close()
