"""Counters out of a real Prometheus: its scrapes of two brokers become readings, each broker's of its own."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from bundlekeel.model.counters import measured
from bundlekeel.model.errors import AdminFault, AdminTimeout
from bundlekeel.model.load import RATE_IN, THROUGHPUT_OUT, BrokerEndpoint
from bundlekeel.pulsar.counters.prometheus_reader import PrometheusCounters, PrometheusOptions
from tests.support.contracts.coordination import eventually
from tests.support.http_server import serving
from tests.support.memory_source import RealClock
from tests.watch.server import prometheus, until

pytestmark = pytest.mark.timeout(180)
EDGES = {"t/n": [0, 0xFFFFFFFF]}


class Broker(BaseHTTPRequestHandler):
    """A broker's page: one topic, 100 messages in and 3,000 bytes out a second, a tenth of a core."""

    began = time.monotonic()
    unloaded = threading.Event()

    def do_GET(self) -> None:
        """Any path."""
        seconds = time.monotonic() - self.began
        topic = 'cluster="c",namespace="t/n",topic="persistent://t/n/x"'
        lines = [f'process_cpu_seconds_total{{cluster="c"}} {seconds / 10}']
        lines.append(f'pulsar_broker_topics_count{{cluster="c"}} {1 - self.unloaded.is_set()}')
        if not self.unloaded.is_set():
            lines += [
                f"pulsar_in_messages_total{{{topic}}} {100 * seconds}",
                f"pulsar_in_bytes_total{{{topic}}} 0",
                f'pulsar_out_messages_total{{{topic},subscription="s"}} 0',
                f'pulsar_out_bytes_total{{{topic},subscription="s"}} {3000 * seconds}',
                f"pulsar_consumers_count{{{topic}}} 1",
                f"pulsar_producers_count{{{topic}}} 1",
            ]
        body = "\n".join([*lines, ""]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def endpoint(port: int) -> BrokerEndpoint:
    """A broker on this machine."""
    return BrokerEndpoint(broker_id=f"localhost:{port}", web_url=f"http://localhost:{port}")


async def unloaded(source: PrometheusCounters, port: int) -> bool:
    """Whether the newest reading of a broker has no topic."""
    return (await source.counters(endpoint(port)))[-1].namespaces == ()


async def test_scrapes_become_readings(tools: dict[str, Path], tmp_path: Path) -> None:
    """The rates are those of the counters, whatever moment is asked at; a topic that is gone is gone at once."""
    with serving(Broker) as first, serving(Broker) as second:
        targets = (f"127.0.0.1:{first}", f"127.0.0.1:{second}")
        async with prometheus(tools["prometheus"], tmp_path, *targets) as http:
            await until(http, "count(count_over_time(process_cpu_seconds_total[1m]) > 2) == 2")
            url = str(http.base_url)
            source = PrometheusCounters(PrometheusOptions(url=url, labels={"cluster": "c"}), RealClock())
            # By name it is the host's addresses that tell which target it is, and the port.
            for port in (first, second):
                readings = await source.counters(endpoint(port))
                assert len(readings) == 3
                load = measured(readings[1], readings[2], EDGES)
                assert load is not None
                assert load.traffic[0, RATE_IN] == pytest.approx(100.0, rel=0.1)
                assert load.traffic[0, THROUGHPUT_OUT] == pytest.approx(3000.0, rel=0.1)
                assert load.cpu_cores == pytest.approx(0.1, rel=0.1)
                assert 900 <= load.to_ms - load.from_ms <= 1100
                assert abs(load.to_ms - time.time() * 1000) < 5000
            Broker.unloaded.set()
            try:
                await eventually(lambda: unloaded(source, first), within=60)
            finally:
                Broker.unloaded.clear()
            with pytest.raises(AdminFault, match="2 values of instance stand for localhost:1; Prometheus knows 127"):
                await source.counters(endpoint(1))
            await source.close()
            elsewhere = PrometheusCounters(PrometheusOptions(url=url, labels={"cluster": "other"}), RealClock())
            with pytest.raises(AdminFault, match="Prometheus knows none"):
                await elsewhere.counters(endpoint(first))
            await elsewhere.close()


async def test_a_prometheus_that_is_away() -> None:
    """The error message contains no secret."""
    source = PrometheusCounters(PrometheusOptions(url="http://127.0.0.1:1"), RealClock())
    with pytest.raises(AdminTimeout, match="Prometheus did not answer: ConnectError"):
        await source.counters(endpoint(80))
    await source.close()
