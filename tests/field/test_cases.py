"""Inputs from public reports of people who run balancers, each with its correct decision; figures and names are ours.

One command runs all: `python -m pytest tests/field`. `inputs/`: lines for `bundlekeel decide`, and scenarios for
`bundlekeel simulate`. The number of a case is that of its report.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.counters import measured, with_measured
from bundlekeel.model.errors import CodecError
from bundlekeel.model.load import BANDWIDTH_OUT, CPU, THROUGHPUT_OUT, BrokerReport
from bundlekeel.model.names import bundle_for_hash, parse_topic
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.pulsar.admin.hosts import KnownHosts
from bundlekeel.pulsar.formats.broker_metrics import PageLines, decode_counters
from bundlekeel.pulsar.formats.records import decode_endpoint, decode_ephemeral, decode_leader_broker
from bundlekeel.pulsar.formats.report import decode_report
from bundlekeel.simulator import sim_files
from bundlekeel.simulator.run import Contender, Run, Source, simulate
from tests.support.builders import eager, snapshot
from tests.support.deciding import ask

INPUTS = Path(__file__).parent / "inputs"
B1, B2, B3 = (f"b{number}:8080" for number in (1, 2, 3))


def answer(name: str) -> dict[str, Any]:
    """The answer to the last line of a case."""
    path = INPUTS / f"{name}.jsonl"
    raw = path.read_bytes() if path.exists() else gzip.decompress(path.with_suffix(".jsonl.gz").read_bytes())
    last = ask(*raw.splitlines())[-1]
    assert "error" not in last
    return last


def moves(name: str) -> tuple[Counter[str], Counter[str]]:
    """Return how many bundles each broker loses, and receives."""
    result = answer(name)
    sources = Counter({broker: len(bundles) for broker, bundles in result["unload"].items()})
    return sources, Counter(result["to"].values())


@pytest.mark.parametrize("name", ["02-averages-worn-to-nothing", "02-averages-worn-to-nothing-denormal"])
def test_02_averages_of_nothing(name: str) -> None:
    """Stored averages of about 0 at 18 MB/s: two of four equal bundles leave the only loaded broker."""
    assert moves(name) == ({B1: 2}, {B2: 2})


def test_03_a_cpu_limit_that_cannot_be_true() -> None:
    """150 % of the limit of a cpuset: the answer names broker, figures and setting."""
    verdict = answer("03-cpu-above-100-one")["verdict"]
    assert verdict["code"] == Code.WRONG_LIMIT
    assert all(text in verdict["sentence"] for text in (B1, "34.5 cores", "its limit is 23", "capacity"))


def test_05_a_policy_that_matches_no_broker() -> None:
    """Brokers written with ports: an unload would leave the bundles without an owner."""
    result = answer("05-policy-with-ports")
    assert result["to"] == {} and "PolicyWithoutBrokers" in result["verdict"]["sentence"]
    assert {item["detail"] for item in result["refused"] if item["code"] == "PolicyWithoutBrokers"} == {
        "isolation policy p1 matches no broker"
    }


def test_06_all_brokers_have_too_many_topics() -> None:
    """The limit does not apply then: one bundle goes to each of the others."""
    assert moves("06-all-above-max-topics") == ({B1: 2}, {B2: 1, B3: 1})


def test_07_cpu_that_no_bundle_causes() -> None:
    """92 % of CPU for 60 msg/s: the verdict says that no move helps, and by how much."""
    result = answer("07-cpu-not-of-bundles")
    assert (result["to"], result["verdict"]["code"]) == ({}, Code.BASE_LOAD)
    assert "its bundles cause 0.1% of 92.0%" in result["verdict"]["sentence"]


def test_08_hot_bundles_on_two_of_eight() -> None:
    """Six of eight hot bundles go to the six cold brokers."""
    sources, targets = moves("08-hot-topics-on-two")
    assert sorted(sources.values()) == [3, 3] and sorted(targets.values()) == [1] * 6


def test_09_bytes_not_messages() -> None:
    """The network card is hot, so the bundle with 90 MB/s moves, not the one with 60,000 msg/s in 6 MB/s."""
    (bundle,) = answer("09-messages-are-not-bytes")["to"]
    assert bundle.startswith("shop/big/")


@pytest.mark.parametrize("name", ["14-look-ahead-in-policy", "14-look-ahead-in-policy-brokers"])
def test_14_java_patterns(name: str) -> None:
    """A negative look-ahead, of namespaces or of brokers, freezes nothing else."""
    assert moves(name) == ({"b1.x:8080": 2}, {"b2.x:8080": 2})


def test_22_partitions_on_two_of_three() -> None:
    """One bundle goes to the broker that has no partition of the topic."""
    assert moves("22-partitions-on-two-of-three")[1] == {B3: 1}


@pytest.mark.parametrize("name", ["23-broker-conf-as-text", "23-broker-conf-as-text-4.0", "23-broker-conf-as-text-4.2"])
def test_23_all_keys_of_an_old_broker_conf(name: str) -> None:
    """Values as text, two of them empty: no key is refused (`answer` allows no error)."""
    assert answer(name)["verdict"]["code"] in (Code.OVERLOADED, Code.NO_BUNDLES)


@pytest.mark.parametrize("name", ["26-extensible-fresh-broker", "26-extensible-manual-sample"])
def test_26_extensible_records(name: str) -> None:
    """A new broker without `weightedMaxEMA`, and the fields of the manual's sample: b-1 gives one or two bundles."""
    sources, targets = moves(name)
    assert sources.keys() == {"b-1:8080"} and 1 <= sources.total() <= 2 and targets.keys() <= {"b-2:8080", "b-3:8080"}


def test_31_even_groups_of_unequal_load() -> None:
    """Two groups, each even in itself: the verdict names the policies, and asks for no split and no broker."""
    result = answer("31-even-groups-of-unequal-load")
    assert result["to"] == {} and "isolation policies cause the difference" in result["verdict"]["sentence"]
    assert "split" not in str(result["verdict"]) and "add" not in str(result["verdict"])


def test_32_what_a_swap_gains_counts_in_debug_mode() -> None:
    """Like Pulsar 4.2.4: with `loadBalancerDebugModeEnabled`, one more bundle moves."""
    assert answer("32-transfer-swap-debug")["to"]["t2/ns3/0x00017000_0x00018000"].startswith("broker-0010.")


def simulated(name: str, source: Source) -> Run:
    """A scenario, with the default strategy."""
    return simulate(
        sim_files.load(str(INPUTS / f"{name}.yaml")),
        Contender(label="avg", parameters={"strategy": "avg"}, source=source),
    )


@pytest.mark.parametrize("source", ["counters", "reports"])
def test_07_a_broker_that_others_burn(source: Source) -> None:
    """Six moves even the load at the start. No bundle goes to the broker whose CPU others burn, and six leave it."""
    run = simulated("07-leak", source)
    assert run.measures.moves <= 12
    assert {move.target for move in run.cluster.moved if move.at > 1200} == {1, 2}


@pytest.mark.parametrize("source", ["counters", "reports"])
def test_07_a_loaded_broker_that_others_burn(source: Source) -> None:
    """Eight or nine of 30 equal bundles suffice."""
    run = simulated("07-leak-loaded", source)
    assert 0 < run.measures.moves <= 12 and run.measures.moved_twice <= 2
    assert max(run.cluster.busy()) - min(run.cluster.busy()) <= 0.1 + 1e-9


@pytest.mark.parametrize("source", ["counters", "reports"])
def test_28_a_clock_that_is_ahead(source: Source) -> None:
    """There are as many moves as with right clocks, and no bundle moves twice."""
    run = simulated("28-clock-ahead", source)
    assert (run.measures.moves, run.measures.moved_twice) == (26, 0)


def bundles(first: int, count: int, of: int = 32, rate: float = 900.0, size: float = 9e6) -> dict[str, Any]:
    """Equal bundles of one namespace that has `of`, as a report shows them."""
    width = 0x100000000 // of
    edges = [*range(0, 0x100000000, width), 0xFFFFFFFF]
    traffic = {"msgRateIn": rate, "msgRateOut": rate, "msgThroughputIn": size, "msgThroughputOut": size}
    names = [f"shop/carts/0x{edges[at]:08x}_0x{edges[at + 1]:08x}" for at in range(first, first + count)]
    return {name: {**traffic, "topics": 3, "consumerCount": 1, "producerCount": 1} for name in names}


def broker(name: str, stats: dict[str, Any], percent: float, **more: Any) -> BrokerReport:
    """Return the report of a broker with four cores."""
    traffic = {key: sum(item[key] for item in stats.values()) for key in ("msgRateIn", "msgRateOut")}
    traffic |= {key: sum(item[key] for item in stats.values()) for key in ("msgThroughputIn", "msgThroughputOut")}
    blank = {"usage": 0.0, "limit": 0.0}
    report = {
        "cpu": {"usage": 4 * percent, "limit": 400.0},
        "memory": {"usage": 300.0, "limit": 2048.0},
        "directMemory": {"usage": 20.0, "limit": 2048.0},
        "bandwidthIn": blank,
        "bandwidthOut": blank,
        "lastUpdate": 1_764_000_000_000,
        "lastStats": stats,
        "bundles": list(stats),
        "loadReportType": "LocalBrokerData",
        **traffic,
        **more,
    }
    return decode_report(name, json.dumps(report).encode())


@pytest.mark.parametrize("active", [128, 127, 90])
def test_10_the_maximum_counts_all_bundles_of_a_namespace(active: int) -> None:
    """No split where the namespace has its maximum of bundles, however many are loaded."""
    hot = broker(B1, bundles(0, 1, 128, 20_000.0, 4e7), 70)
    rest = [broker(name, bundles(1 + n * 63, (active - 1) // 2, 128, 20.0, 4e4), 4) for n, name in enumerate((B2, B3))]
    memory = StrategyMemory()
    for minute in range(6):
        at = hot.last_update + 60_000 * minute
        plan_input = PlanInput(
            snapshot=snapshot([replace(item, last_update=at) for item in (hot, *rest)], wall_ms=at),
            params=Parameters(split_enabled=True, split_max_bundles=128),
            memory=memory,
            namespace_bundles={"shop/carts": 128},
        )
        result = plan(plan_input)
        memory = result.memory
    assert result.plan.splits == ()
    (refusal,) = [item for item in result.plan.split_refusals if item.code is Code.NAMESPACE_MAXIMUM]
    assert "128" in refusal.detail


@pytest.mark.parametrize(("loads", "count"), [((6, 42.0, 6, 40.0), 0), ((8, 56.0, 4, 28.0), 2)])
def test_11_an_empty_cordoned_broker(loads: tuple[int, float, int, float], count: int) -> None:
    """It takes nothing, and the mean does not count it."""
    brokers = [
        broker(B1, bundles(0, loads[0]), loads[1]),
        broker(B2, bundles(8, loads[2]), loads[3]),
        broker(B3, {}, 2),
    ]
    moves = eager(brokers, guard=GuardState(cordoned=frozenset({B3}))).plan.moves
    assert [(move.source, move.target) for move in moves] == [(B1, B2)] * count


def page(topics: dict[str, float], seconds: float, more: str = "") -> bytes:
    """Return a broker's page on which each topic has counted its msg/s for `seconds`, 100 bytes each."""
    lines = ["# TYPE process_cpu_seconds_total counter", f"process_cpu_seconds_total {10 + seconds / 100}", more]
    for topic, rate in topics.items():
        escaped = topic.replace("\\", "\\\\").replace('"', '\\"')
        labels = f'cluster="c",namespace="shop/carts",topic="{escaped}"'
        lines += [f"pulsar_producers_count{{{labels}}} 1.0", f"pulsar_consumers_count{{{labels}}} 1.0"]
        lines += [f"pulsar_in_messages_total{{{labels}}} {rate * seconds}"]
        lines += [f"pulsar_in_bytes_total{{{labels}}} {100 * rate * seconds}"]
        lines += [f'pulsar_out_messages_total{{{labels},subscription="s"}} {rate * seconds}']
        lines += [f'pulsar_out_bytes_total{{{labels},subscription="s"}} {100 * rate * seconds}']
    return ("\n".join(lines) + "\n").encode()


def test_16_quotation_marks_in_names_of_topics() -> None:
    """Each topic is in the bundle of its real name."""
    edges = [*range(0, 0x100000000, 0x10000000), 0xFFFFFFFF]
    topics = {'persistent://shop/carts/"eu"': 10.0, 'persistent://shop/carts/"us"': 20.0}
    topics |= {"persistent://shop/carts/a\\b": 30.0, "persistent://shop/carts/caf\u00e9 {1},2": 40.0}
    first, second = (decode_counters(page(topics, at), from_ms=int(1000 * at), to_ms=int(1000 * at)) for at in (10, 20))
    load = measured(first, second, {"shop/carts": edges})
    assert load is not None
    expected = Counter[str]()
    for topic, rate in topics.items():
        expected[str(bundle_for_hash("shop/carts", edges, parse_topic(topic).hash))] += int(rate)
    assert dict(zip(load.bundles, load.traffic[:, 0].tolist(), strict=True)) == dict(expected)
    assert expected["shop/carts/0x60000000_0x70000000"] == 10 and expected["shop/carts/0x20000000_0x30000000"] == 20


def test_17_a_topic_that_is_replicated() -> None:
    """Subscriptions and a replicator send 100 MB/s each: 200 MB/s, and the card stays at 64 %."""
    edges = [0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]
    topic = "persistent://shop/carts/orders"
    labels = f'cluster="c",namespace="shop/carts",topic="{topic}",remote_cluster="site2"'
    sent = f"pulsar_replication_rate_out{{{labels}}} 1e6\npulsar_replication_throughput_out{{{labels}}} 1e8"
    name = str(bundle_for_hash("shop/carts", edges, parse_topic(topic).hash))
    stats = {"msgRateIn": 1e6, "msgRateOut": 2e6, "msgThroughputIn": 1e8, "msgThroughputOut": 2e8}
    limits = {f"bandwidth{way}": {"usage": use, "limit": 2.5e6} for way, use in (("In", 8e5), ("Out", 1.6e6))}
    counts = {"topics": 1, "consumerCount": 1, "producerCount": 1}
    report = broker(B1, {name: {**stats, **counts}}, 30, **limits)
    at = report.last_update
    first, second = (
        decode_counters(page({topic: 1e6}, seconds, sent), from_ms=at + 1000 * seconds, to_ms=at + 1000 * seconds)
        for seconds in (10, 20)
    )
    load = measured(first, second, {"shop/carts": edges})
    assert load is not None
    result = with_measured(report, load, {})
    assert result is not None
    assert result.traffic[THROUGHPUT_OUT] == pytest.approx(2e8)
    assert result.usage[BANDWIDTH_OUT] / result.limit[BANDWIDTH_OUT] == pytest.approx(0.64)


CPU_ROWS = b'# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total{cluster="c"} 12.5\n'


@pytest.mark.parametrize(
    "rows",
    [
        b'pulsar_topics_count{cluster="c"} 0\npulsar_consumers_count{cluster="c"} 0 1650931968255\n',
        b'pulsar_broker_topics_count{cluster="c"} 0\n',
        b'pulsar_consumers_count{cluster="c"} 0\npulsar_in_bytes_total{cluster="c"} 0\n',
    ],
)
def test_18_an_idle_broker(rows: bytes) -> None:
    """A page without topics is that of an idle broker, not of none."""
    result = decode_counters(PageLines()(CPU_ROWS + rows), from_ms=0, to_ms=0)
    assert (result.cpu_seconds, len(result.keys)) == (12.5, 0)


def test_18_rows_of_namespaces_only() -> None:
    """The rows do not name bundles, so they are refused."""
    rows = b'pulsar_in_bytes_total{cluster="c",namespace="shop/carts"} 7800\n'
    with pytest.raises(CodecError):
        decode_counters(PageLines()(CPU_ROWS + rows), from_ms=0, to_ms=0)


def test_19_a_large_report() -> None:
    """4,000 bundles, 1.5 MB."""
    assert len(broker(B1, bundles(0, 4000, 4096), 40).bundle_names) == 4000


@pytest.mark.parametrize("with_token", [False, True])
@pytest.mark.parametrize("use_tls", [False, True])
def test_20_brokers_with_tls_only(with_token: bool, use_tls: bool) -> None:
    """The client uses their https addresses, and follows a redirect to one of them."""
    raw = {
        name: json.dumps(
            {
                "webServiceUrlTls": f"https://{name}:8443",
                "pulsarServiceUrlTls": f"pulsar+ssl://{name}:6651",
                "loadReportType": "LocalBrokerData",
            }
        ).encode()
        for name in ("b1", "b2")
    }
    endpoints = {f"{name}:8443": decode_endpoint(f"{name}:8443", text) for name, text in raw.items()}
    hosts = KnownHosts(endpoints, use_tls=use_tls, with_token=with_token)
    assert hosts.base_url("b1:8443") == "https://b1:8443"
    assert hosts.next_hop("https://b1:8443/admin/v2/x", "https://b2:8443/admin/v2/x") == "https://b2:8443/admin/v2/x"
    assert (
        hosts.answering_broker({"brokerUrlTls": "pulsar+ssl://b2:6651", "httpUrlTls": "https://b2:8443"}) == "b2:8443"
    )
    assert decode_leader_broker(b'{"serviceUrl":"https://b2:8443"}') == "b2:8443"


def test_27_a_report_of_2_10_without_network_cards() -> None:
    """The machine does not run Linux: bandwidth -1 of -1, no start time; records without `brokerId`."""
    blank = {"usage": -1.0, "limit": -1.0}
    stated = {"cpu": {"usage": 164.5, "limit": 1600.0}, "bandwidthIn": blank, "bandwidthOut": blank, "bundleStats": {}}
    result = broker("192.0.2.7:8080", {}, 0, **stated)
    assert (result.usage[CPU], result.usage[BANDWIDTH_OUT], result.faults) == (164.5, 0.0, ())
    owner = decode_ephemeral(b'{"nativeUrl":"pulsar://192.0.2.7:6650","httpUrl":"http://192.0.2.7:8080"}')
    assert owner.broker_id == "192.0.2.7:8080"
