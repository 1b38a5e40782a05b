"""The caller's side of the generator: start its process, ask it, stop it."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from dev.traffic.admin import ensure_namespace, place_all_on
from dev.traffic.report import TrafficReport
from dev.traffic.spec import DRAIN_AT_MOST_SECONDS, TopicPlan, TrafficError, TrafficSpec, plan_topics

ROOT = Path(__file__).resolve().parents[2]
WORKER = ["-m", "dev.traffic.worker"]
REPORT_SECONDS = 15.0
CLOSE_SECONDS = 5.0


class Traffic:
    """Traffic on a namespace, made by a process of its own; usable from any thread.

    Use as a context manager: leaving it stops the run orderly, or at once after an error.
    """

    def __init__(self, spec: TrafficSpec) -> None:
        """Nothing runs and nothing is contacted before ``prepare`` or ``start``."""
        self.spec = spec
        self._plans: list[TopicPlan] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._directory: Path | None = None
        self._final: TrafficReport | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Traffic:
        """Start the traffic, unless it was started already."""
        if self._process is None:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the traffic; after an error without waiting for messages under way."""
        if kind is None and self._process is not None:
            self.stop()
        self.close()

    # --- before the run --------------------------------------------------------------------

    def prepare(self) -> list[TopicPlan]:
        """Create the namespace if need be and return the plan; idempotent.

        Raises AdminError when the brokers refuse.
        """
        if self._plans is None:
            boundaries = ensure_namespace(
                self.spec.admin_url, self.spec.namespace, self.spec.bundles, self.spec.identity
            )
            self._plans = plan_topics(self.spec, boundaries)
        return self._plans

    def place_all_on(self, broker_id: str) -> None:
        """Make one broker ("host:port") the owner of every busy bundle; best called before ``start``.

        Raises AdminError when it does not get them all.
        """
        place_all_on(broker_id, self.spec.admin_url, [plan.topic for plan in self.prepare()], self.spec.identity)

    # --- the run ---------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The pid of the generator's process; raises TrafficError when it was not started."""
        return self._running().pid

    def start(self) -> None:
        """Start the process; returns once every topic has published and received a message.

        Raises TrafficError (with what the process last said) or AdminError.
        """
        if self._process is not None:
            raise TrafficError("this traffic was started before; create a new Traffic")
        plans = self.prepare()
        self._directory = Path(tempfile.mkdtemp(prefix="bundlekeel-traffic-"))
        with self._stderr_file.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *WORKER, str(self._directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                # Ctrl-C in a terminal is for the caller, who then stops the traffic in order.
                start_new_session=True,
            )
        job = {"spec": self.spec, "plans": plans}
        try:
            # Twice: finding out that a client cannot connect may take an operation's own limit.
            self._ask(msgspec.json.encode(job), self.spec.start_seconds * 2 + CLOSE_SECONDS)
        except BaseException:
            self.close()
            raise

    def report(self) -> TrafficReport:
        """Return what the clients have seen so far, or the final report after ``stop``.

        Raises TrafficError when the process is gone.
        """
        if self._final is not None:
            return self._final
        return msgspec.json.decode(self._ask(b"report", REPORT_SECONDS), type=TrafficReport)

    def acked(self) -> dict[str, int]:
        """Return how many messages of each topic were acknowledged so far.

        Much cheaper than ``report``. Raises TrafficError when the process is gone, or stopped.
        """
        return msgspec.json.decode(self._ask(b"acked", REPORT_SECONDS), type=dict[str, int])

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Publish this many messages/s to each topic from now on. Raises TrafficError if the process is gone."""
        self._ask(msgspec.json.encode(rates), REPORT_SECONDS)

    def stop(self) -> TrafficReport:
        """Stop publishing, wait for messages under way while they come, return the final report.

        Idempotent. Raises TrafficError when the process is gone.
        """
        if self._final is None:
            answer = self._ask(b"stop", DRAIN_AT_MOST_SECONDS + REPORT_SECONDS)
            self._final = msgspec.json.decode(answer, type=TrafficReport)
            self.close(CLOSE_SECONDS)
        return self._final

    def close(self, patience_seconds: float = 0.0) -> None:
        """End the process, killing it when it is not gone in time; idempotent."""
        process = self._process
        if process is None:
            return
        try:
            process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    # --- talking to the process ------------------------------------------------------------

    @property
    def _stderr_file(self) -> Path:
        if self._directory is None:
            raise TrafficError("this traffic was not started")
        return self._directory / "stderr.log"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise TrafficError("this traffic was not started")
        return self._process

    def _ask(self, line: bytes, seconds: float) -> bytes:
        """Send one line and return the line that answers it."""
        process = self._running()
        with self._lock:
            if process.stdin is None or process.stdin.closed:
                raise TrafficError("this traffic is over")
            try:
                process.stdin.write(line + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                raise self._ended_error() from None
            answer = self._read_line(process, time.monotonic() + seconds)
        # A report never begins like this: its first field is another.
        if answer.startswith(b'{"error":'):
            raise TrafficError(msgspec.json.decode(answer, type=dict[str, str])["error"])
        return answer

    def _read_line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
        if process.stdout is None:
            raise TrafficError("this traffic has no process to read from")
        descriptor = process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TrafficError(f"the traffic process {process.pid} does not answer")
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    raise self._ended_error()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _ended_error(self) -> TrafficError:
        tail = self._stderr_file.read_text(errors="replace").strip()[-2000:]
        return TrafficError(f"the traffic process ended early: {tail or 'it said nothing'}")
