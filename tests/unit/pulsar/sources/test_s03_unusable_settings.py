"""An unusable setting of one broker is treated as a setting that this broker does not show, and reported."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import Headers

from bundlekeel.api.admission import _read_body
from bundlekeel.leader.state.effective_parameters import merging
from bundlekeel.model.errors import CodecError, ConfigError
from bundlekeel.model.names import TopicName
from bundlekeel.model.parameters import coerce
from bundlekeel.model.text_format import parse_duration
from bundlekeel.planning.filters.javaregex import java_pattern
from bundlekeel.planning.filters.versions import version_key
from bundlekeel.pulsar.channel.findings import Deadlines
from bundlekeel.pulsar.formats.external_input import utc
from bundlekeel.pulsar.sources.extensible_brokers import ExtensibleBrokers
from bundlekeel.requests.doctor import examine
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.types import check_ports
from tests.support.world import BROKERS, FakeCluster
from tests.unit.pulsar.sources.test_broker_settings import asked

STATS = "statsUpdateFrequencyInSecs"
IN_FLIGHT = "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis"
WRONG = pytest.mark.parametrize("wrong", ["9" * 5_000, "inf", "nan", "-Infinity", "1e400", "9" * 20, "\u0663x"])


@WRONG
async def test_s03_a_cycle_completes_with_an_unusable_setting_of_one_broker(wrong: str) -> None:
    cluster = FakeCluster()
    keys = (STATS, IN_FLIGHT, "loadBalancerReportUpdateMinIntervalMillis")
    cluster.model.static[BROKERS[0]] |= dict.fromkeys(keys, wrong)
    cluster.model.static[BROKERS[1]] |= {STATS: "90"}
    sidecar = await asked(cluster)
    parameters = merging(LoadedSettings.defaults())
    assert parameters(sidecar.config.adoptable()).values.statistics_interval_seconds == 90.0
    report = await sidecar.cycle.turn()
    assert report.plan is not None, report.sentence
    checks = [item for item in await examine(sidecar.doctor_context()) if item.name == "broker settings"]
    assert len(checks) == 1 and checks[0].severity == "warning" and BROKERS[0] in checks[0].detail
    assert len(checks[0].detail) < 500


@WRONG
def test_s03_readers_of_broker_settings_use_the_stock_value(wrong: str) -> None:
    values = {STATS: wrong, IN_FLIGHT: wrong}
    assert Deadlines.of(values) == Deadlines()
    brokers = ExtensibleBrokers(bundles="all", stats_interval=60.0)
    brokers.settings_of = lambda _broker: values
    assert brokers.stats_seconds("b:1") == ExtensibleBrokers(bundles="all", stats_interval=60.0).stats_seconds("b:1")


@pytest.mark.parametrize("wrong", ["9" * 5_000, "-1", "\u0663", "inf"])
def test_s03_names_and_versions_with_odd_digits(wrong: str) -> None:
    assert TopicName(domain="persistent", namespace="t/n", local=f"x-partition-{wrong}").partition == -1
    assert version_key(f"4.{wrong}.0") is None
    assert version_key(f"4.2.0-{wrong}") is None or not wrong.isdecimal()
    pattern = java_pattern(f"a{{{wrong}}}")
    assert pattern is None or not pattern.matches("a")


@pytest.mark.parametrize("length", ["\u00b2", "9" * 5_000, "-1", "x", ""])
async def test_s03_a_length_that_is_not_a_number_is_refused(length: str) -> None:
    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    response, _ = await _read_body(Headers({"content-length": length}), receive)
    assert response is not None and response.status_code == 413


def test_s03_settings_and_times_with_5000_digits_are_refused() -> None:
    long = "9" * 5_000
    with pytest.raises(ConfigError):
        coerce("statistics_interval_seconds", long)
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(f"{long}s")
    with pytest.raises(ValueError, match="no port"):
        check_ports(f"a:{long}")
    for far in (float("inf"), float("nan"), 1e300, -1.0, 10**5_000):
        with pytest.raises(CodecError):
            utc(far, field="wall_ms")
