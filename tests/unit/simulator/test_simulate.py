"""`bundlekeel simulate`: scenarios by name and by file, comparison, JSON, the HTML page, errors and exit codes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bundlekeel.cli.examples import EXAMPLES
from bundlekeel.model.errors import ConfigError
from bundlekeel.simulator.pairs import PROPERTIES, contender
from bundlekeel.simulator.run import simulate
from bundlekeel.simulator.sim_files import load, shipped, suite
from bundlekeel.simulator.simulate_report import COLUMNS, figure
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring

SMALL = """
name: small
title: One broker has it all
minutes: 15
brokers: [{count: 3}]
tenants:
  - {name: t/a, bundles: 12, usage: 0.3, owners: [0]}
expect:
  fewest_moves: 1
  balanced: 1.2
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A file with a scenario that the default strategy passes."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def invoke(*arguments: str) -> Result:
    """One command."""
    return CliRunner().invoke(make_app(FakeWiring), ["simulate", *arguments])


def test_help_names_what_it_does() -> None:
    """Every option is there."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", invoke("--help").stdout)
    for option in (
        "--strategy",
        "--pair",
        "--against",
        "--set",
        "--source",
        "--suite",
        "--list",
        "--seed",
        "--seeds",
        "--html",
    ):
        assert option in text


def test_the_first_example_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = EXAMPLES["simulate"][0]
    assert invoke(*shlex.split(example)[1:]).exit_code == 0
    page = (Path(__file__).parents[3] / "docs/operations/simulate.md").read_text(encoding="utf-8")
    assert page.index("\nbundlekeel ") == page.index(f"\nbundlekeel {example}\n")


@pytest.mark.skipif(shutil.which("jq") is None, reason="the page's command is one of jq")
def test_the_command_of_the_page_makes_a_scenario(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/operations/simulate.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"-o json \| jq '\n(.*?)\n' > our-cluster.yaml", page, re.DOTALL)
    entries = [
        {"bundle": "shop/orders/0x00000000_0x80000000", "broker": "b-1:8080", "score_ratio": 0.075},
        {"bundle": "shop/orders/0x80000000_0xffffffff", "broker": "b-1:8080", "score_ratio": 0.2},
        {"bundle": "shop/orders/0x00000000_0x40000000", "broker": "b-2:8080", "score_ratio": 0.0},
        {"bundle": "shop/video/0x00000000_0xffffffff", "broker": None, "score_ratio": 0.0},
    ]
    plan = subprocess.run(["jq", program], input=json.dumps(entries), capture_output=True, text=True, check=True)
    file = tmp_path / "our-cluster.yaml"
    file.write_text(plan.stdout, encoding="utf-8")
    scenario = load(str(file))
    assert [(item.name, item.sizes, item.owners) for item in scenario.tenants] == [
        ("shop/orders-0", (0.075, 0.2), (0,)),
        ("shop/orders-1", (0.0,), (1,)),
    ]
    assert [item.count for item in scenario.brokers] == [2]


def test_list_names_every_shipped_scenario() -> None:
    rows = json.loads(invoke("--list", "-o", "json").stdout)
    assert [row["name"] for row in rows] == [item.name for item in suite()]
    assert {item.name for item in suite()} == set(shipped())
    output = [line.split()[:3] for line in invoke("--list").stdout.splitlines()]
    (world,) = (row for row in rows if row["name"] == "world")
    assert (world["brokers"], world["bundles"]) == (7, 700) and ["world", "7", "700"] in output


@pytest.mark.parametrize("name", ["03-step", "world"])
def test_a_shipped_file_can_be_printed(name: str, tmp_path: Path) -> None:
    printed = invoke("--show", name)
    assert (printed.exit_code, printed.stdout) == (0, shipped()[name])
    (tmp_path / "own.yaml").write_text(printed.stdout, encoding="utf-8")
    assert load(str(tmp_path / "own.yaml")) == load(name)


def test_a_scenario_that_cannot_be_shown_is_refused_with_the_nearest() -> None:
    """Only shipped ones have a file here."""
    answer = invoke("--show", "03-stp")
    assert (answer.exit_code, "did you mean 03-step?" in answer.stderr) == (2, True)


def test_a_file_passes(scenario: Path) -> None:
    """Exit code 0, a row with its figures, and nothing on stderr into a pipe."""
    result = invoke(str(scenario))
    assert result.exit_code == 0
    assert "small: One broker has it all (15 minutes)" in result.stdout
    assert re.search(r"^avg +held +1\.\d{3}", result.stdout, re.MULTILINE)
    assert result.stderr == ""


def test_what_does_not_hold_is_exit_code_1(scenario: Path) -> None:
    scenario.write_text(SMALL.replace("fewest_moves: 1", "most_moves: 0"))
    result = invoke(str(scenario))
    assert result.exit_code == 1
    assert re.search(r"avg: most_moves: \d+, expected at most 0", result.stdout)


def test_natives_are_compared_with_and_do_not_fail_the_command(scenario: Path) -> None:
    """Threshold as brokers run it misses the bar; the command succeeds, and JSON says so."""
    scenario.write_text(SMALL + "  moved_twice: 0\n  steady_after: 3\n  most_over_minutes: 0\n")
    result = invoke(str(scenario), "--against", "native", "--pair", "threshold", "--pair", "transfer", "-o", "json")
    parsed = json.loads(result.stdout)
    by_label = {run["strategy"]: run for run in parsed["runs"]}
    assert set(by_label) == {
        "avg",
        "native avg+avg",
        "native threshold+least_resource_usage",
        "native transfer",
    }
    assert not all(item["held"] for item in by_label["native threshold+least_resource_usage"]["expected"])
    own_failures = sum(not item["held"] for item in by_label["avg"]["expected"])
    assert result.exit_code == (1 if own_failures else 0)
    assert parsed["failed"] == (1 if own_failures else 0)


def test_natives_of_5_0_run(scenario: Path) -> None:
    """In addition to the strategy."""
    parsed = json.loads(invoke(str(scenario), "--against", "native-5.0", "-o", "json").stdout)
    by_label = {run["strategy"]: run for run in parsed["runs"]}
    assert by_label.keys() == {"avg", "native 5.0 avg+avg"}
    assert by_label["native 5.0 avg+avg"]["cycles"] > 0


def test_the_legend_is_wrapped_where_there_is_no_terminal(scenario: Path) -> None:
    """In a log of a job, where the table is as wide as it has to be; each measure is there."""
    _, _, legend = invoke(str(scenario)).stdout.partition("max/mean: ")
    assert max(map(len, legend.splitlines())) <= 100
    assert " ".join(legend.split()).count(": ") == len(COLUMNS) - 1


def test_json_holds_every_figure(scenario: Path) -> None:
    """Two strategies, two seeds: four runs, each with measures, expectations, verdicts and a digest."""
    result = invoke(str(scenario), "-s", "avg", "-s", "threshold", "--seeds", "1-2", "-o", "json")
    runs = json.loads(result.stdout)["runs"]
    assert [(run["strategy"], run["seed"]) for run in runs] == [(s, n) for s in ("avg", "threshold") for n in (1, 2)]
    for run in runs:
        assert run["measures"]["max_over_mean"] >= 1
        assert run["expected"] and run["verdicts"] and len(run["digest"]) == 16 and run["cycles"] >= 90
    again = json.loads(invoke(str(scenario), "--seed", "2", "-o", "json").stdout)["runs"]
    assert [run["digest"] for run in again] == [runs[1]["digest"]]


@pytest.mark.parametrize(("options", "source"), [((), "counters"), (("--source", "reports"), "reports")])
def test_n_q_the_source_is_a_choice(scenario: Path, options: tuple[str, ...], source: str) -> None:
    """Counters by default, as in the sidecar; brokers' own classes always read reports."""
    result = invoke(str(scenario), *options, "--against", "native", "-o", "json")
    assert [run["source"] for run in json.loads(result.stdout)["runs"]] == [source, "reports"]
    assert f"avg reads {source}" in invoke(str(scenario), *options).stdout


def test_another_value_is_a_column_of_its_own(scenario: Path) -> None:
    for inputs in ("avg_low_floor_percent=99", "avg_low_floor_percent=99.0"):
        result = invoke(str(scenario), "--set", inputs, "-o", "json")
        runs = {run["strategy"]: run for run in json.loads(result.stdout)["runs"]}
        assert list(runs) == ["avg", "avg, changed"]
        assert runs["avg"]["digest"] != runs["avg, changed"]["digest"]
        assert not all(item["held"] for item in runs["avg, changed"]["expected"]) and result.exit_code == 0
        output = invoke(str(scenario), "--set", inputs, "--set", "avg_low_threshold_percent=50").stdout
        assert output.count("\navg, changed: avg_low_floor_percent 99, avg_low_threshold_percent 50\n") == 1
    refused = invoke(str(scenario), "--set", "avg_low_threshold_percent=-1")
    assert (
        refused.exit_code == 2
        and "--set avg_low_threshold_percent=-1: not allowed (allowed: a number" in refused.stderr
    )
    refused = invoke(str(scenario), "--set", "avg_low=5")
    assert refused.exit_code == 2 and "--set avg_low=5: unknown parameter" in refused.stderr


def test_a_reversed_range_of_seeds_is_refused(scenario: Path) -> None:
    """Not read as the default seed."""
    answer = invoke(str(scenario), "--seeds", "5-1")
    assert answer.exit_code == 2
    assert "'5-1'" in answer.stderr


def test_several_seeds_show_median_and_range(scenario: Path) -> None:
    """One row, figures as `median (least-largest)`, and what they are once below."""
    output = invoke(str(scenario), "--seeds", "1,3").stdout
    assert re.search(r"max/mean +\d\.\d{3} \(\d\.\d{3}-\d\.\d{3}\)", output)
    assert output.count("clients times seconds without service") == 1


def test_nothing_has_no_sign(scenario: Path) -> None:
    """A sum of many floats may be next to nothing and below it, and then it is 0, alone and in a range."""
    run = simulate(load(str(scenario)), contender("avg"), 1)
    below = replace(run, measures=replace(run.measures, thrash_percent=-1e-9))
    thrash = next(column for column in COLUMNS if column.title == "thrash %")
    assert figure([below], thrash) == "0" and figure([below, below], thrash) == "0 (0-0)"


class _Page(HTMLParser):
    """Collects tags and what they refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag and its references."""
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_is_complete_in_itself(scenario: Path, tmp_path: Path) -> None:
    """A plot a strategy, moves as marks, the 85 % line, a table; nothing from outside, for light and dark."""
    scenario.write_text(SMALL.replace("One broker has it all", "One <broker> has it all"))
    page = tmp_path / "report.html"
    result = invoke(str(scenario), "-s", "avg", "-s", "uniform", "--html", str(page))
    text = page.read_text()
    assert f"report: {page}" in result.stderr
    parsed = _Page()
    parsed.feed(text)
    assert parsed.tags.count("svg") == text.count('role="img"') == 2 and parsed.tags.count("table") == 1
    assert all(text.count(f">broker {number}</text>") == 2 for number in range(3)), "a legend in each plot"
    assert not {"script", "link", "img", "iframe"} & set(parsed.tags)
    assert parsed.links[0] == "#measures" and all(link.startswith("#") for link in parsed.links)
    assert not re.search(r"url\([^#]|@import", text)
    # Names of XML, not addresses.
    assert set(re.findall(r"https?:[^\"]*", text)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert all(text.count(f">{label}</text>") == 2 for label in ("85%", "moves", "splits", "other", "minutes"))
    assert text.count('<div class="scroll" tabindex="0">') == 1, "the table can be scrolled by keyboard"
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", text)
    assert heads == ["strategy", "expected", *(column.title for column in COLUMNS)]
    assert text.count('data-head="balanced min"') == 2, "on a phone a figure has its name beside it"
    assert re.search(r"<b>avg</b>: (never balanced|balanced from minute [\d.]+), \d+ bundles left their broker; ", text)
    assert re.search(r"Created \d{4}-\d\d-\d\d \d\d:\d\d UTC by: bundlekeel ", text)
    assert "prefers-color-scheme: dark" in text
    assert "One &lt;broker&gt; has it all" in text and "<broker>" not in text


def test_the_page_tells_failures_from_what_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    strategies = ("-s", "avg", "-s", "threshold", "--source", "reports", "--against", "native")
    assert invoke("03-step", *strategies, "--html", str(page)).exit_code == 0
    body = page.read_text().partition("<body>")[2]
    body = " ".join(body.split())
    assert '<b class="good">avg · threshold: all as expected</b>. For comparison: native avg+avg · native ' in body
    assert "their missed expectations are grey and not failures" in body
    assert body.count(">not held</b>") == 2 and 'class="bad"' not in body


def test_the_page_names_who_failed(scenario: Path, tmp_path: Path) -> None:
    """In red: on top, in the table and in the list."""
    scenario.write_text(SMALL.replace("fewest_moves: 1", "most_moves: 0"))
    page = tmp_path / "report.html"
    invoke(str(scenario), "--html", str(page))
    assert re.findall(r'class="bad">([^<:]*)', page.read_text()) == ["not as expected", "not held", "avg, seed 1"]


def test_many_brokers_are_bands(scenario: Path, tmp_path: Path) -> None:
    """Twenty lines would be a carpet."""
    scenario.write_text(SMALL.replace("count: 3", "count: 20"))
    page = tmp_path / "report.html"
    invoke(str(scenario), "--html", str(page))
    text = page.read_text()
    assert all(f">{label}<" in text for label in ("all brokers", "80% of the brokers", "median"))
    assert ">broker 0<" not in text


def test_a_page_without_the_extra_is_refused_before_the_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message names the extra."""
    monkeypatch.delitem(sys.modules, "bundlekeel.simulator.simulate_html", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = invoke("01-idle-broker", "--html", str(tmp_path / "x.html"))
    assert result.exit_code == 2 and result.stdout == ""
    assert "error: --html needs matplotlib" in result.stderr and "pip install '.[plots]'" in result.stderr


def test_pairs_alone_give_the_table_of_five_properties(tmp_path: Path) -> None:
    page = str(tmp_path / "pairs.html")
    result = invoke("--pair", "uniform", "--source", "reports", "-o", "json", "--html", page)
    assert result.exit_code == 0
    rows = json.loads(result.stdout)["properties"]
    assert [row["combination"] for row in rows] == ["avg", "native uniform+least_long_term_message_rate"]
    names = [item.scenario.removeprefix("pip364-") for item in PROPERTIES]
    assert [set(row) for row in rows] == [{"combination", *names}] * 2
    ours, own = rows
    assert ours["unequal"] < own["unequal"] and ours["jitter"] < own["jitter"]
    assert ours["slow"] < own["slow"]
    assert "five properties" in (tmp_path / "pairs.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no scenario: pass a name"),
        (("--seeds", "abc"), "expected seeds such as 1-20"),
        (("wrold",), "no scenario 'wrold'; did you mean world?"),
        (("idle-broker",), "no scenario 'idle-broker'; did you mean 01-idle-broker or 01b-nearly-idle-broker?"),
        (("hot",), "no scenario 'hot'; did you mean 09-two-hot-bundles or 11-hot-bundle?"),
        (("nosuch",), "no scenario 'nosuch' (allowed: one of `bundlekeel simulate --list`"),
        (("./nowhere.yaml",), "cannot be read: No such file or directory"),
        (("world", "-s", "avgg"), "'avgg' is not one of avg, threshold"),
        (("world", "--pair", "avg+nowhere"), "'nowhere' is not one of least_resource_usage"),
        (("world", "--seeds", "one"), "expected seeds such as 1-20"),
        (("01-idle-broker", "--html", "/nowhere/x.html"), "--html /nowhere/x.html: not a file that can be written"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr and "Traceback" not in result.stderr
    assert not result.stdout  # found before anything is simulated


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("minutes: 15", "minutes: soon"), "minutes = 'soon': expected a number"),
        (("brokers:", "brokers: 3\nbrokerz:"), "brokers = 3: expected a list"),
        (("minutes: 15", "minuets: 15"), "minuets: unknown field; did you mean 'minutes'?"),
        (("minutes: 15\n", ""), "minutes is missing"),
        (("usage: 0.3", "useage: 0.3"), "tenants.0.useage: unknown field; did you mean 'usage'?"),
        (("fewest_moves: 1", "fewest_move: 1"), "expect.fewest_move: unknown field; did you mean 'fewest_moves'"),
        (
            ("usage: 0.3", "usage: 0.3, wave: {periods: 1, high: 1, factor: 2}"),
            "tenants.0.wave.periods: unknown field; did you mean 'period'?",
        ),
        (("name: small", "zzzz: 1\nname: small"), "zzzz: unknown field\n"),
        (("usage: 0.3", "usage: -0.3"), "tenants.0.sizes = -0.3 is not allowed: no negative load"),
        (("owners: [0]", "owners: [7]"), "tenants.0.owners = 7 is not allowed: 0 to 2"),
        (("{count: 3}", "{count: 3, foreign: 2}"), "brokers.0.foreign = 2.0 is not allowed: 0 to 1"),
        (("minutes: 15", "minutes: 15\nminutes: 16"), "the key 'minutes' is given twice"),
        (("minutes: 15", "minutes: [15"), "line 5"),
        (("name: small", "splits: perhaps\nname: small"), "splits = 'perhaps'"),
    ],
)
def test_bad_files_name_field_and_value(scenario: Path, change: tuple[str, str], message: str) -> None:
    """Exit code 2, the file, the field and what is wrong with it."""
    scenario.write_text(SMALL.replace(*change))
    result = invoke(str(scenario))
    assert result.exit_code == 2
    assert f"{scenario}: " in result.stderr and message in result.stderr


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("cluster: c\nmetadata_store: zk:h:2181\nparameters: {}\n", "a settings file, not a scenario"),
        ("services: {web: {}}\n", "not a scenario"),
        ("", "not a scenario"),
    ],
)
def test_another_kind_of_file_is_told_in_one_line(tmp_path: Path, text: str, kind: str) -> None:
    """And not key by key."""
    (tmp_path / "it.yaml").write_text(text)
    result = invoke(str(tmp_path / "it.yaml"))
    says = "a scenario has name, title, minutes, brokers and tenants: `bundlekeel simulate --show 03-step` prints one"
    assert (result.exit_code, result.stderr) == (2, f"error: {tmp_path / 'it.yaml'}: this is {kind}; {says}\n")


def test_each_fault_of_a_scenario_is_a_line_that_says_error(scenario: Path) -> None:
    scenario.write_text(SMALL.replace("minutes: 15", "minuets: 15"))
    lines = invoke(str(scenario)).stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith(f"error: {scenario}: ") for line in lines)


def test_broker_ranges_are_written_out(tmp_path: Path) -> None:
    """[0-2, 5] is [0, 1, 2, 5]."""
    path = tmp_path / "ranges.yaml"
    path.write_text(SMALL.replace("count: 3", "count: 6").replace("owners: [0]", "owners: [0-2, 5]"))
    assert load(str(path)).tenants[0].owners == (0, 1, 2, 5)


def test_shipped_scenarios_say_what_they_are() -> None:
    """Named like their files, with a title and a source."""
    for item in suite():
        assert item.name in shipped() and item.title and item.source
    with pytest.raises(ConfigError):
        load("nothing-of-the-kind")


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("strategy: threshold\nplacement: avg\n", "placement = 'avg': with strategy threshold it places by the hash"),
        ("parameters: {compat: '4.2'}\n", ""),
        ("compat: '4.2'\nstrategy: avg\n", ""),
        ("parameters: {minUnloadMessage: 500}\n", ""),
        (
            "parameters: {loadBalancerAverageResourceUsageDifferenceThresholdPercentage: 5}\n",
            "has no effect with compat none (better: nothing",
        ),
        ("compat: '4.2'\nparameters: {minUnloadMessage: 0}\n", ""),
        ("", ""),
    ],
)
def test_config_check_warns_of_what_has_no_effect(tmp_path: Path, text: str, warned: str) -> None:
    """It is a warning on stderr, never a refusal."""
    path = tmp_path / "keel.yaml"
    path.write_text(f"cluster: x\nmetadata_store: zk:127.0.0.1:2181\n{text}")
    result = CliRunner().invoke(make_app(FakeWiring), ["config", "check", str(path)])
    assert result.exit_code == 0 and result.stdout == "ok\n"
    assert (warned in result.stderr) if warned else result.stderr == ""


def test_config_check_gives_its_findings_to_a_program(tmp_path: Path) -> None:
    path = tmp_path / "keel.yaml"
    path.write_text("cluster: x\nmetadata_store: zk:127.0.0.1:2181\nmode: acct\nstrategy: deviaton\n")
    result = CliRunner().invoke(make_app(FakeWiring), ["config", "check", str(path), "-o", "json"])
    mode, strategy = (parsed := json.loads(result.stdout))["problems"]
    assert (result.exit_code, parsed["ok"], parsed["warnings"], result.stderr) == (2, False, [], "")
    assert (mode["origin"], mode["field"], mode["value"]) == (f"file:{path}:3", "mode", "acct")
    assert "did you mean 'deviation'?" in strategy["message"] and strategy["allowed"].startswith("avg, ")
    path.write_text("cluster: x\nmetadata_store: zk:127.0.0.1:2181\nstrategy: threshold\nplacement: avg\n")
    warned = CliRunner().invoke(make_app(FakeWiring), ["config", "check", str(path), "-o", "json"])
    parsed = json.loads(warned.stdout)
    assert (warned.exit_code, parsed["ok"], parsed["problems"], len(parsed["warnings"])) == (0, True, [], 1)
