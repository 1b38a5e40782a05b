"""Which value of a label stands for which broker, as Prometheus' HTTP API says."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler

import pytest

from bundlekeel.adapters.prometheus import PrometheusCounters, PrometheusOptions
from bundlekeel.core.model.errors import AdminFault
from bundlekeel.core.model.load import BrokerEndpoint
from tests.support.http_server import serving
from tests.support.memory_source import RealClock


class _Prometheus(BaseHTTPRequestHandler):
    """Knows one target, scraped twice: a broker without topics."""

    def do_GET(self) -> None:
        """Values of a label, or samples."""
        series = {"metric": {"__name__": "process_cpu_seconds_total"}, "values": [[1, "1"], [16, "2"]]}
        data: object = {"result": [series]} if "/query" in self.path else ["127.0.0.1:8080"]
        body = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


async def test_one_value_for_two_brokers_of_a_host() -> None:
    """The other one's target is down: neither is shown with figures that may be the other's."""
    first, second = (
        BrokerEndpoint(broker_id=f"127.0.0.1:{port}", web_url=f"http://127.0.0.1:{port}") for port in (8080, 8081)
    )
    with serving(_Prometheus) as port:
        source = PrometheusCounters(PrometheusOptions(url=f"http://127.0.0.1:{port}"), RealClock())
        assert [item.cpu_seconds for item in await source.counters(first)] == [1.0, 2.0]
        for broker in (second, first):
            with pytest.raises(AdminFault, match=r"instance=127\.0\.0\.1:8080 stands for 2 brokers"):
                await source.counters(broker)
        await source.close()
