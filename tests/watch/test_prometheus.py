"""A real Prometheus scrapes a running sidecar's API and evaluates every panel query and every rule."""

from __future__ import annotations

import asyncio
import subprocess
from itertools import product
from pathlib import Path

import httpx
import numpy as np
import pytest
from prometheus_client import Gauge

from bundlekeel.api import ApiServer
from bundlekeel.leader.state.takeover_record import FAILSAFE, encode_look
from bundlekeel.records.metrics import METRICS, PREFIX, PrometheusTelemetry
from tests.support.spied import Spied
from tests.support.world import FakeCluster, FakeSidecar
from tests.watch.promql import OTHERS, documents, panel_queries
from tests.watch.server import concrete, has, prometheus, result_of, unhealthy, until

# Values of labels that queries choose by; other labels get one of no meaning.
CHOSEN = {
    ("admin_requests_total", "route"): "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
    ("admin_request_seconds", "route"): "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
    ("admin_requests_total", "code"): "503",
    ("moves_helped_total", "result"): "helped",
    ("moves_by_rule_total", "outcome"): "done",
    ("splits_total", "outcome"): "done",
    ("feed_up", "state"): "ok",
}
# Series of the brokers that panels show.
BROKERS = [name for name in OTHERS if name.startswith("pulsar_")]
SCRAPES = 4
LOOKS = 20


def complete(telemetry: PrometheusTelemetry) -> None:
    """A sample of every metric that this cluster gives no occasion for: ownership channel, history, drains, ..."""
    text = telemetry.render("text/plain")[0].decode()
    for metric in METRICS:
        labels = {label: CHOSEN.get((metric.name, label), "any") for label in metric.labels}
        values = [value for value in labels.values() if value != "any"]
        if any(line.startswith(PREFIX + metric.name) for line in text.splitlines()) and not values:
            continue
        if metric.kind == "counter":
            telemetry.count(metric.name, 1.0, **labels)
        elif metric.kind == "table":
            row, *column = labels.values()
            telemetry.table(metric.name, [row], np.ones((1, 1)), column)
        elif metric.kind == "gauge":
            telemetry.gauge(metric.name, 1.0, **labels)
        else:
            telemetry.time(metric.name, 0.2, **labels)


async def empty_panels(http: httpx.AsyncClient) -> list[str]:
    """The places of queries without data. A scrape that came too late leaves a gap: those are asked again."""
    left = list(panel_queries())
    for _ in range(LOOKS):
        left = [(place, query) for place, query in left if not await result_of(http, concrete(query))]
        if not left:
            break
        await asyncio.sleep(1.0)
    return [place for place, _ in left]


async def scraped(http: httpx.AsyncClient, sidecar: FakeSidecar) -> None:
    """Run cycles until Prometheus has scraped some of them."""
    while not await has(http, f"count_over_time(up[5m]) >= {SCRAPES} and up == 1"):
        await sidecar.cycle.turn()
        sidecar.cluster.publish()
        await asyncio.sleep(0.5)


@pytest.mark.timeout(600)
async def test_a_real_prometheus_evaluates_everything(tools: dict[str, Path], tmp_path: Path) -> None:
    """No query fails and all have data. Every rule is healthy. Only the alerts of the made-up faults fire."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.telemetry.gauge("build_info", 1.0, version="test")
    # Panels are empty before the first check of the failsafe, and without a proposal.
    await sidecar.coordination.write_shared(FAILSAFE, encode_look(sidecar.clock.wall_ms()), version=None)
    sidecar.telemetry.gauge("thresholds_age_seconds", 1.0)
    await sidecar.cycle.turn()
    complete(sidecar.telemetry)
    for name, kind in product(("quota_usage", "quota_share", "quota_limit"), ("publish_bytes", "publish_messages")):
        sidecar.telemetry.gauge(name, 1.0, group="any", kind=kind)
    for name in BROKERS:
        gauge = Gauge(name, "", ["quantile"], registry=sidecar.telemetry.registry)
        gauge.labels("0.5").set(1)
        gauge.labels("0.99").set(1)
    face = Spied(sidecar.service)
    server = ApiServer(face, "127.0.0.1", 0, None)
    url = await server.start()
    try:
        async with prometheus(tools["prometheus"], tmp_path, url.removeprefix("http://")) as http:
            await scraped(http, sidecar)
            complete(sidecar.telemetry)  # the cycles removed the unfounded values
            for name in ("drain_bundles", "unsplit_bundles", "obstacle_info"):
                await until(http, PREFIX + name)
            assert "openmetrics" in face.asked("render_metrics")[-1]["accept"]
            sidecar.telemetry.count("unexpected_errors_total", where="cycle")
            await until(http, 'ALERTS{alertname="BundlekeelUnexpectedErrors",alertstate="firing"}')
            assert await empty_panels(http) == []
            await until(http, "job:bundlekeel_admin_errors:ratio_rate15m")
            for rule in documents("recording.yml"):
                assert await result_of(http, rule["record"]), rule["record"]
            assert await unhealthy(http) == []
            firing = {item["metric"]["alertname"] for item in await result_of(http, 'ALERTS{alertstate="firing"}')}
            assert not firing & {"BundlekeelAbsent", "BundlekeelNoLeader", "BundlekeelNoCycles"}
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text", "# EOF\n"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4", "\n"),
        ("*/*", "text/plain; version=0.0.4", "\n"),
    ],
)
async def test_the_scraper_chooses_the_format(accept: str, content_type: str, end: str) -> None:
    """OpenMetrics over the real port when it is asked for, else the text format."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    server = ApiServer(Spied(sidecar.service), "127.0.0.1", 0, None)
    url = await server.start()
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            answer = await http.get("/metrics", headers={"Accept": accept})
    finally:
        await server.stop()
    assert answer.headers["content-type"].startswith(content_type)
    assert answer.text.endswith(end) and "bundlekeel_cycles_total{" in answer.text
    assert ("# TYPE bundlekeel_cycles counter" in answer.text) == ("openmetrics" in accept)


def test_promtool_finds_the_metrics_well_made(tools: dict[str, Path]) -> None:
    """Names, units and help texts as Prometheus recommends; the one exception is named."""
    telemetry = PrometheusTelemetry()
    complete(telemetry)
    body = telemetry.render("text/plain")[0]
    done = subprocess.run([tools["promtool"], "check", "metrics"], input=body, capture_output=True, check=False)
    assert done.stdout + done.stderr == b"", (done.stdout + done.stderr).decode()
