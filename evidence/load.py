"""Check that a leader keeps its lease while 200 clients use its API: `make load`.

A sidecar with an in-memory cluster, of three sizes in turn, runs in its own process. The check fails if the sidecar
loses its leadership, if its event loop runs no task for longer than `MOST_SILENCE`, or if the sidecar needs more memory
than the Helm chart allows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

SIZES: Final = ((20, 50), (100, 100), (1000, 100))
CLIENTS: Final = 200
SECONDS: Final = 10.0
MOST_SILENCE: Final = 0.5
MOST_MIB: Final = 512
# Seconds that a client waits after a refused request.
_REFUSED_SECONDS: Final = 0.2
_BUNDLES: Final = "/api/v1/bundles?limit=1000"
_READS: Final = (
    *(_BUNDLES, "/api/v1/brokers", "/api/v1/overview?largest=24", "/api/v1/state", "/metrics", "/ui/", "/livez"),
    *("/api/v1/journal?limit=1000", "/api/v1/verdicts", "/api/v1/brokers/b0000:8080/why", "/api/v1/settings"),
    *("/api/v1/plans", "/api/v1/tasks", "/api/v1/operations", "/api/v1/thresholds", "/api/v1/openapi.json"),
)


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _post_plan(**changes: Any) -> bytes:
    body = json.dumps(changes)
    head = "POST /api/v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def _dry_run(_brokers: int) -> bytes:
    return _post_plan(parameters={"max_moves_per_cycle": random.randint(1, 1000)})


def _what_if(brokers: int) -> bytes:
    return _post_plan(remove_brokers=[f"b{number:04d}:8080" for number in range(brokers // 2)])


def _mixed(brokers: int) -> bytes:
    request = random.choice((_dry_run, _what_if, *_READS))
    return _get(request) if isinstance(request, str) else request(brokers)


# For each kind of request, a function that returns one. Its argument is the number of brokers.
KINDS: Final[dict[str, Callable[[int], bytes]]] = {
    "mixed": _mixed,
    "what-if": _what_if,
    "/metrics": lambda _: _get("/metrics"),
    "/bundles": lambda _: _get(_BUNDLES),
    "/events": lambda _: _get("/api/v1/events"),
}


@dataclass
class Seen:
    """Measurements of clients: seconds of each complete response, and responses by status (0: the connection was
    closed).
    """

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def quantile(self, share: float) -> float:
        """Return the seconds within which this share (0 to 1) of the responses were complete."""
        ordered = sorted(self.seconds) or [float("nan")]
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def ask(port: int, request: Callable[[], bytes], until: float, samples: Seen, address: str) -> None:
    """Run one client, one connection at a time, until `until` (loop time). `samples` gets its measurements."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        except OSError:
            samples.statuses[0] += 1
            await asyncio.sleep(_REFUSED_SECONDS)
            continue
        try:
            async with asyncio.timeout_at(until + 20):
                while loop.time() < until and await _ask_once(reader, writer, request(), samples, until):
                    pass
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            samples.statuses[0] += 1
            await asyncio.sleep(_REFUSED_SECONDS)
        finally:
            writer.close()


async def _ask_once(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, samples: Seen, until: float
) -> bool:
    began = time.perf_counter()
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    samples.statuses[status] += 1
    if b"content-length: " in head:
        left = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while left > 0 and (data := await reader.read(min(left, 1 << 18))):
            left -= len(data)
    else:
        # An event stream has no end of its own, so it is read until the time is over.
        while (left_seconds := until - asyncio.get_running_loop().time()) > 0:
            try:
                if not await asyncio.wait_for(reader.read(1 << 16), left_seconds):
                    break
            except TimeoutError:
                break
        return False
    if status == 200:
        samples.seconds.append(time.perf_counter() - began)
    else:
        await asyncio.sleep(_REFUSED_SECONDS)
    return b"connection: close" not in head


class Sidecar:
    """The process in which the sidecar under load runs."""

    def __init__(self, brokers: int, bundles: int) -> None:
        command = [sys.executable, "-m", "evidence.load", "--serve", f"{brokers}x{bundles}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._line()["port"])

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def measured(self) -> dict[str, Any]:
        """Return the sidecar's measurements since the last call: longest time in which its event loop ran no task,
        number of times that it lost leadership, and peak of its memory.
        """
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._line()

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(30)


async def load(port: int, kind: str, brokers: int, seconds: float) -> tuple[Seen, Seen]:
    """Load the sidecar with requests of one kind. Return the measurements of the clients, and those of another client
    that sent two requests per second from another address.
    """
    until = asyncio.get_running_loop().time() + seconds
    samples, probed = Seen(), Seen()
    # The sidecar accepts at most a quarter of its connections from one address.
    request = partial(KINDS[kind], brokers)
    clients = [ask(port, request, until, samples, f"127.0.0.{2 + number % 8}") for number in range(CLIENTS)]

    async def probe() -> None:
        while asyncio.get_running_loop().time() < until:
            await ask(port, partial(_get, "/livez"), asyncio.get_running_loop().time() + 0.001, probed, "127.0.0.99")
            await asyncio.sleep(0.5)

    await asyncio.gather(probe(), *clients)
    return samples, probed


def measure(sizes: Sequence[tuple[int, int]], seconds: float) -> int:
    """Load a sidecar of each size and print the table. Return 1 if a limit is exceeded, else 0."""
    missed = 0
    columns = (
        "brokers x bundles",
        "load",
        "silence s",
        "terms ended",
        "MiB",
        "p50 s",
        "p99 s",
        "probe max s",
        "status",
    )
    print(" | ".join(columns))
    for brokers, bundles in sizes:
        sidecar = Sidecar(brokers, bundles)
        try:
            for kind in ("none", *KINDS):
                sidecar.measured()
                if kind == "none":
                    time.sleep(seconds)
                    samples, probed = Seen(), Seen()
                else:
                    samples, probed = asyncio.run(load(sidecar.port, kind, brokers, seconds))
                usage = sidecar.measured()
                missed |= usage["silence"] > MOST_SILENCE or usage["terms"] > 0 or usage["mib"] > MOST_MIB
                figures = (
                    f"{usage['silence']:.3f} | {usage['terms']} | {usage['mib']:.0f} | {samples.quantile(0.5):.3f}"
                )
                times = f"{samples.quantile(0.99):.3f} | {probed.quantile(1):.3f}"
                print(f"{brokers}x{bundles} | {kind} | {figures} | {times} | {dict(sorted(samples.statuses.items()))}")
                sys.stdout.flush()
        finally:
            sidecar.stop()
    return int(missed)


def main() -> None:
    """Measure the sidecar under load and print. With `--serve`, run that sidecar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", metavar="BROKERSxBUNDLES", help="be the sidecar")
    parser.add_argument("--size", metavar="BROKERSxBUNDLES", action="append", help="only this size")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    options = parser.parse_args()
    if options.serve:
        # The sidecar is a separate process, so that its imports do not affect the clients.
        from evidence.load_sidecar import serve  # noqa: PLC0415

        serve(*map(int, options.serve.split("x")))
    else:
        sizes = [tuple(map(int, size.split("x"))) for size in options.size or ()]
        sys.exit(measure(sizes or SIZES, options.seconds))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
