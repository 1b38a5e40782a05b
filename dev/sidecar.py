"""Real sidecar processes against a local cluster, for the demo and for tests: start, ask, kill, pause, stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from dev.cluster import Cluster
from dev.cluster.process import until_stopped

_START_SECONDS = 120.0
# The local NICs report no limit and the machine may be shared, so the capacity is configured (design section 11).
SHARED_MACHINE = {"*": {"cpu": "ignore", "throughput": 4_000_000}}


def settings_for(
    cluster: Cluster, name: str, directory: Path, /, *, root: str | None = None, **changes: Any
) -> dict[str, Any]:
    """Return the content of a settings file for this cluster; `changes` replace keys.

    `root`: name of the sidecars' shared state. Sidecars of this cluster with another root do not see it.
    """
    if root is not None:
        changes["store"] = {"root": f"/bundlekeel/{root}", **changes.get("store", {})}
    return {
        "cluster": cluster.spec.cluster_name,
        "mode": "act",
        "metadata_store": cluster.metadata_url,
        "member_id": name,
        "capacity": SHARED_MACHINE,
        "api": {"port": 0, "socket": str(directory / f"{name}.sock")},
        "journal": {"path": str(directory / f"{name}.jsonl")},
        "logging": {"format": "json"},
        **changes,
    }


def secrets_of(cluster: Cluster, directory: Path) -> Path:
    """Write the secrets of a sidecar of a secured cluster, and return their directory for `BUNDLEKEEL_SECRETS_DIR`."""
    folder = directory / "secrets"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "store__sasl_password").write_text(cluster.security.passwords["bundlekeel"], encoding="utf-8")
    return folder


def secured(cluster: Cluster, token_file: Path) -> dict[str, Any]:
    """Return settings for a secured cluster: SASL and TLS for ZooKeeper, TLS and a token for the brokers."""
    ca = str(cluster.security.ca)
    return {
        "store": {"sasl_username": "bundlekeel", "tls": True, "tls_trust_certs_file": ca},
        "admin": {"token_file": str(token_file), "tls_trust_certs_file": ca, "prefer_tls": True},
    }


class SidecarError(RuntimeError):
    """A sidecar did not start or did not respond. The message contains the end of its log."""


class Sidecar:
    """A `bundlekeel run` process, with methods that send requests to its unix socket."""

    def __init__(self, name: str, settings: Mapping[str, Any], directory: Path) -> None:
        self.name = name
        self.environment: dict[str, str] = {}  # over ours; its PYTHONPATH goes before ours
        self.config = directory / f"{name}.yaml"
        self.log = directory / f"{name}.log"
        self.socket = Path(settings["api"]["socket"])
        self.config.write_text(yaml.safe_dump(dict(settings), sort_keys=False), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.socket)), base_url="http://localhost", timeout=20.0
        )

    # --- process ---

    @property
    def pid(self) -> int:
        """The process id. Raises SidecarError before `start`."""
        if self._process is None:
            raise SidecarError(f"{self.name} was not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs; True for a paused process."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> Sidecar:
        """Start the process; with `wait`, return only when its API responds."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("BUNDLEKEEL__")}
        paths = [
            variables["PYTHONPATH"] for variables in (self.environment, environment) if variables.get("PYTHONPATH")
        ]
        environment |= self.environment | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bundlekeel", "run", "-c", str(self.config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        if wait:
            self.until_answering()
        return self

    def until_answering(self) -> None:
        """Wait until the API of the process responds."""
        self.until(lambda: self.get("/livez", raw=True) is not None, "its API answers", within=_START_SECONDS)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self.send(signal.SIGKILL)
        self.ended(10.0)

    def pause(self) -> None:
        """Send SIGSTOP: the process freezes as in a long GC or on a suspended machine."""
        self.send(signal.SIGSTOP)
        if self._process is not None:
            until_stopped(self._process)

    def resume(self) -> None:
        """Send SIGCONT to the paused process."""
        self.send(signal.SIGCONT)

    def stop(self, within: float = 40.0) -> int:
        """Send SIGTERM, wait for the end, and return the exit code. After `within` seconds, kill the process and raise
        SidecarError.
        """
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
        return self.ended(within)

    def cost(self) -> tuple[float, float]:
        """Return (resident MiB, CPU seconds so far) of the process and of its child that reads topics."""
        resident, used = 0.0, 0.0
        main = psutil.Process(self.pid)
        for process in (main, *main.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                resident, used = resident + process.memory_info().rss / 2**20, used + times.user + times.system
        return resident, used

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def ended(self, within: float) -> int:
        """Wait for the end of the process. Return its exit code, or minus the number of the signal that ended it. If it
        does not end within `within` seconds, kill it and raise SidecarError."""
        assert self._process is not None
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10.0)
            raise SidecarError(f"{self.name} did not end within {within:.0f} s:\n{self.tail()}") from None

    # --- questions ---

    def get(self, path: str, *, raw: bool = False, **query: Any) -> Any:
        """Send a GET to the unix socket. Return the response as JSON (with `raw`: as text); None: no response."""
        if not self._listening():
            return None
        try:
            answer = self._http.get(path, params=query)
        except httpx.TransportError:
            return None
        return answer.text if raw else answer.json()

    def _listening(self) -> bool:
        """Return whether the unix socket accepts connections. This is checked before a request, because httpcore leaks
        the sockets of failed attempts.
        """
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Send a POST to the unix socket."""
        return self._http.post(path, json=dict(body))

    def put(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Send a PUT to the unix socket."""
        return self._http.put(path, json=dict(body))

    def delete(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Send a DELETE with a body to the unix socket."""
        return self._http.request("DELETE", path, json=dict(body))

    def answer(self, path: str) -> tuple[int, str]:
        """Send a GET to the unix socket. Return status and text. Raises httpx.TransportError without a response."""
        response = self._http.get(path)
        return response.status_code, response.text

    def state(self) -> dict[str, Any]:
        """Return `/api/v1/state`, or an empty dict without a response."""
        answer = self.get("/api/v1/state")
        return answer if isinstance(answer, dict) else {}

    def picture(self) -> list[dict[str, Any]]:
        """Return the brokers in the sidecar's snapshot of the cluster: `/api/v1/brokers` without excluded brokers."""
        answer = self.get("/api/v1/brokers")
        rows = answer if isinstance(answer, list) else []
        return [row for row in rows if row["state"] == "ok"]

    def moves(self) -> list[dict[str, Any]]:
        """Return every record of a move in the shared state, oldest first."""
        answer = self.get("/api/v1/journal", kind="move", limit=1000)
        return answer if isinstance(answer, list) else []

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a metric that have these labels. `name`: without the prefix
        `bundlekeel_`.
        """
        text = self.get("/metrics", raw=True) or ""
        total = 0.0
        for line in text.splitlines():
            head, _, value = line.rpartition(" ")
            if head.split("{")[0] == f"bundlekeel_{name}" and all(f'{k}="{v}"' in head for k, v in labels.items()):
                total += float(value)
        return total

    def records(self) -> list[dict[str, Any]]:
        """Return the records in the process's own journal."""
        path = Path(yaml.safe_load(self.config.read_text(encoding="utf-8"))["journal"]["path"])
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def until(self, holds: Any, what: str, *, within: float) -> None:
        """Poll until `holds()` is true. Raises SidecarError, with the log's end, after `within` seconds or if the
        process ended.
        """
        deadline = time.monotonic() + within
        while not holds():
            if not self.alive:
                raise SidecarError(f"{self.name} ended while waiting until {what}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise SidecarError(f"{self.name}: not within {within:.0f} s: {what}\n{self.tail()}")
            time.sleep(0.05)

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of the process's log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def close(self) -> None:
        """Stop the process if it still runs."""
        with contextlib.suppress(SidecarError):
            self.stop()
        self._http.close()


def leader_of(sidecars: list[Sidecar]) -> Sidecar | None:
    """Return the running sidecar that reports that it leads; None: no sidecar leads."""
    return next((item for item in sidecars if item.alive and item.state().get("role") == "leader"), None)


@contextlib.contextmanager
def running(
    cluster: Cluster, names: list[str], directory: Path, /, *, start: bool = True, **changes: Any
) -> Iterator[list[Sidecar]]:
    """Start sidecars with these names during the block, and stop them at its end."""
    sidecars = [Sidecar(name, settings_for(cluster, name, directory, **changes), directory) for name in names]
    try:
        if start:
            for item in sidecars:
                item.start(wait=False)
            for item in sidecars:
                item.until_answering()
        yield sidecars
    finally:
        for item in sidecars:
            item.close()


def bundlekeel(*arguments: str, within: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run the `bundlekeel` command in a process and return its result, whatever the exit code is."""
    return subprocess.run(
        [sys.executable, "-m", "bundlekeel", *arguments], capture_output=True, text=True, timeout=within, check=False
    )
