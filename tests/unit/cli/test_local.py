"""Commands that need no sidecar: run, doctor, where, takeover, handback, decide, version, help."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from bundlekeel import __version__
from bundlekeel.cli import units
from bundlekeel.cli.session import period
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring


@pytest.fixture
def wiring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeWiring:
    """A fresh fake and an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BUNDLEKEEL_CONFIG", raising=False)
    return FakeWiring()


def invoke(wiring: FakeWiring, *arguments: str, typed: str | None = None) -> Result:
    """One command."""
    return CliRunner().invoke(make_app(lambda: wiring), arguments, input=typed)


def test_run_takes_file_and_mode(wiring: FakeWiring) -> None:
    """The command line wins over the file."""
    Path("keel.yaml").write_text("cluster: east\nmode: observe\n")
    assert invoke(wiring, "run", "-c", "keel.yaml", "--mode", "act").exit_code == 0
    ((_, settings),) = wiring.calls
    assert (settings.cluster, settings.mode) == ("east", "act")


@pytest.mark.parametrize("columns", ["", "80"])
def test_no_line_ends_with_blanks(wiring: FakeWiring, columns: str) -> None:
    """Neither into a pipe nor on a terminal, where they would be copied along."""
    shown = CliRunner().invoke(make_app(lambda: wiring), ["doctor"], env={"COLUMNS": columns}).stdout
    assert shown.endswith(" warning\n") and "\n\n" not in shown
    assert [line for line in shown.split("\n") if line != line.rstrip()] == []


def test_doctor_says_what_is_wrong_and_how_to_mend_it(wiring: FakeWiring) -> None:
    """Errors are exit code 1, warnings alone are not."""
    result = invoke(wiring, "doctor")
    assert result.exit_code == 1
    assert "still sheds itself" in result.stdout and "bundlekeel takeover" in result.stdout
    assert "3 checks, 1 error, 1 warning" in result.stdout
    wiring.checks = [check for check in wiring.checks if check.ok or check.severity != "error"]
    result = invoke(wiring, "doctor", "-o", "json")
    assert result.exit_code == 0 and json.loads(result.stdout)[0]["ok"] is True


def test_where_without_a_store_says_that_it_asks_no_sidecar(tmp_path: Path) -> None:
    """Though a variable or an option names one."""
    asked = [sys.executable, "-m", "bundlekeel", "where", "shop/orders", "--socket", "nowhere.sock"]
    ran = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and ran.stderr.startswith("error: metadata_store: it is missing (allowed: ")
    assert "; pass the settings file with -c: " in ran.stderr
    assert ran.stderr.endswith("; only --if-unowned uses a sidecar\n")


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_where_says_unowned(wiring: FakeWiring, output: str) -> None:
    """A row a partition; an unowned one is an answer with exit code 0."""
    result = invoke(wiring, "where", "orders", "-o", output)
    assert result.exit_code == 0
    assert "orders-partition-1" in result.stdout and "unowned" in result.stdout
    assert result.stdout.count("the topic does not exist yet") == (output in ("table", "wide"))
    assert wiring.calls == [("where", "orders")]


@pytest.mark.parametrize(
    ("topic", "there", "warned"),
    [
        ("persistent://shop/orders/nope", False, ""),
        ("persistent://shop/orders/c0000000_c8000000", False, "; for a bundle write shop/orders/0xc0000000_0xc8000000"),
        ("persistent://shop/orders/created", True, None),
    ],
)
def test_where_warns_of_a_topic_that_does_not_exist(
    wiring: FakeWiring, topic: str, there: bool, warned: str | None
) -> None:
    """A mistyped one lies in a bundle, too; exit code 0, and the answer is as always."""
    row = {**wiring.where(None, topic, "")[1], "topic": topic, "topic_exists": there}
    wiring.where = lambda *_: [row]  # type: ignore[method-assign]
    result = invoke(wiring, "where", topic, "-o", "json")
    assert result.exit_code == 0 and json.loads(result.stdout) == [row]
    told = f"warning: topic {topic} does not exist; this is the bundle that it would be in{warned}\n"
    assert result.stderr == (told if warned is not None else "")


def test_a_takeovers_table_says_what_was_true_before(wiring: FakeWiring) -> None:
    """After a partial takeover the brokers still shed: `true` is as wanted."""
    shown = invoke(wiring, "takeover", "--dry-run").stdout
    assert "sheds before" in shown and "sheds after" in shown


def test_where_says_that_the_owner_of_a_system_bundle_may_not_be_recorded(wiring: FakeWiring) -> None:
    """Brokers of the extensible load manager hold such bundles without an entry, and report them."""
    row = {**wiring.where(None, "orders", "")[1], "bundle": "pulsar/system/0x00000000_0xffffffff"}
    wiring.where = lambda *_: [row]  # type: ignore[method-assign]
    assert "unowned (a system bundle" in " ".join(invoke(wiring, "where", "orders").stdout.split())


@pytest.mark.parametrize("output", ["table", "wide", "json"])
def test_j08_where_by_a_listener(wiring: FakeWiring, output: str) -> None:
    """Its address instead of the broker's own, and its name beside it."""
    result = invoke(wiring, "where", "orders", "--listener", "external", "-o", output)
    assert result.exit_code == 0
    assert "pulsar://example.com:31000" in result.stdout and "broker-0.pulsar:6650" not in result.stdout
    assert "external" in result.stdout


def test_j08_where_by_an_unknown_listener_is_wrong_usage(wiring: FakeWiring) -> None:
    """Those that exist are named; no broker owns a bundle by `--if-unowned`, so there is no address to show."""
    unknown = invoke(wiring, "where", "orders", "--listener", "extern")
    assert (unknown.exit_code, "it has external" in unknown.stderr) == (2, True)
    both = invoke(wiring, "where", "orders", "--listener", "external", "--if-unowned")
    assert (both.exit_code, "--if-unowned" in both.stderr) == (2, True)


def test_takeover_asks_first(wiring: FakeWiring) -> None:
    """What would change is shown before the question; no means nothing was changed."""
    no = invoke(wiring, "takeover", "--reason", "r", "--by", "ann", typed="n\n")
    assert no.exit_code == 4 and "nothing was changed" in no.stderr
    assert wiring.calls == [("takeover", ("brokers", "r", "ann", True))]
    ended = invoke(wiring, "takeover", "--reason", "r", "--by", "ann", typed="")
    assert ended.exit_code == 4 and "[y/N]:\nerror: nothing was changed" in ended.stderr
    wiring.calls.clear()
    yes = invoke(wiring, "takeover", "--reason", "r", "--by", "ann", "--split", "off", typed="y\n")
    assert yes.exit_code == 0 and yes.stdout.count("placement is random") == 1
    assert "1 of 1 broker verified" in yes.stderr
    assert [call[1][3] for call in wiring.calls] == [True, False]
    assert wiring.calls[1][1][0] == "off"


def test_takeover_and_handback_without_a_question(wiring: FakeWiring) -> None:
    """`--yes` acts at once, `--dry-run` never; a broker that does not follow is bad news."""
    assert invoke(wiring, "handback", "--reason", "r", "--by", "ann", "--dry-run").exit_code == 0
    assert invoke(wiring, "handback", "--reason", "r", "--by", "ann", "--yes", "-o", "json").exit_code == 0
    assert wiring.calls == [("handback", ("r", "ann", True)), ("handback", ("r", "ann", False))]
    wiring.verified = False
    assert invoke(wiring, "takeover", "--reason", "r", "--yes").exit_code == 1
    assert invoke(wiring, "takeover", "--dry-run").exit_code == 1


@pytest.mark.parametrize("command", ["takeover", "handback"])
def test_only_a_dry_run_needs_no_reason(wiring: FakeWiring, command: str) -> None:
    """As of every other command; a reason of blanks is none."""
    assert invoke(wiring, command, "--dry-run").exit_code == 0
    wiring.calls.clear()
    for more in ([], ["--yes"], ["--yes", "--reason", " "]):
        refused = invoke(wiring, command, *more)
        assert refused.exit_code == 2 and "a reason is needed: --reason TEXT" in refused.stderr
    assert wiring.calls == []


def test_a_blank_reason_is_wrong_before_a_sidecar_is_asked(wiring: FakeWiring) -> None:
    """Not "no sidecar answers" first: the mistake would be told only once there is one."""
    refused = invoke(wiring, "pause", "--reason", " ", "--socket", "nowhere.sock")
    assert refused.exit_code == 2 and "must not be blank" in refused.stderr


def test_uninstall_counts_and_asks_first(wiring: FakeWiring) -> None:
    """A dry run comes first in any case; no means that nothing was deleted."""
    dry = invoke(wiring, "uninstall", "--dry-run", "-o", "wide")
    assert (dry.exit_code, wiring.calls) == (0, [("uninstall", True)])
    assert dry.stdout.splitlines()[-4:] == [
        *("epoch", "state", "state/ledger"),
        "would be deleted: 3 nodes of /bundlekeel/standalone",
    ]
    no = invoke(wiring, "uninstall", typed="n\n")
    assert no.exit_code == 4 and "Delete 3 nodes below /bundlekeel/standalone?" in no.stderr
    assert ("uninstall", False) not in wiring.calls
    yes = invoke(wiring, "uninstall", "--yes")
    assert yes.exit_code == 0 and wiring.calls[-1] == ("uninstall", False)
    assert yes.stdout.endswith("deleted: 3 nodes of /bundlekeel/standalone; files and settings of hosts stay\n")


def test_uninstall_of_nothing_says_so(wiring: FakeWiring) -> None:
    """Once all is deleted, or under a cluster's name that was mistyped; nothing is asked."""
    wiring.nodes = []
    for how in (["--dry-run"], ["--yes"], []):
        said = invoke(wiring, "uninstall", *how)
        assert (said.exit_code, said.stdout) == (0, "nothing to delete: /bundlekeel/standalone does not exist\n")
    assert ("uninstall", False) not in wiring.calls


def test_decide_reads_a_file_or_standard_input(wiring: FakeWiring) -> None:
    """A line in, a line out; a missing file is wrong usage."""
    lines = '{"reset":{}}\n{"brokers":{}}\nnonsense\n'
    Path("turns.jsonl").write_text(lines)
    outputs = [invoke(wiring, "decide", typed=lines).stdout, invoke(wiring, "decide", "turns.jsonl").stdout]
    assert outputs[0] == outputs[1]
    first, second = map(json.loads, outputs[0].splitlines())
    assert first["verdict"]["code"] == "NoBrokers" and second["error"]["line"] == 3
    assert invoke(wiring, "decide", "missing.jsonl").exit_code == 2


@pytest.mark.parametrize(("lines", "code"), [("nonsense\n{}\n", 1), ('nonsense\n{"brokers":{}}\n', 0), ("", 0)])
def test_decide_of_bad_lines_only_is_bad_news(wiring: FakeWiring, lines: str, code: int) -> None:
    """A script must not take errors alone for decisions."""
    assert invoke(wiring, "decide", typed=lines).exit_code == code


def test_version_and_help(wiring: FakeWiring) -> None:
    """Help names every command and the exit codes."""
    assert invoke(wiring, "version").stdout == invoke(wiring, "--version").stdout == f"bundlekeel {__version__}\n"
    assert json.loads(invoke(wiring, "version", "-o", "json").stdout) == {"version": __version__}
    text = invoke(wiring, "--help").stdout
    names = "run status brokers bundles plan why verdicts journal where doctor takeover handback pause resume mode"
    for name in (*names.split(), "config", "decide", "version"):
        assert f" {name} " in text
    said = " ".join(text.split())
    assert "Exit codes" in said and "a wait timed out" in said and "4 refused" in said
    assert "Start with config init" in said.replace("`", "") and "BUNDLEKEEL_CONFIG" in said
    assert "--install-completion" in text


def test_the_help_names_what_an_option_takes(wiring: FakeWiring) -> None:
    """Strategies, placements, a parameter with its value, and what `doctor --for` checks before."""
    app, wide = make_app(lambda: wiring), {"COLUMNS": "400"}
    plan, doctor = (CliRunner().invoke(app, [name, "--help"], env=wide).stdout for name in ("plan", "doctor"))
    for name in (*STRATEGIES, *PLACEMENTS, "threshold_percent=5"):
        assert name in plan
    assert "`act`:" in doctor


def test_every_command_is_found_in_its_module() -> None:
    """Each module has exactly the commands that the table of the app gives it."""
    root: Any = typer.main.get_command(make_app(FakeWiring))
    assert [command.name for command in root.commands.values()] == list(root.commands)


def test_help_is_in_panels_and_gives_flags_no_type(wiring: FakeWiring) -> None:
    """A newcomer reads what a command is for by its panel, and `--yes` takes no value."""
    text = invoke(wiring, "--help").stdout
    panels = [text.index(f"─ {name} ─") for name in ("Look", "Ask", "Intervene", "Go live", "Offline")]
    assert panels == sorted(panels)
    for words in ([], ["drain"], ["plan"], ["plan", "execute"], ["config"], ["simulate"]):
        assert "<bool>" not in invoke(wiring, *words, "--help").stdout
    assert invoke(wiring, "drain", "--help").stdout.index("--yes") < invoke(wiring, "drain", "--help").stdout.index(
        "Select the sidecar"
    )


def test_little_is_imported_for_little() -> None:
    """The version and a command that does not exist need neither adapters nor servers nor what plans."""
    for arguments in (["--version"], ["version"], ["no-such-command"]):
        code = (
            "import sys, atexit; from bundlekeel.wiring import main; "
            "atexit.register(lambda: print(*sys.modules)); main()"
        )
        ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        imported = set(ran.stdout.split())
        assert "bundlekeel.cli.app" in imported
        assert not imported & {
            "numpy",
            "fastapi",
            "httpx",
            "kazoo",
            "bundlekeel.settings.model",
            "bundlekeel.leader",
        }, arguments


@pytest.mark.parametrize("command", ["status", "journal"])
def test_a_question_to_a_sidecar_imports_what_asks_and_draws(command: str) -> None:
    """By its address or socket. The settings, numpy and what only a sidecar needs take longer than the rest."""
    code = (
        "import sys, atexit; from bundlekeel.wiring import main; atexit.register(lambda: print(*sys.modules)); main()"
    )
    asked = [sys.executable, "-c", code, *command.split(), "--socket", "nowhere.sock"]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    imported = set(ran.stdout.split())
    assert ran.returncode == 3 and "httpx" in imported
    heavy = {"numpy", "structlog", "httpx._main", "kazoo", "fastapi", "bundlekeel.settings.model"}
    assert not imported & heavy


def test_a_command_builds_no_schema_of_the_journal() -> None:
    """That takes longer than all other answers together, and only the API needs it."""
    code = (
        "import bundlekeel.cli.journal; from bundlekeel.views.journal import JournalRecord as record; "
        "print(record.__pydantic_complete__)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_no_color(wiring: FakeWiring) -> None:
    """NO_COLOR is heeded even where colour is forced by a terminal."""
    env = {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "100"}
    plain = CliRunner().invoke(make_app(lambda: wiring), ["doctor"], env=env, color=True).stdout
    assert "\x1b[3" not in plain


def test_units() -> None:
    """Three digits and a prefix; ages in their two largest units; unknown is a dash."""
    assert [units.throughput(x) for x in (0, 950, 12_345, 999_960, 2.5e9)] == [
        "0 B/s",
        "950 B/s",
        "12.3 kB/s",
        "1.0 MB/s",
        "2.5 GB/s",
    ]
    assert [units.age(x) for x in (0.4, 42, 190, 7500, 273_600, None)] == [
        "0.4 s",
        "42 s",
        "3m 10s",
        "2h 5m",
        "3d 4h",
        "–",
    ]
    assert (units.share(0.123), units.share(None), units.amount(None), units.amount(0.001)) == (
        "12.3%",
        "–",
        "–",
        "0.001",
    )


def test_times_have_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of a sidecar have UTC, tables the zone of who reads them."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert units.moment(0) == "1970-01-01 09:00:00 JST" and units.moment(0, short=True) == "01-01 09:00:00 JST"
        now_ms = time.time_ns() // 1_000_000_000 * 1000
        utc = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC).strftime(units.LONG)
        for text in (units.moment(now_ms), units.moment(now_ms, short=True), utc):
            assert period(text, None)["since_ms"] == now_ms  # as tables print it
        last = period("12-31 23:59:59 JST", None)["since_ms"]
        assert last is not None and now_ms - 366 * 86_400_000 <= last <= now_ms
    time.tzset()


def test_the_list_of_commands_names_config_init(wiring: FakeWiring) -> None:
    """The same help says to begin with it."""
    assert "Write (`init`), check and show settings; list the parameters." in invoke(wiring, "--help").stdout
