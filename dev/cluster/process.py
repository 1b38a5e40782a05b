"""Start, signal and stop the child processes of one cluster."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dev.cluster.spec import ClusterError

EXEC_CHILD = Path(__file__).with_name("exec_child.py")
JANITOR = Path(__file__).with_name("janitor.py")
TELLING = re.compile(r"ERROR|FATAL|Exception|Caused by|error:|Error occurred")
KILL_WAIT_SECONDS = 10.0


class Handle(Protocol):
    """The interface of a running process; ``subprocess.Popen`` and ``ContainerHandle`` implement it."""

    @property
    def pid(self) -> int:
        """The process id on this machine."""

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process ends, and return its exit code. Raises subprocess.TimeoutExpired after `timeout`
        seconds.
        """

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process, if it has not ended."""

    def kill(self) -> None:
        """Send SIGKILL."""


def until_stopped(process: subprocess.Popen[bytes]) -> None:
    """After SIGSTOP, wait until all threads of a child are stopped (on a busy machine that takes a while), or the child
    has ended.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


@dataclass
class Child:
    """One named process: its command, its log file, and the running instance, if any."""

    name: str
    command: list[str]
    log: Path
    cwd: Path
    cpu_quota_cores: float | None = None
    cgroup_files: list[Path] = field(default_factory=list)
    process: Handle | None = None
    paused: bool = False

    @property
    def alive(self) -> bool:
        """Whether the process runs; True for a paused process."""
        return self.process is not None and self.process.poll() is None

    def running(self) -> Handle:
        """Return the running process. Raises ClusterError if it does not run."""
        if self.process is None or not self.alive:
            raise ClusterError(f"{self.name} is not running")
        return self.process

    def send(self, sig: signal.Signals) -> None:
        """Send a signal. Raises ClusterError if the process does not run."""
        self.running().send_signal(sig)
        if sig in (signal.SIGSTOP, signal.SIGCONT):
            self.paused = sig == signal.SIGSTOP
        if self.paused and isinstance(self.process, subprocess.Popen):
            until_stopped(self.process)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end of the process; do nothing if it does not run."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(KILL_WAIT_SECONDS)
            self.paused = False

    def ask_to_stop(self) -> None:
        """Send SIGTERM without waiting. A paused process also gets SIGCONT, because it could not end otherwise."""
        if self.alive:
            self.send(signal.SIGTERM)
            if self.paused:
                self.send(signal.SIGCONT)

    def wait_or_kill(self, timeout_seconds: float) -> None:
        """Wait for a process that got SIGTERM; kill it if it does not end in time."""
        if self.process is None:
            return
        try:
            self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self.paused = False

    def failure(self, reason: str) -> ClusterError:
        """Return an error with the process, the reason, the last error lines of its log, and the path of the log."""
        lines = "\n".join(f"  | {line}" for line in telling_lines(self.log))
        return ClusterError(f"{self.name} {reason}; its log {self.log} says:\n{lines}")


class Spawner:
    """Starts children from a thread that lives as long as the cluster.

    The kernel sends the death signal of a child when the *thread* that started it ends. A broker restarted from a
    short-lived thread of a test would die with that thread.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cluster-spawner")
        self._janitor: subprocess.Popen[bytes] | None = None

    def start(self, child: Child) -> None:
        """Start a child, or start it again; its output is appended to its log."""
        if child.alive:
            raise ClusterError(f"{child.name} is already running")
        child.process = self._thread.submit(self._spawn, child).result()
        child.paused = False

    def _spawn(self, child: Child) -> Handle:
        groups = ":".join(map(str, child.cgroup_files))
        wrapper = [sys.executable, "-I", "-S", str(EXEC_CHILD), str(os.getpid()), groups]
        with child.log.open("ab") as log:
            return subprocess.Popen(
                [*wrapper, *child.command],
                cwd=child.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A session of its own, so that Ctrl-C reaches only the launcher, which then stops all in order.
                start_new_session=True,
            )

    def start_janitor(self, data_dir: Path | None, logs: Path, cgroups: Sequence[Path]) -> None:
        """Start the janitor: a process that removes the data (None: they are kept) and the cgroups once this process
        has ended.
        """
        arguments = [str(data_dir or ""), str(logs), *map(str, cgroups)]
        self._janitor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(JANITOR), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self, *, clean: bool) -> None:
        """Wait until the janitor process has removed data and cgroups. ``clean``: it also removes the logs."""
        if self._janitor is not None:
            self._janitor.communicate(b"clean\n" if clean else b"")
            self._janitor = None
        self._thread.shutdown()


def telling_lines(log: Path) -> list[str]:
    """Return the last 12 lines of a log that look like errors; if no line does, the last lines."""
    if not log.is_file():
        return ["(no log was written)"]
    lines = log.read_text(errors="replace").splitlines()
    telling = [line for line in lines if TELLING.search(line)]
    return [line[:300] for line in (telling or lines)[-12:]] or ["(the log is empty)"]
