"""Commands against a real server on a loopback port and a unix socket, with a sidecar in memory behind it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import structlog
import typer
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from bundlekeel.leader.gate.responses import Mode
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import Conflict, Forbidden, SnapshotError
from bundlekeel.model.parameters import BY_NAME, BY_PULSAR_KEY
from bundlekeel.model.plan import Finish
from bundlekeel.views.summary_fields import Period
from tests.support.apps import make_app
from tests.support.command_line import Served, Sidecar
from tests.support.fake_wiring import CHECKS, FakeWiring
from tests.support.shop import BROKERS, BUNDLE, BUNDLES, IN_BUNDLE, QUOTA_TOPIC, TOPIC, Shop
from tests.support.spied import Spied


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A real server in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    socket = tmp_path_factory.mktemp("run") / "keel.sock"
    made = Served(loop, socket)
    with structlog.testing.capture_logs():
        yield made, socket
    made.do(made.server.stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def sidecar(served: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sidecar:
    """The server with a new sidecar, and an environment without surprises."""
    for name in ("BUNDLEKEEL_URL", "BUNDLEKEEL_SOCKET", "BUNDLEKEEL_CONFIG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Sidecar(*served)


@pytest.fixture
def moving(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> Sidecar:
    """While a command waits, the leader runs its cycles and the tasks of operators."""
    monkeypatch.setattr(time, "sleep", lambda _: sidecar.do(sidecar.shop.turns()))
    return sidecar


def test_without_its_socket_a_change_reaches_no_sidecar(sidecar: Sidecar, tmp_path: Path) -> None:
    """The port of the settings may be another sidecar's: unreachable (3), not refused (4), with the socket's path."""
    host, _, port = sidecar.url.removeprefix("http://").partition(":")
    config = tmp_path / "keel.yaml"
    cluster = sidecar.service.state().cluster
    config.write_text(f"cluster: {cluster}\napi: {{host: {host}, port: {port}, socket: {tmp_path / 'absent.sock'}}}\n")
    result = sidecar.run("pause", "--reason", "r", "-c", str(config), to="none")
    assert result.exit_code == 3, result.output
    assert "absent.sock" in result.stderr


READS = [
    ["status"],
    ["brokers"],
    ["bundles"],
    ["bundles", "--broker", BROKERS[0], "-n", "shop/orders", "--limit", "2"],
    ["why", BUNDLE],
    ["why", IN_BUNDLE],
    ["why", BROKERS[0]],
    ["verdicts", "--limit", "1"],
    ["summary", "--since", "2026-01-01", "--until", "2027-01-01T10:00"],
    ["journal", "--kind", "move"],
    ["mode"],
    ["plan", "--ignore-hit-counts"],
    ["plan", "list"],
    ["plan", "tasks"],
]
ASSIGNMENTS = [
    (BUNDLE, {"bundle": BUNDLE}),
    ("shop/orders", {"namespace": "shop/orders"}),
    (TOPIC, {"topic": TOPIC}),
    ("persistent://shop/orders/0x1", {"topic": "persistent://shop/orders/0x1"}),
]


@pytest.mark.parametrize("command", READS, ids=" ".join)
@pytest.mark.parametrize("to", ["socket", "url"])
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_reads(sidecar: Sidecar, command: list[str], to: str, output: str) -> None:
    """Every read works over both ways and in every format; JSON and YAML say the same."""
    result = sidecar.run(*command, "-o", output, to=to)
    assert result.exit_code == 0, result.output
    if output == "json":
        assert json.loads(result.stdout) == yaml.safe_load(sidecar.run(*command, "-o", "yaml", to=to).stdout)
    else:
        assert result.stdout.strip()


@pytest.mark.parametrize(("name", "body"), ASSIGNMENTS)
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_where_if_unowned(sidecar: Sidecar, name: str, body: dict[str, str], output: str) -> None:
    """Asks the sidecar, not the store: candidates after each step, codes, the preallocated answer, who is chosen."""
    result = sidecar.run("where", name, "--if-unowned", "-o", output)
    assert result.exit_code == 0, result.output
    assert sidecar.service.calls == [("assignments", {"names": list(body.values())})] and not sidecar.wiring.calls
    if output == "json":
        assert json.loads(result.stdout)[0]["chosen"] in BROKERS[1:]
    if output in ("table", "wide"):
        for text in ("policies", "MoreOfNamespace", "no group", "preallocated: no"):
            assert text in result.stdout
        assert (f"MoreOfNamespace: {BROKERS[0]}" in result.stdout) is (output == "wide")


def test_where_if_unowned_of_nothing(sidecar: Sidecar) -> None:
    """What does not exist is bad news; without a sidecar there is no answer."""
    result = sidecar.run("where", "shop/nowhere", "--if-unowned")
    assert result.exit_code == 1 and "does not exist" in result.stderr
    assert sidecar.run("where", "orders", "--if-unowned", "--url", "http://127.0.0.1:1", to="none").exit_code == 3


@pytest.mark.parametrize("output", ["table", "wide"])
@pytest.mark.parametrize(
    "command", ["brokers", "bundles", "journal", "quota ls", "quota show acme", "plan --ignore-hit-counts"]
)
def test_at_80_columns_no_name_is_torn(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, command: str, output: str
) -> None:
    """Headers, brokers, codes and ranges of bundles stand in one piece, and each sentence is whole."""
    monkeypatch.setenv("COLUMNS", "80")
    sidecar.do(sidecar.shop.service.requests.pin(BUNDLE, seconds=None, reason="r", by="ann"))
    sidecar.do(sidecar.shop.turns())
    text = sidecar.run(*command.split(), "-o", output).stdout
    words = {word for line in text.splitlines() for word in line.split()}
    names = {"brokers": ["broker", "HitCount", *BROKERS], "bundles": ["Pinned", "0x90000000", *BROKERS[:3]]}
    names |= {"journal": ["cycle", BROKERS[0], BROKERS[2]]}
    names |= {"plan --ignore-hit-counts": ["0x10000000", *BROKERS]}
    names |= {"quota ls": ["group", "t:acme", "settings"], "quota show acme": [QUOTA_TOPIC]}
    whole = " ".join(words)
    assert all(name in whole for name in names[command]), text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("columns", ["60", "100", "160", "260"])
@pytest.mark.parametrize("output", ["table", "wide"])
@pytest.mark.parametrize("command", [["status"], ["brokers"], ["bundles"], ["plan"], ["journal"]], ids=" ".join)
def test_tables_fit_the_terminal(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, columns: str, output: str, command: list[str]
) -> None:
    """No line is longer than the terminal, and at 100 columns nothing that matters is cut off."""
    monkeypatch.setenv("COLUMNS", columns)
    lines = sidecar.run(*command, "-o", output).stdout.splitlines()
    assert max(map(len, lines)) <= int(columns)
    if command == ["bundles"] and columns != "60":
        assert any("shop/orders/0x00000000_0x10000000" in line for line in lines)
        assert any("broker-0.pulsar:8080" in line for line in lines)


@pytest.mark.parametrize(("columns", "stacked"), [("123", False), ("85", True)])
def test_a_row_is_one_line_where_that_fits(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, columns: str, stacked: bool
) -> None:
    """By what the rows take, not by a width for all; and no name is torn where stacked rows keep it whole."""
    monkeypatch.setenv("COLUMNS", columns)
    lines = sidecar.run("brokers").stdout.splitlines()
    assert any("broker-0.pulsar:8080" in line and "HitCount" in line for line in lines) is not stacked
    monkeypatch.setenv("COLUMNS", "140")
    assert BUNDLES[2] in sidecar.run("bundles").stdout


def test_averages_and_preallocations_are_shown(sidecar: Sidecar) -> None:
    """Latest, short and long term with their sample counts, and preallocated bundles with their age."""
    sidecar.do(sidecar.shop.service.requests.unload(BUNDLE, execute=True, reason="r", by="ann"))
    sidecar.do(sidecar.shop.turns())
    sidecar.shop.clock.offset += 42.0
    bundles = sidecar.run("bundles").stdout
    (row,) = [item for item in sidecar.shop.service.bundles() if item.bundle == BUNDLE]
    traffic = row.short.throughput_in + row.short.throughput_out
    assert f"{traffic / 1e6:.1f}".rstrip("0").rstrip(".") + f" M ({row.short_samples})" in bundles and "42 s" in bundles
    wide = sidecar.run("status", "-o", "wide").stdout
    assert f"{BUNDLE} 42 s" in wide


def test_into_a_pipe_a_row_is_one_line(sidecar: Sidecar) -> None:
    """`grep` finds a bundle together with its figures."""
    (line,) = [line for line in sidecar.run("bundles").stdout.splitlines() if BUNDLE in line]
    assert sidecar.run("bundles", "--limit", "3").stderr == "the 3 bundles with the most load; for more, pass --limit\n"
    assert BROKERS[0] in line and "20.0%" in line


@pytest.mark.parametrize(("namespace", "code"), [("shop/idle", 0), ("shop/nowhere", 1)])
def test_an_empty_list_is_no_answer_about_a_namespace_that_does_not_exist(
    sidecar: Sidecar, namespace: str, code: int
) -> None:
    """A namespace without a reported bundle has none to show; a mistyped one is an error."""
    shown = sidecar.run("bundles", "-n", namespace)
    assert shown.exit_code == code and ("does not exist" in shown.stderr) == bool(code)


def test_a_plan_says_what_why_and_what_not(sidecar: Sidecar) -> None:
    """Load before and after, moves with their reason, refusals grouped with their meaning, the next command."""
    sidecar.do(sidecar.shop.service.requests.pin(BUNDLES[6], seconds=None, reason="r", by="ann"))
    text = sidecar.run("plan", "--ignore-hit-counts", "--set", "max_moves_per_cycle=1").stdout
    (request,) = (asked["request"] for asked in sidecar.service.asked("make_plan"))
    assert request.parameters == {"max_moves_per_cycle": "1"}
    assert (request.strategy, request.ignore_hit_counts) == (None, True)
    (made,) = sidecar.do(sidecar.shop.service.plans())
    for part in (
        "max/mean of score 1.89 → ",
        "82.0%",
        "-20.0",
        BUNDLE,
        "Pinned",
        Code.PINNED.explanation,
        f"plan execute {made.hash}",
    ):
        assert part in text


FIRST = ("set `mode: act` in the settings file", "`bundlekeel mode act`", "`bundlekeel resume`")


@pytest.mark.parametrize(
    ("mode", "ceiling", "paused", "first"),
    [
        ("recommend", "recommend", False, FIRST[:1]),
        ("recommend", "act", False, FIRST[1:2]),
        ("observe", "recommend", True, FIRST),
        ("act", "act", True, FIRST[2:]),
    ],
)
def test_a_plan_names_no_command_that_would_be_refused(
    sidecar: Sidecar, mode: Mode, ceiling: Mode, paused: bool, first: tuple[str, ...]
) -> None:
    """In another mode than act, or paused, it says so, and what has to change."""
    sidecar.be(mode=ceiling)
    if mode != ceiling:
        sidecar.do(sidecar.shop.service.set_mode(mode, reason="r", by="ann"))
    if paused:
        sidecar.run("pause", "--reason", "r")
    for command in (["plan", "--ignore-hit-counts"], ["plan", "show", sidecar.plan().hash]):
        text = sidecar.run(*command).stdout
        last = text.splitlines()[-1]
        assert "plan execute" not in text and f"the mode is {mode}" in last and ("is paused" in last) is paused
        assert tuple(part for part in FIRST if part in last) == first


def test_a_what_if_ends_with_how_it_ends(sidecar: Sidecar) -> None:
    """The last line: how even the load is then, and what that takes. It cannot be carried out."""
    text = sidecar.run("plan", "--scale", "2", "--keep-hit-counts").stdout
    assert "plan execute" not in text
    (request,) = (asked["request"] for asked in sidecar.service.asked("make_plan"))
    assert (request.traffic_scale, request.ignore_hit_counts) == (2.0, False)
    finished = Finish(max_mean=1.1, moves=23, cycles=6, seconds=241.0, complete=True)
    sidecar.service.results["make_plan"] = lambda plan: replace(plan, finished=finished)
    text = sidecar.run("plan", "--scale", "2").stdout
    assert text.splitlines()[-1] == "when finished: max/mean of score 1.10, 23 moves, 6 cycles, about 4 min"
    sidecar.service.results["make_plan"] = lambda plan: replace(plan, finished=replace(finished, complete=False))
    text = sidecar.run("plan", "--scale", "2").stdout
    assert text.splitlines()[-1].startswith("not finished after the simulated cycles: max/mean of score 1")


def test_a_plan_with_other_brokers(sidecar: Sidecar) -> None:
    """Taken out and added ones, each option as often as wanted."""
    sidecar.run("plan", "--remove-broker", BROKERS[0], "--add-broker", "new-1", "--add-broker", "new-2")
    (request,) = (asked["request"] for asked in sidecar.service.asked("make_plan"))
    assert (request.remove_brokers, request.add_brokers) == ((BROKERS[0],), ("new-1", "new-2"))


def test_settings_and_help_are_whole_at_80_columns(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No name of a parameter is cut off, and a paragraph of the help fills its lines."""
    monkeypatch.setenv("COLUMNS", "80")
    (file := tmp_path / "keel.yaml").write_text("cluster: a\nmetadata_store: zk:h:2181\n", encoding="utf-8")
    shown = sidecar.run("config", "show", "-c", str(file), to="none").stdout
    for part in ("parameters.move_price: ", "parameters.split_hit_count: ", "  maxUnloadPercentage"):
        assert part in shown
    used = {key for key, rows in BY_PULSAR_KEY.items() if any(spec.instead not in BY_NAME for spec in rows)}
    assert used <= {line.split()[0] for line in shown.splitlines()}
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    listed = sidecar.run("config", "parameters", to="none").stdout
    assert "…" not in listed and max(map(len, listed.splitlines())) <= 80
    assert {line.strip() for line in listed.splitlines()} >= {*BY_NAME, *BY_PULSAR_KEY}
    assert "are shown, but are not failures." in sidecar.run("simulate", "--help", to="none").stdout


@pytest.mark.parametrize("command", ["plan", "simulate", "quota set", "config init", "bundles", "drain"])
def test_help_has_no_types_of_the_program(sidecar: Sidecar, command: str) -> None:
    """A number is a number; what a text is, repeatable or not, is said by its name, as `--broker BROKER`."""
    shown = sidecar.run(*command.split(), "--help", to="none").stdout
    assert "-n " not in shown or re.search(r"--namespace +-n +NAMESPACE", shown)
    assert not re.findall(r"<str>|<text>|<int|<float|list\[", shown)


def test_an_idle_cluster_is_called_idle(sidecar: Sidecar) -> None:
    """However many times the mean its busiest broker carries: both are next to nothing."""
    assert "max/mean" in sidecar.run("status").stdout
    sidecar.service.results["brokers"] = lambda rows: [
        replace(row, score_ratio=score) for row, score in zip(rows, (0.004, 0, 0), strict=True)
    ]
    text = sidecar.run("status").stdout
    assert "no broker has load, the most loaded is at 0.4%" in text and "max/mean" not in text


def test_what_is_not_known_yet_is_called_so(sidecar: Sidecar) -> None:
    """In the first seconds nothing was read: that is neither an idle cluster nor an unknown load manager."""
    sidecar.service.target = Shop().service
    text = " ".join(sidecar.run("status").stdout.split())
    assert "load manager not known yet" in text and "imbalance not known yet" in text


def test_watch_goes_on(sidecar: Sidecar) -> None:
    """`--watch` prints again and again; JSON takes a line each time."""
    result = sidecar.run("brokers", "-o", "json", "--watch", "--interval", "0.1", "--rounds", "2")
    assert [len(json.loads(line)) for line in result.stdout.splitlines()] == [3, 3]
    assert sidecar.run("status", "-w", "--interval", "0.1", "--rounds", "2").stdout.count("last cycle") == 2


def test_watch_survives_a_restart_of_the_sidecar(sidecar: Sidecar) -> None:
    """An error is shown, and the next round may work again."""
    sidecar.service.fail["brokers"] = SnapshotError("no picture yet")
    result = sidecar.run("brokers", "-w", "--interval", "0.1", "--rounds", "2")
    assert result.exit_code == 0 and result.stderr.count("no picture yet") == 2


def test_status_is_bad_news_when_not_ready(sidecar: Sidecar) -> None:
    """Exit code 1, and the failing check by name."""
    sidecar.shop.cluster.store.freeze()
    result = sidecar.run("status")
    assert result.exit_code == 1 and "metadata store zk:zk1:2181/pulsar does not answer" in result.stdout


def test_status_of_a_follower_says_who_acts(sidecar: Sidecar) -> None:
    """A follower never acts itself: what counts is whether the leader does, and why not."""
    for mode, said in (("recommend", "not acting (RecommendOnly"), ("act", "acting: yes, by pod-a")):
        sidecar.be(mode=mode)
        sidecar.service.results["state"] = lambda state: replace(
            state, member="pod-b", role="follower", acting=False, acting_obstacle="NotLeader"
        )
        assert said in sidecar.run("status").stdout


def test_what_people_asked_for_shows_where_one_looks_first(sidecar: Sidecar) -> None:
    """Drains, cordons and pauses of scopes, in `status` and `brokers`."""
    requests, who = sidecar.shop.service.requests, {"reason": "r", "by": "ann"}
    sidecar.do(requests.cordon(BROKERS[2], **who))
    sidecar.do(requests.warm(BROKERS[1], dry_run=False, **who))
    sidecar.do(requests.pin(BUNDLE, seconds=None, **who))
    sidecar.do(requests.exclude("t:acme", seconds=None, **who))
    sidecar.do(requests.pause_scope("tenant:shop", seconds=None, **who))
    said = sidecar.run("status").stdout
    assert "1 cordon, 1 warm, 1 pin, 1 exclusion, 1 paused scope; see `bundlekeel operations`" in said
    assert "ok cordoned" in said and "ok cordoned" in sidecar.run("brokers").stdout


def test_a_time_is_asked_for_as_people_write_it(sidecar: Sidecar) -> None:
    """A duration ago, a day, or a moment; then all of it is asked for, page by page, not the newest twenty."""
    before = time.time() * 1000
    assert sidecar.run("journal", "--kind", "move", "--since", "24h").exit_code == 0
    asked = sidecar.service.asked("journal")[-1]
    period = asked["period"]
    assert (asked["limit"], asked["kind"], period.until_ms) == (1000, "move", 0)
    assert period.since_ms == pytest.approx(before - 86_400_000, abs=60_000)
    sidecar.run("verdicts", "--since", "yesterday", "--until", "today")
    period = sidecar.service.asked("verdicts")[-1]["period"]
    assert period.until_ms - period.since_ms in (82_800_000, 86_400_000, 90_000_000)
    sidecar.run("verdicts", "-o", "json")
    assert sidecar.service.calls[-1] == ("verdicts", {"limit": 20, "period": Period()})
    wrong = sidecar.run("summary", "--since", "last week")
    assert wrong.exit_code == 2 and "--since 'last week': expected a duration such as 24h" in wrong.stderr
    turned = sidecar.run("journal", "--since", "1h", "--until", "2h")
    assert turned.exit_code == 2 and "is before" in turned.stderr
    early = sidecar.run("journal", "--since", "1900-01-01")
    assert early.exit_code == 2 and "--since '1900-01-01' is before 1970" in early.stderr
    future = sidecar.run("summary", "--since", "2999-01-01")
    assert future.exit_code == 2 and "--since '2999-01-01' is in the future" in future.stderr


def test_cycles_that_decide_the_same_are_one_line(sidecar: Sidecar) -> None:
    """A night of nothing is no screen of it; JSON keeps every cycle."""
    (row,) = sidecar.do(sidecar.shop.service.verdicts(1))
    rows = [replace(row, cycle=number) for number in range(1, 41)]
    sidecar.service.results["verdicts"] = lambda _: rows
    table = sidecar.run("verdicts", "--since", "2026-01-01").stdout.splitlines()
    assert len(table) == 2 and "40 (×40)" in table[1]
    rows[:0] = [replace(row, cycle=-number, moves=number + 1) for number in range(30, 0, -1)]
    table = sidecar.run("verdicts").stdout.splitlines()
    assert len(table) == 21 and "40 (×40)" in table[-1] and "-19" in table[1]
    sidecar.service.results["verdicts"] = lambda _: rows[-40:]
    assert len(json.loads(sidecar.run("verdicts", "--limit", "40", "-o", "json").stdout)) == 40


def test_doctor_for_act_ends_with_go_or_no_go(sidecar: Sidecar) -> None:
    """Each line with its next step; exit code 1: no go."""
    sidecar.service.results["doctor"] = lambda _: list(CHECKS)
    found = sidecar.run("doctor", "--for", "act")
    assert sidecar.service.asked("doctor") == [{"for_act": True}]
    assert found.exit_code == 1 and found.stdout.splitlines()[-1] == "no go: shedding"
    assert "→ run `bundlekeel takeover`" in found.stdout
    sidecar.service.results["doctor"] = lambda _: list(CHECKS[::2])
    found = sidecar.run("doctor", "--for", "act")
    assert found.exit_code == 0 and found.stdout.splitlines()[-1] == "go; check the warnings first"


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (["journal", "--limit", "x"], 2, "'x': expected a whole number"),
        (["journal", "--limit=-1", "--limit", "x"], 2, "'x': expected a whole number"),
        (["journal", "--limit=0"], 2, "'0': expected from 1 to 10000"),
        (["plan", "--scale", "x"], 2, "'x': expected a number"),
        (["status", "--url", "http://127.0.0.1:99999"], 2, "with a port from 1 to 65535"),
        (["doctor", "--for", "act", "--token-file", "none"], 2, "--token-file none cannot be read"),
        (["where", "shop/orders", "--if-unowned", "--token-file", "none"], 2, "--token-file none cannot be read"),
        (["status", "--token-file", "none"], 2, "file or directory; create a token with `bundlekeel token new`"),
        (["token", "new", "a b"], 2, "(allowed: letters, digits, _ - @, up to 64)"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(sidecar: Sidecar, command: list[str], code: int, told: str) -> None:
    """In words of the command line, not in pydantic's."""
    own = command[0] == "token" or "--url" in command
    answer = CliRunner().invoke(make_app(FakeWiring), command) if own else sidecar.run(*command, to="url")
    assert answer.exit_code == code and told in answer.stderr
    assert "Input should be" not in answer.stderr


def test_a_wrong_value_that_is_not_found_is_left_out() -> None:
    """As that of `-n5` or of an argument; `'': expected …` would blame what nobody wrote."""
    app = typer.Typer()

    @app.command(cls=type(get_command(make_app(FakeWiring)).commands["bundles"]))  # type: ignore[attr-defined]
    def show(count: int, size: Annotated[int, typer.Option("-n")] = 1) -> None: ...

    for command in (["x"], ["1", "-nx"]):
        told = " ".join(CliRunner().invoke(app, command).stderr.split())
        assert ": expected a whole number" in told and "''" not in told


def test_forms_of_output_do_not_break_at_80_columns(sidecar: Sidecar) -> None:
    """Beside the longest option that a command has."""
    told = CliRunner(env={"COLUMNS": "80"}).invoke(make_app(FakeWiring), ["transfer", "--help"]).stdout
    assert "table, wide, json or yaml" in " ".join(told.replace("│", "").split())
    assert sidecar.run("status", "-o", "json").exit_code == 0


def test_an_address_with_a_path_is_no_sidecars(sidecar: Sidecar) -> None:
    """Instead of "Not Found"."""
    answer = CliRunner().invoke(make_app(FakeWiring), ["status", "--url", f"{sidecar.url}/x"])
    assert answer.exit_code == 2
    assert "expected the address of a sidecar of this release, http://host:port" in answer.stderr


WHO = {"reason": "r", "by": "ann"}
CHANGES: list[tuple[list[str], str, dict[str, Any]]] = [
    (["pause", "--for", "2h"], "pause", {"seconds": 7200.0}),
    (["pause"], "pause", {"seconds": None}),
    (["resume"], "resume", {}),
    (["mode", "act"], "set_mode", {"mode": "act"}),
]


@pytest.mark.parametrize(("command", "name", "expected"), CHANGES, ids=lambda item: str(item)[:30])
def test_changes(sidecar: Sidecar, command: list[str], name: str, expected: dict[str, Any]) -> None:
    """Over the socket they reach the service; over TCP they are refused with the way out."""
    sidecar.run("pause", "--reason", "before")
    command = [*command, "--reason", "r", "--by", "ann"]
    assert sidecar.run(*command).exit_code == 0
    assert sidecar.service.asked(name)[-1] == expected | WHO
    refused = sidecar.run(*command, to="url")
    assert refused.exit_code == 4 and "unix socket" in refused.stderr


def test_a_plan_is_executed(moving: Sidecar) -> None:
    """The command waits for its task, and the leader moves the bundles of the plan."""
    made = moving.plan()
    command = ["plan", "execute", made.hash, "--reason", "r", "--by", "ann"]
    result = moving.run(*command, "--wait")
    assert result.exit_code == 0, result.output
    assert moving.service.asked("execute") == [{"hash_": made.hash} | WHO]
    assert all(moving.shop.cluster.owners()[move.bundle] == move.target for move in made.moves)
    refused = moving.run(*command, to="url")
    assert refused.exit_code == 4 and "unix socket" in refused.stderr


def failing(name: str, error: Exception) -> Callable[[Spied], None]:
    """Make a method of the service raise."""
    return lambda service: service.fail.update({name: error})


FAILURES: list[tuple[list[str], Callable[[Spied], None] | None, int, str]] = [
    (["why", "nowhere/at/all"], None, 1, "namespace nowhere/at does not exist"),
    (["plan", "show", "feed"], None, 1, "no plan feed, or it has expired"),
    (["plan", "--set", "oops"], None, 2, "key=value"),
    (["plan", "--scale", "-1"], None, 2, "--scale -1: not allowed (allowed: more than 0 and at most 1000)"),
    (["plan", "--ignore-hit-counts", "--keep-hit-counts"], None, 2, "pass only one of them"),
    (["plan", "--add-broker", "a b"], None, 2, "--add-broker 'a b': "),
    (["pause", "--reason", "r", "--for", "soon"], None, 2, "2h"),
    (["pause", "--reason", "r", "--for", "0s"], None, 2, "more than 0s"),
    (["brokers", "--nope"], None, 2, "--nope"),
    (["pause"], None, 2, "--reason"),
    (["mode", "act"], None, 2, "missing option '--reason'"),
    (["mode", "--reason", "r"], None, 2, "missing argument 'MODE'"),
    (["brokers"], failing("brokers", SnapshotError("no picture yet")), 3, "no picture yet"),
    (["mode", "act", "--reason", "r"], failing("set_mode", Forbidden("the file says recommend")), 4, "the file says"),
    (
        ["plan", "execute", "feed", "--reason", "r"],
        failing("execute", Conflict("inputs changed", difference=["b-1 is gone"])),
        4,
        "b-1 is gone",
    ),
    (["brokers"], failing("brokers", RuntimeError("inside")), 1, "the log has the traceback"),
]


def fails(sidecar: Sidecar, command: list[str], prepare: Callable[[Spied], None] | None, code: int, said: str) -> None:
    """One command that fails."""
    if prepare:
        prepare(sidecar.service)
    result = sidecar.run(*command)
    assert result.exit_code == code, result.output
    assert said in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(("command", "prepare", "code", "said"), FAILURES, ids=lambda item: str(item)[:40])
def test_exit_codes(
    sidecar: Sidecar, command: list[str], prepare: Callable[[Spied], None] | None, code: int, said: str
) -> None:
    """Stable exit codes, and a message on stderr that helps."""
    fails(sidecar, command, prepare, code, said)


@pytest.mark.parametrize(
    ("options", "tried", "advice"),
    [
        (
            ["--url", "http://127.0.0.1:1"],
            "http://127.0.0.1:1 (",
            "`bundlekeel run -c …`, or select one with --url, --socket",
        ),
        (["--socket", "/nonexistent/x.sock"], "unix socket /nonexistent/x.sock (", "--url, --socket or -c"),
        (
            ["-c", "keel.yaml"],
            "http://127.0.0.1:1 (Connection refused), and there is no socket missing.sock; ",
            "start one with `bundlekeel run -c keel.yaml`, or select one with --url or --socket\n",
        ),
    ],
)
def test_unreachable(sidecar: Sidecar, options: list[str], tried: str, advice: str) -> None:
    """Exit code 3, what was tried, and what to do: not what was done already."""
    Path("keel.yaml").write_text("api: {port: 1, socket: missing.sock}\n")
    result = sidecar.run("status", *options, to="none")
    assert result.exit_code == 3
    told = result.stderr.replace(f"{Path.cwd()}/", "")
    assert told.startswith(f"error: no sidecar answers at {tried}") and advice in told


def test_the_settings_file_names_the_sidecar(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket when there is one, else host and port; the environment names file or URL too."""
    Path("socket.yaml").write_text(f"api: {{socket: {sidecar.socket}, port: 1}}\n")
    listens = f"api: {{socket: null, port: {sidecar.url.rpartition(':')[2]}}}"
    Path("port.yaml").write_text(f"cluster: {sidecar.service.state().cluster}\n{listens}\n")
    assert sidecar.run("brokers", "-c", "socket.yaml", to="none").exit_code == 0
    assert sidecar.run("brokers", "-c", "port.yaml", to="none").exit_code == 0
    assert sidecar.run("brokers", to="none", env={"BUNDLEKEEL_CONFIG": "socket.yaml"}).exit_code == 0
    assert sidecar.run("brokers", to="none", env={"BUNDLEKEEL_URL": sidecar.url}).exit_code == 0
    # What is typed goes before the environment: a pause must not reach the cluster of a forgotten variable.
    elsewhere = {"BUNDLEKEEL_URL": sidecar.url}
    for typed in (["--socket", "none.sock"], ["-c", "nofile.yaml"]):
        assert sidecar.run("pause", "--reason", "r", *typed, to="none", env=elsewhere).exit_code in (2, 3)
    assert {name for name, _ in sidecar.service.calls} == {"brokers", "state"}
    shown = sidecar.run("config", "show", "-c", "port.yaml", "-o", "json", to="none", env=elsewhere)
    assert json.loads(shown.stdout)["api"]["socket"] is None
    two = sidecar.run("brokers", "--url", sidecar.url, "--socket", "socket.yaml", to="none")
    assert two.exit_code == 2 and "pass only one of them" in two.stderr
    wrong = sidecar.run("brokers", "--url", "localhost:1", to="none")
    assert wrong.exit_code == 2 and "http://host:port" in wrong.stderr


def test_wrong_settings_are_usage(sidecar: Sidecar) -> None:
    """Exit code 2 and the key, for every command that reads the file."""
    Path("bad.yaml").write_text("api: {prot: 1}\n")
    for command in (["brokers"], ["doctor"], ["where", "x"], ["run"], ["takeover", "--reason", "r", "--yes"]):
        result = sidecar.run(*command, "-c", "bad.yaml", to="none")
        assert result.exit_code == 2 and "prot" in result.stderr
