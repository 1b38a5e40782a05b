"""Mapping of label values to brokers and their series, with an HTTP API like that of Prometheus."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from bundlekeel.model.errors import AdminFault
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.pulsar import decoding
from bundlekeel.pulsar.counters import prometheus_reader as prometheus
from bundlekeel.pulsar.counters.prometheus_reader import PrometheusCounters, PrometheusOptions
from tests.support.http_server import serving
from tests.support.memory_source import RealClock


def broker(*values: str, **labels: str) -> list[object]:
    """The series of a broker without topics, scraped twice. `values`: of each scrape, instead of 1 and 2."""
    names = ("process_cpu_seconds_total", "pulsar_broker_topics_count")
    return [
        {"metric": {"__name__": name, **labels}, "values": [[1, *(values or "1")], [16, *(values or "2")]]}
        for name in names
    ]


class _Prometheus(BaseHTTPRequestHandler):
    """Has scraped `series` of one instance."""

    series: Sequence[object] = broker()
    instances: Sequence[str] = ["127.0.0.1:8080"]

    def do_GET(self) -> None:
        """Values of a label, or samples."""
        data: object = {"result": self.series} if "/query" in self.path else self.instances
        body = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


async def test_one_value_for_two_brokers_of_a_host() -> None:
    """If one target is down, neither broker gets values that may be those of the other."""
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


async def test_s02_labels_are_not_decoded_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer may have 32 MiB."""
    answers = 0

    async def noted(decode: Any, body: bytes, **options: Any) -> Any:
        nonlocal answers
        answers += 1
        return await decoding.decoded(decode, body, **options)

    monkeypatch.setattr(prometheus, "decoded", noted)
    with serving(_Prometheus) as port:
        source = PrometheusCounters(PrometheusOptions(url=f"http://127.0.0.1:{port}"), RealClock())
        await source.counters(BrokerEndpoint(broker_id="127.0.0.1:8080", web_url="http://127.0.0.1:8080"))
        await source.close()
    assert answers == 2


@pytest.mark.parametrize("odd", ["[", "[x]:1", "a:99999", "a:x", "a..b", "\0", "x" * 70, "9" * 5_000])
async def test_s03_an_instance_that_is_not_an_address_names_no_broker(odd: str) -> None:
    """`urlsplit` and the resolver raise ValueError for such labels; with them the other instances are still found."""
    instances = type("_Named", (_Prometheus,), {"instances": [odd, "127.0.0.1:8080"]})
    with serving(instances) as port:
        source = PrometheusCounters(PrometheusOptions(url=f"http://127.0.0.1:{port}"), RealClock())
        readings = await source.counters(BrokerEndpoint(broker_id="b:1", web_url="http://localhost:8080"))
        assert [item.cpu_seconds for item in readings] == [1.0, 2.0]
        with pytest.raises(AdminFault, match="no values of instance"):
            await source.counters(BrokerEndpoint(broker_id="b:2", web_url=f"http://x{odd}"))
        await source.close()


ENDPOINT = BrokerEndpoint(broker_id="127.0.0.1:8080", web_url="http://127.0.0.1:8080")


async def cpu(series: Sequence[object], **options: Any) -> list[float | None]:
    """CPU seconds of the readings that these series make."""
    with serving(type("_Scraped", (_Prometheus,), {"series": series})) as port:
        source = PrometheusCounters(PrometheusOptions(url=f"http://127.0.0.1:{port}", **options), RealClock())
        try:
            return [item.cpu_seconds for item in await source.counters(ENDPOINT)]
        finally:
            await source.close()


async def test_n_a_several_targets_are_refused_with_a_code() -> None:
    """The text of the error is what `doctor` and the log show."""
    with pytest.raises(
        AdminFault, match=r"127\.0\.0\.1:8080 in Prometheus: SeveralTargets: 2 scrape targets"
    ) as caught:
        await cpu([*broker(job="a"), *broker(job="b")])
    assert caught.value.reason == "SeveralTargets"


async def test_n_a_series_of_another_pulsar_cluster_are_refused() -> None:
    """A broker of that cluster has the same instance; ours is not scraped."""
    with pytest.raises(AdminFault, match="Pulsar's series with cluster=eu: check"):
        await cpu(broker(cluster="us"), cluster="eu")
    assert await cpu([*broker(cluster="us"), *broker(cluster="eu")], cluster="eu") == [1.0, 2.0]


async def test_n_a_a_cluster_label_of_prometheus() -> None:
    """One that replaced Pulsar's is accepted if the settings select series by it. Pulsar's renamed one still counts."""
    options: dict[str, Any] = {"cluster": "eu", "labels": {"cluster": "k8s-1"}}
    assert await cpu(broker(cluster="k8s-1"), **options) == [1.0, 2.0]
    assert await cpu(broker(cluster="k8s-1", exported_cluster="eu"), **options) == [1.0, 2.0]
    with pytest.raises(AdminFault, match="NoLoadData"):
        await cpu(broker(cluster="k8s-1", exported_cluster="us"), **options)


@pytest.mark.parametrize("ours_first", [True, False])
async def test_s08_two_clusters_of_one_instance_are_not_mixed(ours_first: bool) -> None:
    """With our cluster's name the other series are left out; without a name both are refused."""
    ours, theirs = broker(cluster="eu"), broker("5", cluster="us")
    both = [*ours, *theirs] if ours_first else [*theirs, *ours]
    assert await cpu(both, cluster="eu") == [1.0, 2.0]
    assert await cpu(both, cluster="us") == [5.0, 5.0]
    with pytest.raises(AdminFault, match="SeveralTargets"):
        await cpu(both)
