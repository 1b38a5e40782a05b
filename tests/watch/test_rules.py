"""Alerts and recording rules: valid, tested on made series both ways, and none without a runbook."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from bundlekeel.api import ApiServer
from bundlekeel.model.codes import Code
from bundlekeel.planning.splitting import rules as splitting_rules
from bundlekeel.pulsar.channel.findings import FindingCode
from bundlekeel.records.notification_texts import NotificationTexts
from dev.runbook_situations import SITUATIONS, situated
from dev.tools_prometheus import ADVICE, INSTALL, ToolsMissing, ensure
from tests.watch.promql import ROOT, RULES, documents, panel_queries, series
from tests.watch.server import concrete

ALERTS = documents("alerts.yml")
OPERATIONS = ROOT / "docs/operations"
RUNBOOKS = OPERATIONS / "runbooks"
RESTARTS = OPERATIONS / "restarts.md"
NOTES = ROOT / "deploy/helm/bundlekeel/templates/NOTES.txt"
FLAGS = re.MULTILINE | re.DOTALL
SEVERITIES = ("critical", "warning", "info")
# 1 where the brokers are not counted on to balance.
BY_MODE = "{{ if eq $value 1.0 }}critical{{ else }}warning{{ end }}"
BY_CODE = re.compile(r'\{\{ if eq \$labels\.code ([\w" ]+) \}\}critical\{\{ else \}\}warning\{\{ end \}\}')
# Clients cannot reach them. Brokers give them an owner within two minutes, so they are critical when they are left.
WITHOUT_OWNER = {"InFlightTooLong", "OwnerNotAlive", "SplitChildrenMissing", "TargetNotAlive"}
# They say whether an alert applies, or how severe it is.
CONDITIONS = {
    "bundlekeel_broker_sheds_itself",
    "bundlekeel_mode_info",
    "bundlekeel_obstacle_info",
    "bundlekeel_takeover_in_force",
}
CLUSTER = "{{ with $labels.cluster }}{{ . }}: {{ end }}"
# Of the dashboard that an alert leads to.
CHOSEN = "{{ with $labels.cluster }}?var-cluster={{ . }}{{ end }}"
SECTIONS = ["Meaning", "Impact", "Can it wait until morning?", "Diagnosis", "Mitigation", "Verify"]


def promtool(tools: dict[str, Path], *arguments: str) -> str:
    """Return promtool's output. The test fails with it if promtool fails."""
    done = subprocess.run([tools["promtool"], *arguments], capture_output=True, text=True, check=False, cwd=RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def query_of(title: str) -> str:
    """The query of the panel of this title."""
    ((_, query),) = [item for item in panel_queries() if item[0].endswith(f"/{title}")]
    return query


def evaluate(
    tools: dict[str, Path], file: Path, inputs: dict[str, str], *query: dict[str, Any], interval: str = "1m"
) -> None:
    """Check with promtool that series with one value per minute give the expected samples."""
    series = [{"series": name, "values": values} for name, values in inputs.items()]
    case = {"interval": interval, "input_series": series, "promql_expr_test": list(query)}
    file.write_text(yaml.safe_dump({"tests": [case]}), encoding="utf-8")
    promtool(tools, "test", "rules", str(file))


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
    """Two sidecars take turns: values of a follower do not count in the mean. The test covers two hours, since promtool
    holds 10,000 samples.
    """
    query = query_of("Imbalance, mean of the day before").replace("[24h:", "[2h:")
    spread = 'bundlekeel_load_spread_ratio{job="bk",stat="score_max_mean",instance="%s"}'
    led = 'bundlekeel_leader{job="bk",instance="%s"}'
    samples = {
        spread % "a": "1x59 9x60",
        spread % "b": "9x59 2x60",
        led % "a": "1x59 0x60",
        led % "b": "0x59 1x60",
    }
    test_case = {"expr": f"round({concrete(query)}, 0.1)", "eval_time": "119m", "exp_samples": [{"value": 1.5}]}
    evaluate(tools, tmp_path / "day.yml", samples, test_case)


DAY = 288  # values of five minutes


def daily(growth: float, *, moved: float = 0.0) -> str:
    """Ten days of a score of 50 % +- 15 % by the hour, with its growth a day; on the last of them `moved` is added."""
    days = ((place / DAY, moved * (place >= 9 * DAY)) for place in range(10 * DAY))
    return " ".join(f"{0.5 + 0.15 * math.sin(day * math.tau) + growth * day + more:.6f}" for day, more in days)


@pytest.mark.parametrize(
    ("scores", "days"),
    [
        ((daily(0.0), daily(0.0)), {168 + 12: (), **dict.fromkeys(range(8 * 24 + 3, 10 * 24, 3), (365.0, 365.0))}),
        ((daily(0.0, moved=0.1), daily(0.0, moved=-0.1)), dict.fromkeys((9 * 24 + 6, 9 * 24 + 18), (365.0, 365.0))),
        ((daily(-0.01), daily(-0.02)), dict.fromkeys((8 * 24 + 12, 9 * 24 + 12), (365.0, 365.0))),
        ((daily(0.01), daily(0.01)), {168 + 12: (), 8 * 24 + 12: (11.75, 21.75), 9 * 24 + 18: (10.75, 20.75)}),
        ((daily(0.04), daily(0.04)), {9 * 24 + 12: (0.0, 0.0)}),
    ],
    ids=["a wave", "a move", "shrinking", "growing", "overloaded"],
)
def test_days_until_overload_heed_growth_from_week_to_week(
    tools: dict[str, Path], tmp_path: Path, scores: tuple[str, ...], days: dict[int, tuple[float, ...]]
) -> None:
    """At no hour is the wave of a day taken for growth, nor what one broker takes from another. It begins with eight
    days. Growing by 1 % a day, the peak of the ninth day is 73.25 %: 85 % come in 11.75 days. Each cluster has its own
    threshold."""
    inputs, clusters = {}, {"east": 85, "west": 95}
    for cluster, percent in clusters.items():
        of = f'cluster="{cluster}",job="bk",instance="a"'
        for number, values in enumerate(scores):
            inputs[f'bundlekeel_broker_score_ratio{{{of},broker="b{number}"}}'] = values
        inputs[f"bundlekeel_leader{{{of}}}"] = f"1x{10 * DAY}"
        inputs[f'bundlekeel_parameter{{{of},parameter="overloaded_threshold_percent"}}'] = f"{percent}x{10 * DAY}"
    query = re.sub(r"\$(cluster|job|instance)\b", ".*", query_of("Days until overload"))
    queries = []
    for hour, expected in days.items():
        pairs = zip(clusters, expected, strict=False)
        samples = [{"labels": f'{{cluster="{cluster}"}}', "value": value} for cluster, value in pairs]
        queries.append({"expr": f"round({query}, 0.25)", "eval_time": f"{hour}h", "exp_samples": samples})
    evaluate(tools, tmp_path / "days.yml", inputs, *queries, interval="5m")


def test_whether_it_acts_is_shown_for_each_cluster(tools: dict[str, Path], tmp_path: Path) -> None:
    """0: it acts; 1: a code stops it; 2: there is no leader; 3: no sidecar is scraped any more. The state of a follower
    does not matter. A cluster that was never scraped has no value.
    """
    inputs = {}
    for cluster, leads in (("acts", "1x60"), ("stops", "1x60"), ("none", "0x60"), ("gone", "1x20 stale")):
        inputs[f'bundlekeel_leader{{cluster="{cluster}",job="bk",instance="a"}}'] = leads
    inputs['bundlekeel_leader{cluster="acts",job="bk",instance="b"}'] = "0x60"
    inputs['bundlekeel_obstacle_info{cluster="acts",job="bk",instance="b",code="NotLeader"}'] = "1x60"
    inputs['bundlekeel_obstacle_info{cluster="stops",job="bk",instance="a",code="Paused"}'] = "1x60"
    expected = [("acts", "leader", 0), ("stops", "Paused", 1), ("none", "leader", 2), ("gone", "sidecars", 3)]
    samples = [{"labels": f'{{cluster="{a}",code="{code}"}}', "value": value} for a, code, value in expected]
    query = concrete(query_of("What is in the way"))
    evaluate(tools, tmp_path / "way.yml", inputs, {"expr": query, "eval_time": "59m", "exp_samples": samples})
    evaluate(tools, tmp_path / "none.yml", {}, {"expr": query, "eval_time": "59m", "exp_samples": []})


def test_alerts_are_ranked(tools: dict[str, Path], tmp_path: Path) -> None:
    """Firing alerts come first, by severity, then pending ones, whatever their severity; each once."""
    ranks = {("critical", "firing"): 3, ("warning", "firing"): 2, ("info", "firing"): 1, ("critical", "pending"): 0}
    labels = 'alertname="Bundlekeel%s",severity="%s",alertstate="%s",job="bk"'
    ranks_by_labels = {labels % (number, *key): rank for number, (key, rank) in enumerate(ranks.items())}
    samples = [{"labels": f"{{{key}}}", "value": rank} for key, rank in ranks_by_labels.items()]
    query = concrete(query_of("Firing and pending alerts"))
    inputs = {f"ALERTS{{{key}}}": "1x60" for key in ranks_by_labels}
    evaluate(tools, tmp_path / "alerts.yml", inputs, {"expr": query, "eval_time": "59m", "exp_samples": samples})


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
    """Severity, a summary that names the cluster, description, and a runbook with its six sections and at most 400
    words."""
    severity = alert["labels"]["severity"]
    assert severity in (*SEVERITIES, BY_MODE) or BY_CODE.fullmatch(severity)
    summary = alert["annotations"]["summary"].removeprefix(CLUSTER)
    assert summary and summary != alert["annotations"]["summary"]
    description = alert["annotations"]["description"]
    assert description.endswith(".") and re.search(r"(?i)brokers?\b|bundles?\b|balanc|moves", description)
    runbook = ROOT / alert["annotations"]["runbook_url"]
    assert runbook == RUNBOOKS / f"{alert['alert']}.md"
    text = runbook.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert text.startswith(f"# {alert['alert']}\n") and "`bundlekeel " in text.replace("\n", " ")
    assert len(text.split()) <= 400


def test_the_list_of_runbooks_is_that_of_the_alerts() -> None:
    """In their order, each with its severity."""
    rows = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (.+?) \|", (RUNBOOKS / "index.md").read_text("utf-8"), re.MULTILINE)
    assert rows == [
        (rule["alert"], re.sub(r"^\{\{.*", "critical, or warning", rule["labels"]["severity"])) for rule in ALERTS
    ]


def notified(*records: dict[str, Any]) -> list[str]:
    """The severities of what the leader sends of these records."""
    texts = NotificationTexts(cluster="c", member=lambda: "m", leads=lambda: True)
    return [item.severity for record in records for item in texts.of({"wall_ms": 1, **record})]


def test_alerts_notifications_and_runbooks_agree_how_severe_it_is() -> None:
    """Only problems that cannot wait until morning are critical. A code has the same severity in a chat and on a
    pager.
    """
    severity = {rule["alert"]: rule["labels"]["severity"] for rule in ALERTS}
    for alert, text in severity.items():
        page = (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8")
        assert ("\n## Can it wait until morning?\n\nNo" in page) == ("critical" in text), alert
    expressions = {rule["alert"]: rule["expr"] for rule in ALERTS}
    (codes,) = re.findall(r'code=~"([^"]+)"', expressions["BundlekeelStoppedByItself"])
    for code in codes.split("|"):
        stopped = {"kind": "cycle", "epoch": 1, "plan": "ab", "obstacle": code}
        assert notified(stopped, stopped) == [severity["BundlekeelStoppedByItself"]], code
    assert notified({"kind": "request", "what": "deadman"}) == [severity["BundlekeelFailsafeFailed"]]
    by_code = BY_CODE.fullmatch(severity["BundlekeelChannelFindings"])
    assert by_code is not None
    finding_codes = {
        code.value for code in FindingCode if notified({"kind": "finding", "code": code.value}) == ["critical"]
    }
    assert set(re.findall(r"\w+", by_code[1])) == finding_codes | WITHOUT_OWNER
    assert finding_codes and set(FindingCode) > WITHOUT_OWNER


def test_alerts_link_to_where_runbooks_and_dashboards_are() -> None:
    """The command of the docs needs the rules alone, and changes nothing else in the file."""
    guide = (ROOT / "docs/operations/reading-metrics.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^(sed -E .*?) alerts\.yml > ", guide, FLAGS)
    text = (RULES / "alerts.yml").read_text(encoding="utf-8")
    result = subprocess.run(shlex.split(command), input=text, capture_output=True, text=True, check=True).stdout
    for rule in (rule for group in yaml.safe_load(result)["groups"] for rule in group["rules"]):
        assert (
            rule["annotations"]["runbook_url"] == f"https://docs.example.com/operations/runbooks/{rule['alert']}.html"
        )
        board, _, _ = (
            rule["annotations"]["dashboard_url"].removeprefix("https://grafana.example.com/d/").partition("{{")
        )
        assert (ROOT / f"deploy/dashboards/{board}.json").is_file()
    back = re.sub(
        r"https://docs.example.com/operations/runbooks/(\w+)\.html", r"docs/operations/runbooks/\1.md", result
    )
    assert back.replace("https://grafana.example.com/", "") == text


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_the_dashboard_that_shows_its_series(alert: dict[str, Any]) -> None:
    """Every series of ours that its query comes from, and the cluster is chosen there: that of Pulsar."""
    link = alert["annotations"]["dashboard_url"]
    board = link.removeprefix("d/").removesuffix(CHOSEN)
    assert link.endswith(CHOSEN) == (alert["alert"] != "BundlekeelFailsafeFailed")
    panels_shown = series(" ".join(query for place, query in panel_queries() if place.startswith(f"{board}/")))
    series_used = {name for name in series(alert["expr"]) if name.startswith("bundlekeel_")}
    assert series_used - CONDITIONS <= panels_shown


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_every_runbook_says_where_commands_run_and_what_can_wait(alert: dict[str, Any]) -> None:
    """It contains the severity; one convention for hosts, Kubernetes and Docker; whether it can wait until morning,
    why, and how to check that; and when the alert ends.
    """
    text = (RUNBOOKS / f"{alert['alert']}.md").read_text(encoding="utf-8")
    severity = re.sub(r"^\{\{.*", "critical, or warning", alert["labels"]["severity"])
    head = f"# {alert['alert']}\n\nSeverity: {severity}. First set up [the commands](index.md#commands).\n"
    assert text.startswith(head)
    impact = text.partition("## Impact")[2].partition("## Diagnosis")[0]
    assert re.findall(r"no broker (?:is|was) overloaded\b(?!\]\(index\.md#is-a-broker-overloaded\))", impact) == []
    impact = re.sub(r"\]\([^)]+\)", "]", impact)
    assert re.search(r"^## Can it wait until morning\?\n\n(Yes|No)\b[:,] \w.{10}", impact, FLAGS)
    assert re.search(r"^Run `.+|^(?:Read|Open) .+", text.partition("## Verify")[2], re.MULTILINE)
    assert re.search(r"^The alert ends .+\.\n\Z", text, re.MULTILINE)
    assert "curl" not in text and "HOST:8090/" not in text
    # A file that `bundlekeel` writes is in the pod or container.
    assert " --file " not in text


UNREADY = ["[-]metadata store zk:zk1:2181/pulsar does not answer", "[-]leadership no leader known yet"]


@pytest.mark.parametrize(
    ("status", "release", "pod"),
    [
        ("leader      keel-7d9f-x2x4z-1a2b3c, epoch 4", "bundlekeel", "keel-7d9f-x2x4z"),
        ("leader      none", "bundlekeel", "deploy/bundlekeel"),
        ("leader      chosen-name, epoch 4", "my-bundlekeel", "deploy/my-bundlekeel"),
        ("leader      none", "keel", "deploy/keel-bundlekeel"),
    ],
)
async def test_commands_of_runbooks_in_kubernetes(tmp_path: Path, status: str, release: str, pod: str) -> None:
    """Run the lines of the index with a `kubectl` that prints its arguments and runs Python here. They go to the
    leader's pod if there is one, else to the release's Deployment. `get` shows the response of a failing probe.
    """
    guide = (RUNBOOKS / "index.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(NS=.*?)^```", guide, FLAGS)
    server = ApiServer(cast(Any, await situated(SITUATIONS["no leader"])), "127.0.0.1", 0, tmp_path / "keel.sock")
    url = await server.start()
    kubectl = tmp_path / "kubectl"
    runs = f'echo "$3 $4"; while [ "$1" != python ]; do shift; done; shift; exec {sys.executable} "$@"'
    cases = f'*status) echo "{status}";; *python*) {runs};; *) echo "$*";;'
    kubectl.write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n', encoding="utf-8")
    kubectl.chmod(0o755)
    commands = f"bundlekeel why b:1; logs --previous; get '/readyz?verbose'; get /livez {url.removeprefix('http://')}"
    assert block.count("/run/bundlekeel/bundlekeel.sock") == 1
    script = block.replace("/run/bundlekeel/bundlekeel.sock", str(tmp_path / "keel.sock")) + commands
    script = script.replace("REL=bundlekeel\n", f"REL={release}\n")
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    try:
        shell = await asyncio.create_subprocess_exec("bash", "-euc", script, stdout=subprocess.PIPE, env=environ)
        out, _ = await shell.communicate()
    finally:
        await server.stop()
    assert shell.returncode == 0
    assert out.decode().splitlines() == [
        f"-n pulsar exec -i {pod} -c bundlekeel -- bundlekeel why b:1",
        f"-n pulsar logs {pod} -c bundlekeel --tail=200 --previous",
        *(f"exec {pod}", *UNREADY, "[+]picture ok", "failed"),
        *(f"exec {pod}", *UNREADY, "failed"),
    ]


async def test_get_of_runbooks_on_a_host(tmp_path: Path) -> None:
    """The function uses the sidecar's socket, whatever its port and TLS, and a broker's address. It reports a target
    that does not respond. Other commands use settings and token in the directories of the guide for hosts.
    """
    guide = (RUNBOOKS / "index.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(logs.*?)^```", guide, FLAGS)
    host = (ROOT / "docs/operations/systemd.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"^export (BUNDLEKEEL_CONFIG=\S+) (BUNDLEKEEL_SECRETS_DIR=\S+)", host, re.MULTILINE)
    assert [f"export {setting}\n" in block for setting in named] == [True, True]
    server = ApiServer(cast(Any, await situated(SITUATIONS["no leader"])), "127.0.0.1", 0, tmp_path / "keel.sock")
    url = await server.start()
    script = block.replace("/run/bundlekeel/bundlekeel.sock", str(tmp_path / "keel.sock"))
    script += f"get '/readyz?verbose'; get /livez {url.removeprefix('http://')}; get /livez 127.0.0.1:1 || true"
    try:
        shell = await asyncio.create_subprocess_exec(
            "bash", "-euc", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, wrong = await shell.communicate()
    finally:
        await server.stop()
    assert out.decode().splitlines() == [*UNREADY, "[+]picture ok", "failed", *UNREADY, "failed"]
    assert "127.0.0.1 port 1" in wrong.decode()


@pytest.mark.parametrize(("created", "verbs"), [(1, ["logs"]), (0, ["get", "logs"])])
def test_jobs_of_handback_end_and_show_their_own_log(tmp_path: Path, created: int, verbs: list[str]) -> None:
    """Also where the Job could not be made: no waiting without end, and not the log of a Job that was left over."""
    kubectl = tmp_path / "kubectl"
    script = 'echo "$*" >> "$0.asked"; case "$*" in *create*) exit $CREATED;; *"get job"*) echo Complete;; esac'
    kubectl.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    kubectl.chmod(0o755)
    pages = (RUNBOOKS / "index.md", OPERATIONS / "nothing-balances.md")
    guide = "".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = [block for block in re.findall(r"^ *```sh\n(.*?)^ *```", guide, FLAGS) if "-handback" in block]
    notes = NOTES.read_text(encoding="utf-8").replace("{{ .Release.Namespace }}", "pulsar")
    notes = notes.replace("{{ $name }}", "keel")
    blocks += re.findall(r"^  JOB=.*?(?=^{{)", notes, FLAGS)
    assert len(blocks) == 3
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NS": "pulsar", "APP": "keel", "CREATED": str(created)}
    for block in blocks:
        Path(f"{kubectl}.asked").write_text("", encoding="utf-8")
        subprocess.run(["bash", "-uc", block], env=environ, check=True, timeout=20, capture_output=True)
        lines = Path(f"{kubectl}.asked").read_text(encoding="utf-8").splitlines()
        assert [line.split()[2] for line in lines if " create " not in line] == verbs
        assert re.search(r" job-name=handback(-look)?-\d{10} ", lines[-1])


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_no_broker_is_restarted_without_the_warning(alert: dict[str, Any]) -> None:
    """A mitigation that restarts a broker links to the effect on the clients."""
    mitigation = (RUNBOOKS / f"{alert['alert']}.md").read_text(encoding="utf-8").partition("## Mitigation")[2]
    for step in re.split(r"^- ", mitigation.partition("## Verify")[0], flags=re.MULTILINE):
        if re.search(r"(?i)\brestart", step) and re.search(r"(?i)\bbrokers?\b", step):
            assert "../restarts.md#before-you-restart-a-broker" in step


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_whoever_restarts_a_sidecar_is_told_how(alert: dict[str, Any]) -> None:
    """In one place for all: by systemd, in Kubernetes and in Docker."""
    page = (RUNBOOKS / f"{alert['alert']}.md").read_text(encoding="utf-8")
    wait = page.partition("## Can it wait")[2].partition("## Diagnosis")[0]
    steps = wait + page.partition("## Mitigation")[2].partition("## Verify")[0]
    for step in re.split(r"^- ", steps, flags=re.MULTILINE):
        if re.search(r"(?i)(?<!not )\brestart(ed)?\b", step) and re.search(r"(?i)\b(sidecars?|leader)\b", step):
            assert "../restarts.md#restart-a-sidecar" in step
    how = RESTARTS.read_text(encoding="utf-8").partition("\n## Restart a sidecar\n")[2].partition("\n## ")[0]
    for command in ("systemctl restart bundlekeel", "kubectl -n", "docker compose restart", "docker restart"):
        assert f"`{command}" in how


@pytest.mark.parametrize("name", ["BundlekeelStoppedByItself", "BundlekeelCannotDecide", "BundlekeelQuotaRatesLeft"])
def test_a_runbook_explains_every_code_of_its_alert(name: str) -> None:
    """Below what to look at or what to do; where both are by code, there too."""
    (rule,) = [rule for rule in ALERTS if rule["alert"] == name]
    (codes,) = re.findall(r'(?:code|outcome)=~"([^"]+)"', rule["expr"])
    page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8").partition("## Diagnosis")[2]
    parts = page.split("## Mitigation") if name == "BundlekeelStoppedByItself" else [page]
    assert [code for part in parts for code in codes.split("|") if f"`{code}`" not in part] == []


def test_the_runbook_of_unsplit_bundles_has_every_code() -> None:
    """Each that the rules of splits give is a row of its table, or left out of the alert."""
    codes = {Code[name].value for name in re.findall(r"\bCode\.([A-Z_]+)\b", inspect.getsource(splitting_rules))}
    (rule,) = [rule for rule in ALERTS if rule["alert"] == "BundlekeelHotBundleUnsplit"]
    (left_out,) = re.findall(r'code!~"([^"]+)"', rule["expr"])
    page = (RUNBOOKS / "BundlekeelHotBundleUnsplit.md").read_text(encoding="utf-8")
    rows = re.findall(r"^ *\| (`.+?) \| .+ \| .+ \|$", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == codes - set(left_out.split("|"))


def test_a_recalibration_that_waits_for_history_is_no_success() -> None:
    """It ends with 0 each night, as it is shipped, and no proposal comes."""
    for file in ("deploy/helm/bundlekeel/templates/recalibrate.yaml", "docs/operations/recalibrate.md"):
        assert "--await-history" in (ROOT / file).read_text(encoding="utf-8")
    page = (RUNBOOKS / "BundlekeelProposalsOld.md").read_text(encoding="utf-8")
    diagnosis, mitigation = page.partition("## Diagnosis")[2].split("## Mitigation")
    assert "`TooLittleHistory`" in diagnosis and "`TooLittleHistory`" in mitigation


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_every_step_of_a_runbook_says_what_it_shows(alert: dict[str, Any]) -> None:
    """Each numbered step of the diagnosis has the healthy output, and the next step for any other one."""
    text = (RUNBOOKS / f"{alert['alert']}.md").read_text(encoding="utf-8")
    diagnosis = text.partition("## Diagnosis")[2].partition("## Mitigation")[0]
    steps = re.split(r"^\d+\. ", diagnosis, flags=re.MULTILINE)[1:]
    assert steps and all(re.search(r"^ {4}Expected: .{2,}\.\s.*\bOtherwise\b.{4,}", step, FLAGS) for step in steps)


def test_no_runbook_without_an_alert() -> None:
    """A runbook without an alert becomes outdated."""
    pages = {file.stem for file in RUNBOOKS.glob("*.md")} - {"index"}
    assert pages == {rule["alert"] for rule in ALERTS} and len(pages) == len(ALERTS)


@pytest.mark.parametrize("file", sorted(RUNBOOKS.glob("*.md")), ids=lambda file: file.stem)
def test_runbooks_link_to_pages_that_exist(file: Path) -> None:
    """Also to the page of every alert that they name. Their commands are those of
    tests/unit/cli/test_printed_commands.py."""
    text = file.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (file.parent / link).exists(), link
    named = {rule["alert"] for rule in ALERTS if re.search(rf"\b{rule['alert']}\b", text)} - {file.stem}
    assert [name for name in sorted(named) if f"]({name}.md" not in text] == []


@pytest.mark.parametrize("file", sorted(RUNBOOKS.glob("*.md")), ids=lambda file: file.stem)
def test_commands_take_the_names_that_were_set_once(file: Path) -> None:
    """Pasted commands need no manual change for the namespace or the chart's object names."""
    text = file.read_text(encoding="utf-8")
    assert set(re.findall(r"\b(?:kubectl|helm) -n (\S+)", text)) <= {'"$NS"'}
    assert not re.search(r"--namespace[ =]pulsar", text)
    assert not re.search(r"\b(?:deploy/|cronjobs?[/ ]|rollback )bundlekeel", text)


# --- the tools themselves ---


def test_tools_are_installed_when_missing_and_the_refusal_is_one_sentence(tmp_path: Path) -> None:
    """Looked up on the PATH; else apt-get; else what to do."""
    commands: list[tuple[str, ...]] = []
    there: dict[str, str] = {}

    def install(command: Any) -> str:
        commands.append(tuple(command))
        if command == INSTALL:
            there.update({name: str(tmp_path / name) for name in ("prometheus", "promtool")})
        return ""

    assert ensure(there.get, install) == {name: tmp_path / name for name in ("prometheus", "promtool")}
    assert commands[-1] == INSTALL
    assert ensure(there.get, lambda _: pytest.fail("they are there")) is not None
    with pytest.raises(ToolsMissing) as refused:
        ensure(lambda _: None, lambda _: "E: no")
    assert "E: no" in str(refused.value) and ADVICE in str(refused.value) and "\n" not in str(refused.value)
