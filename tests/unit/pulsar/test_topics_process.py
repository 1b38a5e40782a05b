"""The process that reads the topics: how it is watched over, and what becomes of what it says."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.pulsar.topics.channel import TopicChannel
from bundlekeel.pulsar.topics.feed import TopicLoadFeed
from bundlekeel.pulsar.topics.process import FIRST_PAUSE_SECONDS, MISSING, TopicsOptions, TopicsProcess, joined
from bundlekeel.pulsar.topics.wire import Live, Lost, Opened
from tests.support.admin_kit import self_signed
from tests.support.contracts.coordination import eventually
from tests.support.memory_source import RealClock
from tests.support.topics_stage import BUNDLE, NOBODY, Stage, entry, stage

__all__ = ["stage"]


def test_service_urls() -> None:
    """Several brokers are one URL; TLS only if there is nothing else; the order does not matter."""
    assert joined([]) == ""
    assert joined(["pulsar://b:2", "pulsar://a:1/"]) == "pulsar://a:1,b:2"
    assert joined(["pulsar+ssl://a:3", "pulsar://b:2"]) == "pulsar://b:2"
    assert joined(["pulsar+ssl://b:3", "pulsar+ssl://a:3"]) == "pulsar+ssl://a:3,b:3"


async def test_secrets_go_through_the_pipe(stage: Stage) -> None:
    """The token is in the first line, and nowhere another process or a log could read it."""
    await stage.feed.start(NOBODY)
    await stage.until(lambda: "s3cret" in stage.told(1))
    assert "s3cret" not in (stage.directory / "1.args").read_text()
    assert "s3cret" not in repr(TopicsOptions(token="s3cret"))


async def test_without_pulsar_client(tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = (
        f"import sys; open({str(started)!r}, 'a').write('x'); sys.modules['pulsar'] = None\n"
        "import bundlekeel.pulsar.topics.child"
    )
    process = TopicsProcess(TopicsOptions(), clock=RealClock(), command=(sys.executable, "-c", script))
    feed = TopicLoadFeed(process, clock=RealClock())
    await feed.start(NOBODY)
    try:
        for _ in range(600):
            if feed.tables().status.state == "down":
                break
            await feed.wait_changed(feed.tables().generation, 0.1)
        assert (feed.tables().status.state, feed.tables().status.detail) == ("down", MISSING)
        assert "pip install '.[topics]'" in MISSING
        await asyncio.sleep(2 * FIRST_PAUSE_SECONDS)
        assert started.read_text() == "x"
    finally:
        await feed.close()


async def test_no_broker_there(tmp_path: Path) -> None:
    process = TopicsProcess(TopicsOptions(), clock=RealClock())
    feed, channel = TopicLoadFeed(process, clock=RealClock()), TopicChannel(process, clock=RealClock())
    try:
        await feed.start(())
        assert (feed.tables().status.state, feed.tables().status.detail) == ("connecting", "no broker is known yet")
        await feed.start(NOBODY)
        await channel.start(NOBODY)

        async def down() -> bool:
            return feed.tables().status.state == "down"

        await eventually(down, within=60)
        # Load and bundles are read side by side: which of the two gave up last is chance.
        assert re.match("(load|bundles): Pulsar error: ", feed.tables().status.detail)
        with pytest.raises(SnapshotError):
            await channel.view()
        with pytest.raises(StoreError):
            await channel.unit(BUNDLE)
        assert process.pid is not None
    finally:
        await feed.close()
        await channel.close()


async def test_it_ends_with_its_last_listener(tmp_path: Path) -> None:
    """Two ports share one process, which goes when neither needs it, and can be started again."""
    stage = Stage(tmp_path)
    await stage.feed.start(NOBODY)
    await stage.channel.start(NOBODY)
    await stage.until(lambda: stage.process.state == "ok")
    pid = stage.process.pid
    assert pid is not None
    await stage.feed.close()
    assert psutil.pid_exists(pid)
    await stage.channel.close()
    assert (psutil.pid_exists(pid), stage.process.state) == (False, "off")
    await stage.feed.start(NOBODY)
    await stage.until(lambda: stage.process.state == "ok")
    await stage.feed.close()
    assert stage.process.pid is None


async def test_it_does_not_outlive_a_killed_daemon(tmp_path: Path) -> None:
    """The real child ends when the sidecar is gone without a word."""
    script = (
        "import asyncio\n"
        "from bundlekeel.wiring.clock import SystemClock\n"
        "from bundlekeel.pulsar.topics.feed import TopicLoadFeed\n"
        "from bundlekeel.pulsar.topics.process import TopicsOptions, TopicsProcess\n"
        "async def main():\n"
        "    process = TopicsProcess(TopicsOptions(), clock=SystemClock())\n"
        f"    await TopicLoadFeed(process, clock=SystemClock()).start({NOBODY!r})\n"
        "    while process.state != 'ok':\n"
        "        await asyncio.sleep(0.05)\n"
        "    print(process.pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    daemon = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert daemon.stdout is not None
    pid = int(await daemon.stdout.readline())
    assert psutil.pid_exists(pid)
    daemon.kill()
    await daemon.wait()

    async def is_gone() -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    await eventually(is_gone, within=30)


@pytest.mark.parametrize(
    "line", ["not json", '{"t":"who"}', "[]", "x" * 5_000_000], ids=["text", "tag", "kind", "5 MB"]
)
async def test_what_is_not_understood_ends_the_child(stage: Stage, line: str) -> None:
    """A line that is passed over could be the owner of a bundle: a new child reads everything again."""
    stage.say(1, Opened("channel"), entry(BUNDLE, UnitState.OWNED, "a:1"), Live("channel"))
    stage.say(2, Opened("channel"), entry(BUNDLE, UnitState.OWNED, "b:1", version=3), Live("channel"))
    await stage.channel.start(NOBODY)
    assert await stage.owner(BUNDLE) == "a:1"
    stage.say(1, line)
    await stage.until(lambda: stage.process.state == "down")
    assert stage.process.detail.startswith("sent a line that cannot be read")
    with pytest.raises(StoreError, match="cannot be read"):
        await stage.channel.view()
    with pytest.raises(StoreError):
        await stage.channel.unit(BUNDLE)
    await stage.until(lambda: stage.process.state == "ok")
    await stage.until(lambda: stage.channel._followed)
    assert await stage.owner(BUNDLE) == "b:1"


async def test_a20_the_pulsar_client_crashes(stage: Stage) -> None:
    await stage.feed.start(NOBODY)
    stage.say(1, "!")
    await stage.until(lambda: stage.process.state == "down")
    assert stage.feed.tables().status.detail == "ended with code 1: told to end"
    await stage.until(lambda: stage.process.state == "ok")
    assert stage.process.pid is not None
    os.kill(stage.process.pid, signal.SIGSEGV)
    await stage.until(lambda: stage.process.state == "down")
    assert stage.feed.tables().status.detail.startswith("was ended by signal 11")
    await stage.until(lambda: stage.process.state == "ok")


async def test_silence_is_stuck(tmp_path: Path) -> None:
    """A child that says nothing is stuck, then killed and followed by another; who asks is not kept waiting."""
    stage = Stage(tmp_path, stuck_after=1.0)
    await stage.channel.start(NOBODY)
    await stage.feed.start(NOBODY)
    stage.say(1, Opened("channel"), Live("channel"))
    await stage.until(lambda: stage.channel._followed)
    first = stage.process.pid
    stage.say(1, "zzz")
    await stage.until(lambda: stage.process.state == "stuck")
    assert stage.feed.tables().status.state == "stuck"
    with pytest.raises(StoreError, match="1 s"):
        await stage.channel.view()
    await stage.until(lambda: stage.process.state == "ok")
    assert stage.process.pid != first
    await stage.channel.close()
    await stage.feed.close()


async def test_other_brokers(stage: Stage) -> None:
    """New URLs do not disturb a child that reads; one that does not get through is replaced, and gets the new ones."""
    stage.say(1, Live("load"), Live("bundles"))
    await stage.feed.start(NOBODY)
    await stage.until(lambda: stage.feed.tables().status.state == "ok")
    first = stage.process.pid
    await stage.feed.start(("pulsar://b:2", "pulsar://a:1"))
    await asyncio.sleep(2.5)
    assert stage.process.pid == first
    stage.say(1, Lost("load", "gone"))
    await stage.until(lambda: "pulsar://a:1,b:2" in stage.told(2))


class Listening:
    """A broker that hears who connects, says nothing and hangs up. `heard`: what came on each connection."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.heard.append(await reader.read(65_536))
        writer.close()


async def test_a_rotated_token_is_used(tmp_path: Path) -> None:
    """The real client sends the token of the file as it is at each connection."""
    token = tmp_path / "token"
    token.write_text("first-token\n")
    broker = Listening()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    url = f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    process = TopicsProcess(TopicsOptions(token_file=token), clock=RealClock())
    feed = TopicLoadFeed(process, clock=RealClock())
    try:
        await feed.start((url,))
        for text in (b"first-token", b"second-token"):
            token.write_bytes(text)

            async def sent(text: bytes = text) -> bool:
                return any(text in data for data in broker.heard)

            await eventually(sent, within=60)
        token.unlink()
        before = len(broker.heard)

        async def again() -> bool:
            return len(broker.heard) > before

        await eventually(again, within=60)
        assert process.state == "ok", "a missing file ends nothing"
    finally:
        await feed.close()
        server.close()


@pytest.mark.parametrize(
    ("trusted", "verify", "reported"), [(True, True, True), (False, True, False), (False, False, True)]
)
async def test_tls(tmp_path: Path, trusted: bool, verify: bool, reported: bool) -> None:
    """The token goes only to a broker whose certificate is trusted, unless a laboratory said not to look."""
    cert, context = self_signed(tmp_path)
    broker = Listening()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=context)
    url = f"pulsar+ssl://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    options = TopicsOptions(token="s3cret", trust_certs=cert if trusted else None, verify=verify)
    process = TopicsProcess(options, clock=RealClock())
    feed = TopicLoadFeed(process, clock=RealClock())
    try:
        await feed.start((url,))

        async def decided() -> bool:
            return any(b"s3cret" in data for data in broker.heard) if reported else feed.tables().status.state == "down"

        await eventually(decided, within=60)
        assert any(b"s3cret" in data for data in broker.heard) == reported
    finally:
        await feed.close()
        server.close()
