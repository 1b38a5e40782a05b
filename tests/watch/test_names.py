"""Panels, alerts and recording rules speak of metrics and labels that exist, and say what they show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundlekeel.records.metrics import METRICS, PrometheusTelemetry
from tests.support.world import FakeCluster, FakeSidecar
from tests.watch.promql import (
    BOARDS,
    ROOT,
    TARGET,
    Known,
    annotations,
    documents,
    flat,
    groupings,
    panel_queries,
    panels,
)

KNOWN = Known.now()
# Grafana's own units that we use, and words behind the figure: its unit `d` shows 60 days as 8.6 weeks.
UNITS = {"none", "percentunit", "percent", "s", "ms", "bytes", "Bps", "mps", "cpm", "cps", "reqps"}
UNITS |= {"suffix:days", "suffix:cores"}

# Tiles that are red without a leader. Selecting an instance must not turn them red.
WHOLE_CLUSTER = ("bundlekeel-overview/Leaders", "bundlekeel-overview/What is in the way")

INCREASE = re.compile(r"increase\(bundlekeel_(\w+)_total")

QUERIES = [*panel_queries(), *((f"{board}/{item['name']}", item["expr"]) for board, item in annotations())]


@pytest.mark.parametrize(("place", "query"), QUERIES, ids=lambda value: value[:60])
def test_panels_name_what_exists(place: str, query: str) -> None:
    """Metrics, labels in selectors and in groupings. Every query respects the selected cluster, job and instance."""
    assert KNOWN.faults(query) == [], place
    selectors = re.findall(r"(bundlekeel_\w+|pulsar_\w+|ALERTS)(\{[^}]*\})?", query)
    assert selectors
    for name, choice in selectors:
        # The brokers are another job.
        assert "$cluster" in choice and ("$job" in choice) != name.startswith("pulsar_")
        # Most alerts are of all instances together, and have no such label; a follower alone has no leader.
        assert ("$instance" in choice) == (name.startswith("bundlekeel_") and place not in WHOLE_CLUSTER)


@pytest.mark.parametrize(("place", "query"), QUERIES, ids=lambda value: value[:60])
def test_loads_on_panels_are_those_of_the_leader(place: str, query: str) -> None:
    """The other sidecars read no counters: their loads are as old as reports, and a maximum would show those. Metrics
    of the leader keep their last value at a former leader, and operator requests at a sidecar without a store.
    """
    loaded, led = (
        r"broker_(?!splits_itself)|load_spread|snapshot_age",
        "bundles_served_twice|drain_bundles|effect_|live_load_|open_intents|paused|quarantined_|quota_rates_|takeover_in|unreadable_",
    )
    # Whether a series existed some time ago is not a load.
    loads = re.findall(rf"bundlekeel_(?:{loaded}|{led})\w*\{{[^}}]*\}}(?! offset)", query)
    assert query.count("} == on (cluster, job) group_left () max by (cluster, job) (bundlekeel_leader{") >= len(loads)


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_a_line_for_each_broker_heeds_the_choice_of_brokers(file: Path) -> None:
    """A hundred brokers are hundreds of lines; what counts or compares all of them does not change."""
    targets = [target for panel in flat(json.loads(file.read_text())) for target in panel.get("targets", [])]
    for target in targets:
        by_broker = "{{broker}}" in target.get("legendFormat", "")
        selectors = re.findall(r"(bundlekeel_\w+)\{([^}]*)\}", target["expr"])
        heeding = {
            'broker=~"$broker"' in choice for name, choice in selectors if "broker" in KNOWN.labels.get(name, ())
        }
        assert heeding <= {by_broker}, target["expr"]


def test_each_metric_is_on_a_panel() -> None:
    """Every metric can be looked up on a dashboard."""
    metrics = set(re.findall(r"bundlekeel_(\w+)", " ".join(query for _, query in QUERIES)))
    assert [m.name for m in METRICS if m.name + "_bucket" * (m.kind == "histogram") not in metrics] == []


@pytest.mark.parametrize("file", ["alerts.yml", "recording.yml"])
def test_rules_name_what_exists(file: str) -> None:
    """Also the labels in an alert's sentences."""
    for rule in documents(file):
        assert KNOWN.faults(rule["expr"]) == [], rule
        text = " ".join(rule.get("annotations", {}).values())
        labels_used = set(re.findall(r"\$labels\.(\w+)", text))
        assert labels_used <= (set(groupings(rule["expr"])) | KNOWN.of(rule["expr"])) and "$labels" not in re.sub(
            r"\$labels\.\w+", "", text
        )


def test_queries_of_the_docs_name_what_exists() -> None:
    """They are copied into users' own dashboards."""
    page = (ROOT / "docs/operations/reading-metrics.md").read_text(encoding="utf-8")
    queries = re.findall(r"^ *```promql\n(.+?)^ *```", page, re.MULTILINE | re.DOTALL)
    assert len(queries) == 2
    assert [fault for query in queries for fault in KNOWN.faults(query)] == []


def test_inhibitions_of_the_docs_name_what_exists() -> None:
    """Alerts that fire for the same reason; by labels that both have."""
    page = (ROOT / "docs/operations/reading-metrics.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(inhibit_rules:\n.+?)^```", page, re.MULTILINE | re.DOTALL)
    alerts = {rule["alert"]: rule["expr"] for rule in documents("alerts.yml")}
    pairs = []
    for rule in yaml.safe_load(block)["inhibit_rules"]:
        pair = [rule[side][0].removeprefix("alertname = ") for side in ("source_matchers", "target_matchers")]
        assert all(set(rule["equal"]) <= KNOWN.of(alerts[name]) for name in pair)
        pairs.append(tuple(pair))
    assert pairs == [
        ("BundlekeelNoLeader", "BundlekeelStoreUnavailable"),
        ("BundlekeelStoppedByItself", "BundlekeelTakenOverNotActing"),
        ("BundlekeelChannelNotFollowed", "BundlekeelStoppedByItself"),
        ("BundlekeelTakenOverNotActing", "BundlekeelPausedLong"),
        ("BundlekeelCannotDecide", "BundlekeelBrokersExcluded"),
    ]


def test_the_process_is_measured_under_our_prefix() -> None:
    """Memory and CPU are there. Brokers are recognised in Prometheus by `process_cpu_seconds_total`, so it is not one
    of ours.
    """
    lines = PrometheusTelemetry().render("text/plain")[0].decode().splitlines()
    assert {"bundlekeel_process_resident_memory_bytes", "bundlekeel_process_cpu_seconds_total"} <= {
        line.split()[0] for line in lines
    }
    assert not any(line.startswith("process_") for line in lines)


# Counters whose first event may go unseen, as more of them follow: each cycle, second, file or batch of spans.
# That notifications begin at 0 is tested in tests/unit/records/test_notify.py.
GOING_ON = {"drain_bundle_seconds", "excluded_reports", "imputed_fields", "shadow_cycles", "history_files"}
GOING_ON |= {"trace_spans", "notifications"}


async def test_counters_begin_at_zero() -> None:
    """Metrics of alerts, records and panels start at 0: else `increase` does not see the first event. Tasks are
    registered when they run.
    """
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await sidecar.cycle.turn()
    missing: list[str] = []

    async def body() -> None:
        missing.extend(sidecar.metric("").splitlines())
        sidecar.runtime.request_stop()

    await sidecar.runtime.root("observer", body)
    assert 'bundlekeel_unexpected_errors_total{where="observer"} 0.0' in missing
    rules = [rule["expr"] for rule in [*documents("alerts.yml"), *documents("recording.yml")]]
    counted = {name for query in rules + [query for _, query in QUERIES] for name in INCREASE.findall(query)}
    assert counted >= GOING_ON
    for name in counted - GOING_ON:
        assert any(re.match(rf"bundlekeel_{name}_total(?:{{.*}})? 0\.0$", line) for line in missing), name


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(bundlekeel_no_such_total)", "no metric bundlekeel_no_such_total"),
        ('bundlekeel_leader{broker="b"}', "bundlekeel_leader has no label broker"),
        ("sum by (broker) (bundlekeel_leader)", "no metric of it has a label broker"),
        ("bundlekeel_move_duration_seconds", "no metric bundlekeel_move_duration_seconds"),
        ("job:bundlekeel_nothing:sum", "no metric job:bundlekeel_nothing:sum"),
    ],
)
def test_what_does_not_exist_is_found(query: str, fault: str) -> None:
    """Else the tests above would hold for anything."""
    assert KNOWN.faults(query) == [fault]


@pytest.mark.parametrize(("file", "panel"), panels(), ids=lambda value: value if isinstance(value, str) else None)
def test_panels_say_what_they_show(file: str, panel: dict[str, Any]) -> None:
    """Title, description, unit, and a legend for each query whose labels the query keeps."""
    assert panel["title"] and panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert target["legendFormat"]
        labels = set(groupings(target["expr"])) | KNOWN.of(target["expr"])
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels
    # An override is of a field that is there: a series by its legend after the cluster, or a column by its label.
    legends = [re.sub(r"\{\{\w+\}\}", r"\\w+", target["legendFormat"]) for target in panel["targets"]]
    for override in panel["fieldConfig"]["overrides"]:
        legend_pattern = re.sub(r"^/\(\^\| \)(.+)\$/$", r"any \1", override["matcher"]["options"])
        assert any(re.fullmatch(pattern, legend_pattern) for pattern in legends)


@pytest.mark.parametrize(("file", "panel"), panels(), ids=lambda value: value if isinstance(value, str) else None)
def test_no_data_is_not_good_news(file: str, panel: dict[str, Any]) -> None:
    """A panel without data has its own message, and a tile is then not green: its first colour is the colour of no
    value, since no real value is below 0.
    """
    defaults = panel["fieldConfig"]["defaults"]
    assert len(defaults["noValue"]) >= 10
    if panel["type"] in ("stat", "bargauge"):
        (lowest, *_) = defaults["thresholds"]["steps"]
        assert lowest == {"color": lowest["color"], "value": None} and lowest["color"] in ("text", "red")


def test_counts_have_no_decimals() -> None:
    """`increase` extrapolates, so it returns fractions of counts."""
    for board, panel in panels():
        defaults = panel["fieldConfig"]["defaults"]
        if defaults["unit"] == "none" and "increase(" in str(panel["targets"]):
            assert defaults.get("decimals") == 0, f"{board}/{panel['title']}"


def test_age_and_share_are_not_stacked() -> None:
    """Ages of two brokers, or shares of two clusters, have no sum."""
    for board, panel in panels():
        if panel["fieldConfig"]["defaults"].get("custom", {}).get("stacking"):
            assert panel["fieldConfig"]["defaults"]["unit"] in ("none", "cpm", "cps"), f"{board}/{panel['title']}"


def test_states_over_time_have_words_and_colours() -> None:
    """Grafana's own colours of a state timeline go from green at 0 to red at 1, and its words are 0 and 1."""
    states = {}
    for board, panel in panels():
        if panel["type"] == "state-timeline":
            (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
            assert mapping["type"] == "value"
            states[board, panel["title"]] = {
                value: (option["text"], option["color"]) for value, option in mapping["options"].items()
            }
    assert states == {
        ("bundlekeel-calibration", "Why it is not adopted"): {"1": ("objection", "orange")},
        ("bundlekeel-health", "Who leads"): {"0": ("follower", "#808080"), "1": ("leader", "green")},
        ("bundlekeel-health", "Store"): {"0": ("away", "red"), "1": ("connected", "green")},
        ("bundlekeel-health", "Channel and load topics"): {"0": ("not followed", "red"), "1": ("followed", "green")},
    }


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_moves_pauses_and_leader_changes_are_marked(file: Path) -> None:
    """On every dashboard, by texts whose labels their queries keep."""
    marked = [item for board, item in annotations() if board == file.stem]
    assert [item["name"] for item in marked] == ["Moves", "Paused", "Leader changes"]
    for item in marked:
        assert item["enable"] and item["datasource"]["uid"] == "${datasource}"
        assert set(re.findall(r"\{\{(\w+)\}\}", item["textFormat"])) <= set(groupings(item["expr"]))


def test_a_table_counts_the_moves_of_the_time_shown() -> None:
    """Every label of the query has a column, and so has the count."""
    ((board, panel),) = [(name, panel) for name, panel in panels() if panel["title"] == "Moves in the time shown"]
    (target,) = panel["targets"]
    assert board == "bundlekeel-actions" and target["format"] == "table" and target["instant"]
    assert "increase(bundlekeel_moves_by_rule_total" in target["expr"] and "[$__range]" in target["expr"]
    columns = panel["transformations"][0]["options"]["indexByName"]
    assert set(columns) == {*groupings(target["expr"]), "Value"}


def test_firing_alerts_are_told_apart_and_link_to_their_runbooks() -> None:
    """On the overview, by every label that their sentences name, at the address that a variable has; every dashboard
    links to the web page by another one."""
    ((board, panel),) = [(name, panel) for name, panel in panels() if "ALERTS" in panel["targets"][0]["expr"]]
    labels = set(groupings(panel["targets"][0]["expr"]))
    for rule in documents("alerts.yml"):
        assert set(re.findall(r"\$labels\.(\w+)", str(rule))) <= labels, rule["alert"]
    assert set(panel["transformations"][0]["options"]["indexByName"]) == labels
    (link,) = [item["value"][0] for item in panel["fieldConfig"]["overrides"][0]["properties"]]
    assert (board, link["url"]) == ("bundlekeel-overview", "${runbooks}/${__data.fields.alertname}.html")
    for file in BOARDS:
        assert "${page}" in [item.get("url") for item in json.loads(file.read_text(encoding="utf-8"))["links"]]


def unit(query: str) -> tuple[str, str]:
    """Return the counted unit of a query, and its time unit."""
    named = re.search(
        r"_(seconds|ratio|bytes)(?:_per_second|_bucket|_sum)?[{]", query.replace('_percent"}) / 100', "_ratio{")
    )
    return "".join(named.groups() if named else ()), "".join(set(re.findall(r"(rate|increase)\(", query)))


@pytest.mark.parametrize(("file", "panel"), panels(), ids=lambda value: value if isinstance(value, str) else None)
def test_an_axis_has_one_unit(file: str, panel: dict[str, Any]) -> None:
    """Seconds, ratios, rates and counts are on panels of their own."""
    assert len({unit(target["expr"]) for target in panel["targets"]}) == 1, f"{file}/{panel['title']}"


@pytest.mark.parametrize(("place", "query"), QUERIES, ids=lambda value: value[:60])
def test_clusters_stay_apart(place: str, query: str) -> None:
    """Every sum, maximum and so on is per cluster, whatever is selected on top, and joins use the cluster."""
    aggregations = re.findall(
        r"\b(?:sum|min|max|avg|count|topk|quantile)\b(?!=)( by \([^()]*\bcluster\b[^()]*\) \()?", query
    )
    assert all(aggregations), place
    assert all("cluster" in labels for labels in re.findall(r"\bon \(([^()]*)\)", query)), place
    assert "ignoring" not in query and "without" not in query, place


def test_legends_and_marks_begin_with_the_cluster() -> None:
    """So that two lines, or two marks, of the same name are told apart."""
    for board, panel in panels():
        for target in panel["targets"]:
            if target.get("format") != "table":
                assert target["legendFormat"].startswith("{{cluster}} "), f"{board}/{panel['title']}"
    assert all(item["textFormat"].startswith("{{cluster}} ") for _, item in annotations())


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_dashboards_are_whole(file: Path) -> None:
    """The file has the normal form that gives readable differences. Ids are unique, panels do not overlap, provisioned
    dashboards are read-only, and the variables exist.
    """
    text = file.read_text(encoding="utf-8")
    board = json.loads(text)
    assert text == json.dumps(board, indent=2, sort_keys=True) + "\n"
    assert board["uid"] == file.stem and board["schemaVersion"] > 0 and not board["editable"]
    variables = {item["name"]: item for item in board["templating"]["list"]}
    choices = {*TARGET, "broker"}
    assert set(variables) == {"datasource", "runbooks", "page", *choices}
    assert all(variables[name]["allValue"] == ".*" and variables[name]["includeAll"] for name in choices)
    queries = {name: re.findall(r"\$(\w+)", variables[name]["query"]) for name in choices}
    narrowed = ["cluster", "job"]
    assert queries == {"cluster": [], "job": ["cluster"], "instance": narrowed, "broker": narrowed}
    ids = [panel["id"] for panel in flat(board)]
    assert len(set(ids)) == len(ids)
    places: set[tuple[int, int]] = set()
    for panel in flat(board):
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at.get("x", 0), at.get("x", 0) + at["w"])
            for y in range(at.get("y", 0), at.get("y", 0) + at["h"])
        }
        assert not cells & places and at.get("x", 0) + at["w"] <= 24, panel["title"]
        places |= cells


def test_there_are_five_and_nothing_else() -> None:
    """No test would check another file there."""
    assert len(BOARDS) == len(list(BOARDS[0].parent.iterdir())) == 5
