"""Starts and supervises the child process that reads topics through pulsar-client, and forwards its messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from bundlekeel.model.errors import StoreError
from bundlekeel.ports import Clock, FeedState
from bundlekeel.pulsar.formats.report import MAX_REPORT_BYTES
from bundlekeel.pulsar.topics.wire import (
    BEAT_SECONDS,
    EXIT_MISSING,
    Beat,
    Follow,
    FromChild,
    Live,
    Lost,
    Message,
    Opened,
    Setup,
    Sync,
    Synced,
    ToChild,
    Topic,
    decode_from_child,
    encode,
)

# -P: do not import a pulsar.py in the working directory instead of the client.
CHILD_COMMAND: Final = (sys.executable, "-P", "-m", "bundlekeel.pulsar.topics.child")
MISSING: Final = "pulsar-client is not installed: pip install '.[topics]' in the sources"
# A child that ended is restarted after the first pause. The pause doubles up to a limit. After a child that ran for
# `_SETTLED_SECONDS`, the first pause applies again. If the package is missing, restarts are rarer.
FIRST_PAUSE_SECONDS: Final = 0.5
LAST_PAUSE_SECONDS: Final = 30.0
MISSING_PAUSE_SECONDS: Final = 300.0
_SETTLED_SECONDS: Final = 30.0
# pulsar-client retries without an error. Restart it after this long without a connection.
_NOT_LIVE_SECONDS: Final = 90.0
_END_SECONDS: Final = 2.0
# Number of lines that are read without a pause: a channel of many bundles must not block the event loop.
_LINES_IN_A_ROW: Final = 100
# Maximum size of a line in addition to its payload.
_AROUND_BYTES: Final = 65_536

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsOptions:
    """Options for connections to the brokers, and time limits in seconds.

    `token`, `token_file`: a token or the file that contains it. `trust_certs`: trusted certificates. `verify=False`:
    trust all brokers (only for laboratories). `cert`: the client's certificate. `stuck_after`: a child process that
    sends no line for this long is killed. `renew_after`: if the brokers have changed and topics cannot be read for this
    long, a new child connects to the new brokers. `quiet_after`: a load topic without messages for this long is
    reopened, as Pulsar itself does; the default is twice the longest pause between two load reports of a broker.
    Messages above `max_bytes` are skipped.
    """

    token: str = ""
    token_file: Path | None = None
    trust_certs: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True
    stuck_after: float = 15.0
    renew_after: float = 5.0
    quiet_after: float = 1800.0
    max_bytes: int = MAX_REPORT_BYTES

    def __repr__(self) -> str:
        return f"TopicsOptions(token={'**********' if self.token else ''!r}, token_file={self.token_file})"

    def setup(self, service_urls: Sequence[str]) -> Setup:
        """Return the child's first line: how it connects to these brokers."""
        return Setup(
            url=joined(service_urls),
            token=self.token,
            token_file=str(self.token_file or ""),
            trust_certs=str(self.trust_certs or ""),
            cert=str(self.cert or ""),
            key=str(self.key or ""),
            verify=self.verify,
            max_bytes=self.max_bytes,
            quiet_after=self.quiet_after,
        )


def joined(service_urls: Sequence[str]) -> str:
    """Return one URL with all these brokers, in pulsar-client's form. URLs with TLS are used only if all have TLS."""
    all_urls = sorted(url.rstrip("/") for url in service_urls)
    urls = [url for url in all_urls if url.startswith("pulsar://")] or all_urls
    return ",".join([*urls[:1], *(url.partition("://")[2] for url in urls[1:])])


class TopicsListener(Protocol):
    """Receives the lines of a child process about its topics, in order and on the event loop. Must not raise."""

    topics: tuple[Topic, ...]

    def received(self, line: Opened | Live | Lost | Message) -> None:
        """Handle one line about a topic in `topics`."""

    def child_ended(self) -> None:
        """Handle the end of the child process. The next one reads the topics from the beginning."""

    def state_changed(self) -> None:
        """Handle a change of `TopicsProcess.state` or `detail`."""


class TopicsProcess:
    """Runs one child process at a time, for one or several listeners.

    `state` and `detail` describe the process alone: it can be `ok` while a topic cannot be read.
    """

    def __init__(self, options: TopicsOptions, *, clock: Clock, command: Sequence[str] = CHILD_COMMAND) -> None:
        self.state: FeedState = "off"
        self.detail = ""
        self._options = options
        self._clock = clock
        self._command = command
        self._listeners: list[TopicsListener] = []
        self._urls: tuple[str, ...] = ()
        self._url_in_use = ""
        self._have_urls = asyncio.Event()
        self._child: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._syncs: dict[int, asyncio.Future[None]] = {}
        self._last_sync = 0
        self._lines_read = 0
        self._live: set[Topic] = set()

    @property
    def pid(self) -> int | None:
        """The child's process id, or None while there is none."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    def start(self, listener: TopicsListener, service_urls: Sequence[str]) -> None:
        """Read this listener's topics through any of these brokers.

        New URLs are used when the child is restarted, which happens if it cannot connect with the old ones.
        """
        self._urls = tuple(service_urls)
        if self._urls:
            self._have_urls.set()
        if listener not in self._listeners:
            self._listeners.append(listener)
            self._send(Follow(listener.topics))
        if self._task is None:
            self._set_state("connecting", "" if self._urls else "no broker is known yet")
            self._task = asyncio.create_task(self._run(), name="topics-process")

    async def stop(self, listener: TopicsListener) -> None:
        """Stop reading for this listener. The child ends with the last listener."""
        if listener in self._listeners:
            self._listeners.remove(listener)
        if self._listeners or self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        self.state, self.detail = "off", ""

    async def sync(self, timeout: float) -> None:
        """Wait until everything published to the channel before this call was received.

        Raises StoreError if that takes longer than `timeout` seconds.
        """
        if self.pid is None or not any("channel" in listener.topics for listener in self._listeners):
            raise StoreError(f"the channel is not being read: {self.detail or self.state}")
        self._last_sync += 1
        number, done = self._last_sync, asyncio.get_running_loop().create_future()
        self._syncs[number] = done
        self._send(Sync(number))
        try:
            async with asyncio.timeout(timeout):
                await done
        except TimeoutError:
            raise StoreError(f"the channel did not answer within {timeout:g} s") from None
        finally:
            self._syncs.pop(number, None)

    # --- one child at a time ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            await self._have_urls.wait()
            began = self._clock.boot()
            try:
                detail = await self._one_child()
            except Exception as error:  # noqa: BLE001 - top of a root task: without it nothing is read ever again
                _log.exception("reading the topics failed unexpectedly; it is started again")
                detail = f"internal error: {error!r}"
            _log.warning("the process that reads the topics ended and is restarted: %s", detail)
            self._set_state("stuck" if self.state == "stuck" else "down", detail)
            if self._clock.boot() - began > _SETTLED_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await self._clock.sleep(MISSING_PAUSE_SECONDS if detail == MISSING else pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def _one_child(self) -> str:
        """Run one child to its end. Returns the reason of its end."""
        setup = self._options.setup(self._urls)
        self._url_in_use = setup.url
        pipe, limit = asyncio.subprocess.PIPE, 2 * self._options.max_bytes + _AROUND_BYTES
        try:
            # The child has its own session: an interrupt at the terminal is for the sidecar, which then ends the child.
            child = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=pipe, limit=limit, start_new_session=True
            )
        except OSError as error:
            return f"cannot be started: {error}"
        self._child = child
        self._send(setup)
        self._send(Follow(tuple(topic for listener in self._listeners for topic in listener.topics)))
        stderr_lines: deque[str] = deque(maxlen=20)
        reasons: list[str] = []
        tasks = (
            asyncio.create_task(self._read(child, reasons), name="topics-read"),
            asyncio.create_task(_drain(child, stderr_lines), name="topics-stderr"),
        )
        watch = asyncio.create_task(self._watch(child, reasons), name="topics-watch")
        try:
            await asyncio.gather(*tasks)
            code = await child.wait()
        finally:
            watch.cancel()
            await _end(child)
            await asyncio.gather(*tasks, watch, return_exceptions=True)
            self._after()
        if code == EXIT_MISSING:
            return MISSING
        last = f": {stderr_lines[-1]}" if stderr_lines else ""
        return reasons[0] if reasons else f"{_ending(code)}{last}"

    async def _read(self, child: asyncio.subprocess.Process, reasons: list[str]) -> None:
        assert child.stdout is not None
        while True:
            try:
                data = await child.stdout.readline()
                if not data:
                    return
                line = decode_from_child(data)
            except (msgspec.DecodeError, ValueError) as error:
                # A skipped line could contain the owner of a bundle, so the child is restarted instead.
                reasons.append(f"sent a line that cannot be read: {error}")
                _kill(child)
                return
            self._take(line)
            if self._lines_read % _LINES_IN_A_ROW == 0:
                await asyncio.sleep(0)

    def _take(self, line: FromChild) -> None:
        self._lines_read += 1
        match line:
            case Beat():
                self._set_state("ok", "")
                return
            case Synced(number):
                waiting = self._syncs.pop(number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)
                return
            case Live(topic):
                self._live.add(topic)
            case Lost(topic, _) | Opened(topic):
                self._live.discard(topic)
            case _:
                topic = line.topic
        for listener in self._listeners:
            if topic in listener.topics:
                listener.received(line)

    async def _watch(self, child: asyncio.subprocess.Process, reasons: list[str]) -> None:
        """Kill a child that sends nothing or makes no progress.

        Counts checks, not seconds: after a suspension of this process, much time has passed but lines are still unread.
        """
        tick = min(BEAT_SECONDS, self._options.stuck_after / 4)
        silent = read = 0
        not_live = outdated = 0.0
        while True:
            await self._clock.sleep(tick)
            silent = silent + 1 if read == self._lines_read else 0
            read = self._lines_read
            if silent * tick >= self._options.stuck_after:
                reasons.append(f"did not answer for {self._options.stuck_after:g} s and was killed")
                self._set_state("stuck", f"has not answered for {self._options.stuck_after:g} s")
                _kill(child)
                return
            required = {topic for listener in self._listeners for topic in listener.topics}
            live = required <= self._live
            not_live = 0.0 if live else not_live + tick
            other = bool(self._urls) and self._url_in_use != joined(self._urls)
            outdated = outdated + tick if other and not live else 0.0
            if not_live >= _NOT_LIVE_SECONDS or outdated >= self._options.renew_after:
                reasons.append(f"did not reach the brokers for {not_live:g} s")
                _kill(child)
                return

    def _after(self) -> None:
        self._child = None
        self._live.clear()
        for listener in self._listeners:
            listener.child_ended()
        for waiting in self._syncs.values():
            if not waiting.done():
                waiting.set_exception(StoreError("the process that reads the channel ended"))

    def _send(self, line: ToChild) -> None:
        if self._child is not None and self._child.stdin is not None and not self._child.stdin.is_closing():
            # Without a drain: lines are few and short, and a child that does not read is killed.
            self._child.stdin.write(encode(line))

    def _set_state(self, state: FeedState, detail: str) -> None:
        if (state, detail) == (self.state, self.detail):
            return
        self.state, self.detail = state, detail
        for listener in self._listeners:
            listener.state_changed()


def _kill(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.kill()


async def _drain(child: asyncio.subprocess.Process, last_lines: deque[str]) -> None:
    """Store the child's last lines on stderr, which contain pulsar-client's log, to explain a crash."""
    assert child.stderr is not None
    while True:
        try:
            data = await child.stderr.readline()
        except ValueError:
            continue
        if not data:
            return
        last_lines.append(data.decode(errors="replace").strip()[:500])
        _log.debug("topics: %s", last_lines[-1])


async def _end(child: asyncio.subprocess.Process) -> None:
    """End the child by closing its input. Kill it if it does not end."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await child.wait()
    except TimeoutError:
        _kill(child)
        await child.wait()


def _ending(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
