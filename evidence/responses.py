"""Check that Bundlekeel can read the largest responses that it accepts from brokers and Prometheus.

`python -m evidence.responses` starts one process per route and form of response. The process requests the route once
from a server on loopback, with the sidecar's client. The check fails if the process and its children need more memory
than the Helm chart allows, or if its event loop runs no task for longer than `MOST_SILENCE`. Responses contain as many
small values as fit into the accepted length.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

from bundlekeel.model.errors import AdminApiError
from bundlekeel.ports import BrokerEndpoint
from bundlekeel.pulsar import decoding
from bundlekeel.pulsar.admin import routes
from bundlekeel.pulsar.admin.client import HttpBrokerAdmin
from bundlekeel.pulsar.counters.prometheus_reader import PrometheusCounters, PrometheusOptions
from bundlekeel.pulsar.formats.broker_metrics import LOOKUP_FAILURES
from bundlekeel.pulsar.formats.external_input import LARGE
from bundlekeel.quotas.admin import HttpQuotaAdmin
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.wiring.clock import SystemClock
from tests.support.http_server import serving

MOST_SILENCE: Final = 0.5
# Memory limits in the Helm chart, MiB.
MOST_MIB: Final = {"sidecar": 512, "failsafe": 256}
BROKER: Final = "b:1"
_RANGE: Final = "0x00000000_0xffffffff"
_TICK: Final = 0.005
Ask = Callable[[HttpBrokerAdmin, int], Awaitable[object]]


def _filled(start: str, item: str, end: str, nbytes: int, *, joint: str = ",") -> bytes:
    """Return a body of at most `nbytes`, with as many items as possible; `{0}` in an item is its number."""
    sample = len(item.replace("{0}", "0000000")) + len(joint)
    count = (nbytes - len(start) - len(end)) // sample
    return (start + joint.join(item.replace("{0}", f"{n:07d}") for n in range(count)) + end).encode()


async def _prometheus(_admin: HttpBrokerAdmin, port: int) -> object:
    source = PrometheusCounters(PrometheusOptions(url=f"http://127.0.0.1:{port}"), SystemClock())
    return await source.counters(BrokerEndpoint(broker_id="127.0.0.1:1", web_url="http://127.0.0.1:1"))


_ENDPOINT: Final = BrokerEndpoint(broker_id=BROKER, web_url="")
_TOPICS: Final = (f'{{"t/n":{{"{_RANGE}":{{"persistent":{{', '"persistent://t/n/{0}":{"msgRateIn":1}', "}}}}")
_MIB: Final = 1024 * 1024
_DEFAULT: Final = routes.DYNAMIC.max_bytes
_PROCESS: Final = 'process_cpu_seconds_total{cluster="c"} 3\n'
_PAGE_ROW: Final = "\n".join(
    f"pulsar_{name}" + '{cluster="c",namespace="t/n",topic="persistent://t/n/{0}"} 5'
    for name in ("in_messages_total", "in_bytes_total", "consumers_count", "producers_count")
)
_SCRAPED: Final = (
    '{"data":{"result":[{"metric":{"__name__":"process_cpu_seconds_total"},"values":[[1,"3"]]},',
    '{"metric":{"__name__":"pulsar_in_messages_total","topic":"persistent://t/n/{0}"},"values":[[1,"3"]]}',
    "]}}",
)
# By name: the body, the request, and the processes that send this request. The failsafe job reads only settings,
# dynamic settings and owners.
CASES: Final[dict[str, tuple[Callable[[], bytes], Ask, tuple[str, ...]]]] = {
    "runtime settings": (
        lambda: json.dumps({f"{n:07d}": "0" * 500 for n in range(2000)}).encode(),
        lambda admin, _: admin.runtime_configuration(BROKER),
        ("sidecar", "failsafe"),
    ),
    "runtime settings, invented": (
        lambda: _filled("{", '"{0}":""', "}", routes.RUNTIME.max_bytes),
        lambda admin, _: admin.runtime_configuration(BROKER),
        ("sidecar", "failsafe"),
    ),
    "dynamic settings, escapes": (
        lambda: _filled("{", '"{0}":"\\u001b"', "}", 3_700_000),
        lambda admin, _: admin.dynamic_configuration(),
        ("sidecar", "failsafe"),
    ),
    "dynamic settings": (
        lambda: _filled("{", '"{0}":"0123456789"', "}", _DEFAULT),
        lambda admin, _: admin.dynamic_configuration(),
        ("sidecar", "failsafe"),
    ),
    "hash positions": (
        lambda: _filled('{"topicHashPositions":{', '"persistent://t/n/{0}":1', "}}", _DEFAULT),
        lambda admin, _: admin.topics_of_bundle(f"t/n/{_RANGE}", BROKER),
        ("sidecar", "failsafe"),
    ),
    "owned namespaces": (
        lambda: _filled("{", '"t/n/{0}":{}', "}", routes.OWNED.max_bytes),
        lambda admin, _: admin.owned_bundles(BROKER, "c"),
        ("sidecar",),
    ),
    "topics, of bundles": (
        lambda: _filled(*_TOPICS, routes.TOPIC_STATS.max_bytes),
        lambda admin, _: admin.bundle_loads(BROKER),
        ("sidecar",),
    ),
    "topics, empty, 3 MiB": (
        lambda: _filled(_TOPICS[0], '"{0}":{}', _TOPICS[2], 3 * _MIB),
        lambda admin, _: admin.bundle_loads(BROKER),
        ("sidecar",),
    ),
    "topics, consumers, 4 MiB": (
        lambda: _filled(_TOPICS[0] + '"x":{"subscriptions":{"s":{"consumers":[', "0", "]}}}" + _TOPICS[2], 4 * _MIB),
        lambda admin, _: admin.bundle_loads(BROKER),
        ("sidecar",),
    ),
    "topics, rates": (
        lambda: _filled(*_TOPICS, routes.TOPIC_STATS.max_bytes),
        lambda admin, _: HttpQuotaAdmin(admin.http).topic_rates(BROKER, ["t/n"]),
        ("sidecar",),
    ),
    "beans": (
        lambda: _filled("[", '{"metrics":{"CpuLoad{0}":1}}', "]", _DEFAULT),
        lambda admin, _: admin.cpu_load(BROKER),
        ("sidecar",),
    ),
    "beans, escapes": (
        lambda: _filled("[", '{"metrics":{"CpuLoad":"' + "\\u001b" * 10 + '"}}', "]", 3 * _MIB),
        lambda admin, _: admin.cpu_load(BROKER),
        ("sidecar",),
    ),
    "beans, gzip": (
        lambda: gzip.compress(b" " * (_DEFAULT - 2) + b"[]"),
        lambda admin, _: admin.cpu_load(BROKER),
        ("sidecar",),
    ),
    "metrics": (
        lambda: _filled("[", '{"metrics":{"x{0}":1}}', "]", routes.METRICS.max_bytes),
        lambda admin, _: admin.client_signs(BROKER),
        ("sidecar",),
    ),
    "page of counters": (
        lambda: _filled(_PROCESS, _PAGE_ROW, "\n", routes.PROMETHEUS.max_bytes, joint="\n"),
        lambda admin, _: admin.counters(_ENDPOINT),
        ("sidecar",),
    ),
    "page of short lines": (
        lambda: _filled(_PROCESS, "abcdefgh{0} 1", "\n", routes.PROMETHEUS.max_bytes, joint="\n"),
        lambda admin, _: admin.counters(_ENDPOINT),
        ("sidecar",),
    ),
    "page of empty lines, gzip": (
        lambda: gzip.compress(_PROCESS.encode().ljust(routes.PROMETHEUS.max_bytes, b"\n")),
        lambda admin, _: admin.counters(_ENDPOINT),
        ("sidecar",),
    ),
    "page of counters, gzip": (
        lambda: gzip.compress(_filled(_PROCESS, _PAGE_ROW, "\n", routes.PROMETHEUS.max_bytes, joint="\n"), 1),
        lambda admin, _: admin.counters(_ENDPOINT),
        ("sidecar",),
    ),
    "page of failed lookups": (
        lambda: _filled("\n", LOOKUP_FAILURES + "{x} ", "\n", routes.PROMETHEUS.max_bytes, joint="\n"),
        lambda admin, _: admin._lookups_failed(BROKER),
        ("sidecar",),
    ),
    "namespace": (
        lambda: _filled("{", '"{0}":{}', "}", _DEFAULT),
        lambda admin, _: HttpQuotaAdmin(admin.http).namespace_rates("t/n", "c"),
        ("sidecar", "failsafe"),
    ),
    "resource group": (
        lambda: _filled("{", '"{0}":{}', "}", _DEFAULT),
        lambda admin, _: HttpQuotaAdmin(admin.http).resource_group("g"),
        ("sidecar", "failsafe"),
    ),
    "Prometheus": (lambda: _filled(*_SCRAPED, LARGE.nbytes), _prometheus, ("sidecar",)),
}


def measure(case: str) -> dict[str, float | str]:
    """Request one case (a route and form of response) in a new process. Return its peak memory (MiB, with child
    processes), the longest time in which its event loop ran no task and the duration (both in seconds), and the result.
    """
    build, _, _ = CASES[case]
    body = build()

    class Handler(BaseHTTPRequestHandler):
        """Responds with the body of the case; to a request for the values of a label, with one instance."""

        def do_GET(self) -> None:
            """Respond to a GET."""
            data = b'{"data":["127.0.0.1:1"]}' if "/label/" in self.path else body
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            if data.startswith(b"\x1f\x8b"):
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            with suppress(OSError):  # a response that is too long is not read
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Do not log."""

    with serving(Handler) as port:
        command = [sys.executable, "-m", "evidence.responses", "--ask", case, "--port", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, _mib(process.pid))
            time.sleep(0.01)
        assert process.stdout is not None
        return {"nbytes": len(body), "mib": peak, **json.loads(process.stdout.read())}


def _mib(pid: int) -> float:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += (task / "children").read_text(encoding="ascii").split()
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0.0
    own = sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Rss:")) / 1024
    return own + sum(map(_mib, map(int, set(children))))


async def ask(case: str, port: int) -> dict[str, float | str]:
    """Request a case once. A task of the same event loop measures the longest time in which the loop ran no task.

    This is CPU time of the process with its threads: threads block the interpreter, but other processes must not count.
    The decoding process gets the same share of memory as in a container.
    """
    vars(decoding).update(memory_share=lambda parts: min(MOST_MIB[name] for name in CASES[case][2]) * _MIB // parts)
    admin = HttpBrokerAdmin(telemetry=PrometheusTelemetry(), clock=SystemClock())
    admin.set_endpoints({BROKER: BrokerEndpoint(broker_id=BROKER, web_url=f"http://127.0.0.1:{port}")})
    silence, started, result = 0.0, time.monotonic(), "decoded"

    async def tick() -> None:
        nonlocal silence
        last = time.process_time()
        while True:
            await asyncio.sleep(_TICK)
            now = time.process_time()
            silence, last = max(silence, now - last), now

    ticks = asyncio.ensure_future(tick())
    await asyncio.sleep(0.1)
    try:
        await CASES[case][1](admin, port)
    except AdminApiError as error:
        result = f"refused: {str(error)[:90]}"
    await asyncio.sleep(2 * _TICK)
    ticks.cancel()
    return {"silence": silence, "seconds": time.monotonic() - started, "result": result}


def main() -> int:
    """Print the table; return 1 if a limit is exceeded. With `--ask`, request one case instead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ask", choices=CASES, help="request it from --port")
    parser.add_argument("--port", type=int)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(asyncio.run(ask(options.ask, options.port))))
        return 0
    print("| response | MiB sent | asked by | peak MiB | limit MiB | silence, CPU s | seconds | result |")
    print("|---|---|---|---|---|---|---|---|")
    missed = 0
    for case in options.cases or CASES:
        measured = measure(case)
        for process in CASES[case][2]:
            limit = MOST_MIB[process]
            missed |= float(measured["mib"]) > limit or float(measured["silence"]) > MOST_SILENCE
            figures = f"{measured['mib']:.0f} | {limit} | {measured['silence']:.3f} | {measured['seconds']:.1f}"
            print(
                f"| {case} | {int(measured['nbytes']) / _MIB:.1f} | {process} | {figures} | {measured['result']} |",
                flush=True,
            )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
