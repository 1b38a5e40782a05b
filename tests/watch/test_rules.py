"""Alerts and recording rules: valid, tested on made series both ways, and none without a runbook."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.tools_prometheus import ADVICE, INSTALL, ToolsMissing, ensure
from tests.watch.promql import ROOT, RULES, documents, panel_queries
from tests.watch.server import concrete

ALERTS = documents("alerts.yml")
RUNBOOKS = ROOT / "docs/operations/runbooks"
FLAGS = re.MULTILINE | re.DOTALL
SEVERITIES = ("critical", "warning", "info")
# 1 where the brokers are not counted on to balance.
BY_MODE = "{{ if eq $value 1.0 }}critical{{ else }}warning{{ end }}"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def promtool(tools: dict[str, Path], *arguments: str) -> str:
    """Its output; the test fails with it when promtool does."""
    done = subprocess.run([tools["promtool"], *arguments], capture_output=True, text=True, check=False, cwd=RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_are_valid(tools: dict[str, Path]) -> None:
    """promtool reads them all."""
    out = promtool(tools, "check", "rules", "alerts.yml", "recording.yml")
    assert f"{len(ALERTS)} rules found" in out


@pytest.mark.timeout(600)
def test_rules_on_made_series(tools: dict[str, Path]) -> None:
    """Every alert fires when it should and stays quiet when it should not."""
    files = sorted(str(file.relative_to(RULES)) for file in (RULES / "tests").glob("*.yml"))
    out = promtool(tools, "test", "rules", *files)
    assert out.count("SUCCESS") == len(files) >= 3


def test_a_day_s_mean_is_that_of_the_leaders(tools: dict[str, Path], tmp_path: Path) -> None:
    """Two sidecars take turns: what each showed while it followed is no part of the mean. Of two hours, since promtool
    holds 10,000 samples."""
    ((_, query),) = [(place, query) for place, query in panel_queries() if "mean of the day before" in place]
    query = concrete(query).replace("[24h:", "[2h:")
    spread = 'bundlekeel_load_spread_ratio{job="bk",stat="score_max_mean",instance="%s"}'
    led = 'bundlekeel_leader{job="bk",instance="%s"}'
    made = {
        spread % "a": "1x59 9x60",
        spread % "b": "9x59 2x60",
        led % "a": "1x59 0x60",
        led % "b": "0x59 1x60",
    }
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in made.items()],
        "promql_expr_test": [{"expr": f"round({query}, 0.1)", "eval_time": "119m", "exp_samples": [{"value": 1.5}]}],
    }
    file = tmp_path / "day.yml"
    file.write_text(yaml.safe_dump({"tests": [case]}), encoding="utf-8")
    promtool(tools, "test", "rules", str(file))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_is_tested_both_ways(alert: dict[str, Any]) -> None:
    """One expectation in which it fires, and one in which nothing of it is there."""
    fires = quiet = 0
    for file in (RULES / "tests").glob("*.yml"):
        for case in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]:
            for item in case.get("promql_expr_test", []):
                name = re.search(r'alertname=(~?)"([^"]*)"', item["expr"])
                if name is None or re.fullmatch(name[2], alert["alert"]) is None:
                    continue
                fires += bool(item["exp_samples"]) and not name[1]
                quiet += not item["exp_samples"]
    assert fires and quiet, f"{fires} firing, {quiet} quiet"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_no_alert_without_a_runbook(alert: dict[str, Any]) -> None:
    """Severity, summary, description, and a runbook with meaning, impact, diagnosis and mitigation."""
    assert alert["labels"]["severity"] in (*SEVERITIES, BY_MODE)
    assert alert["annotations"]["summary"] and alert["annotations"]["description"].endswith(".")
    runbook = ROOT / alert["annotations"]["runbook_url"]
    assert runbook == RUNBOOKS / f"{alert['alert']}.md"
    text = runbook.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert text.startswith(f"# {alert['alert']}\n") and "`bundlekeel " in text.replace("\n", " ")


def test_the_list_of_runbooks_is_that_of_the_alerts() -> None:
    """In their order, each with its severity."""
    rows = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (.+?) \|", (RUNBOOKS / "index.md").read_text("utf-8"), re.MULTILINE)
    by_mode = "critical, or warning"
    assert rows == [(rule["alert"], rule["labels"]["severity"].replace(BY_MODE, by_mode)) for rule in ALERTS]


def test_alerts_link_to_where_runbooks_and_dashboards_are() -> None:
    """By the command of the docs, which needs the rules alone; nothing else of the file changes."""
    guide = (ROOT / "docs/operations/reading-metrics.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^(sed -E .*?) alerts\.yml > ", guide, FLAGS)
    text = (RULES / "alerts.yml").read_text(encoding="utf-8")
    made = subprocess.run(shlex.split(command), input=text, capture_output=True, text=True, check=True).stdout
    for rule in (rule for group in yaml.safe_load(made)["groups"] for rule in group["rules"]):
        assert (
            rule["annotations"]["runbook_url"] == f"https://docs.example.com/operations/runbooks/{rule['alert']}.html"
        )
        board = rule["annotations"]["dashboard_url"].removeprefix("https://grafana.example.com/d/")
        assert (ROOT / f"deploy/dashboards/{board}.json").is_file()
    back = re.sub(r"https://docs.example.com/operations/runbooks/(\w+)\.html", r"docs/operations/runbooks/\1.md", made)
    assert back.replace("https://grafana.example.com/", "") == text


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_every_runbook_says_where_commands_run_and_what_can_wait(alert: dict[str, Any]) -> None:
    """One convention for hosts, Kubernetes and Docker; whether it waits until morning; when the alert ends."""
    text = (RUNBOOKS / f"{alert['alert']}.md").read_text(encoding="utf-8")
    assert " [paste these once](index.md#commands), in Kubernetes for the leader's pod.\n" in text
    impact = text.partition("## Impact")[2].partition("## Diagnosis")[0]
    assert re.search(r"^\*\*Until morning:\*\* (yes|no)\b", impact, re.MULTILINE)
    assert re.search(r"^The alert ends .+, once the cause is gone\.\n\Z", text, re.MULTILINE)
    assert "curl" not in text and "HOST:8090/" not in text


def test_commands_of_runbooks_in_kubernetes(tmp_path: Path) -> None:
    """The lines of the index, with a `kubectl` that prints what it is asked: they go on to the leader's pod."""
    guide = (RUNBOOKS / "index.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(NS=.*?)^```", guide, FLAGS)
    kubectl = tmp_path / "kubectl"
    status = "leader      keel-7d9f-x2x4z-1a2b3c, epoch 4"
    kubectl.write_text(
        f'#!/bin/sh\ncase "$*" in *status) echo "{status}";; *) printf "%s\\n" "$*";; esac\n', encoding="utf-8"
    )
    kubectl.chmod(0o755)
    commands = "bundlekeel why b:1; logs --previous; get '/livez?verbose'; get /metrics/ broker-0.pulsar:8080"
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-euc", f"{block}{commands}"], capture_output=True, text=True, check=True, env=environ
    )
    assert done.stdout.splitlines() == [
        "-n pulsar exec -i keel-7d9f-x2x4z -c bundlekeel -- bundlekeel why b:1",
        "-n pulsar logs keel-7d9f-x2x4z -c bundlekeel --tail=200 --previous",
        "get --raw /api/v1/namespaces/pulsar/pods/keel-7d9f-x2x4z:8090/proxy/livez?verbose",
        "get --raw /api/v1/namespaces/pulsar/pods/broker-0:8080/proxy/metrics/",
    ]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_every_step_of_a_runbook_says_what_it_shows(alert: dict[str, Any]) -> None:
    """Each numbered step of the diagnosis says what is seen while the alert fires and what when it is fixed."""
    text = (RUNBOOKS / f"{alert['alert']}.md").read_text(encoding="utf-8")
    diagnosis = text.partition("## Diagnosis")[2].partition("## Mitigation")[0]
    steps = re.split(r"^\d+\. ", diagnosis, flags=re.MULTILINE)[1:]
    assert steps and all(
        re.search(r"^ {3}Expected: while it fires, .{4,}\sWhen\s+fixed,\s.{4,}", step, FLAGS) for step in steps
    )


def test_no_runbook_without_an_alert() -> None:
    """What nobody is sent to grows wrong."""
    pages = {file.stem for file in RUNBOOKS.glob("*.md")} - {"index"}
    assert pages == {rule["alert"] for rule in ALERTS} and len(pages) == len(ALERTS)


@pytest.mark.parametrize("file", sorted(RUNBOOKS.glob("*.md")), ids=lambda file: file.stem)
def test_runbooks_link_to_pages_that_exist(file: Path) -> None:
    """Their commands are those of tests/unit/cli/test_printed_commands.py."""
    text = file.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (file.parent / link).exists(), link


# --- the tools themselves ---


def test_tools_are_installed_when_missing_and_the_refusal_is_one_sentence(tmp_path: Path) -> None:
    """Looked up on the PATH; else apt-get; else what to do."""
    asked: list[tuple[str, ...]] = []
    there: dict[str, str] = {}

    def install(command: Any) -> str:
        asked.append(tuple(command))
        if command == INSTALL:
            there.update({name: str(tmp_path / name) for name in ("prometheus", "promtool")})
        return ""

    assert ensure(there.get, install) == {name: tmp_path / name for name in ("prometheus", "promtool")}
    assert asked[-1] == INSTALL
    assert ensure(there.get, lambda _: pytest.fail("they are there")) is not None
    with pytest.raises(ToolsMissing) as refused:
        ensure(lambda _: None, lambda _: "E: no")
    assert "E: no" in str(refused.value) and ADVICE in str(refused.value) and "\n" not in str(refused.value)
