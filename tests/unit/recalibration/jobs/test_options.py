"""Options of `bundlekeel-recalibrate`, and its checks before Spark starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bundlekeel.model.errors import StoreError
from bundlekeel.model.uris import below
from bundlekeel.recalibration.jobs.__main__ import REFUSED, UNREACHABLE, USAGE, main, options_of, parser
from bundlekeel.recalibration.jobs.options import Options, newest
from bundlekeel.recalibration.jobs.places import OutputFolder
from bundlekeel.recalibration.rules.thresholds import AdoptionRules as Adoption
from bundlekeel.settings.load import load_settings
from dev.history_model import World
from dev.history_worlds import write

DAYS = ["2023-11-13", "2023-11-14", "2023-11-15"]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write three days of history."""
    folder = tmp_path_factory.mktemp("three") / "history"
    write(World(seed=5, days=3, brokers=3, bundles=20, period_seconds=900), folder)
    return folder


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """Return the output of `--explain`."""
    assert main([*arguments, "--explain"]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--placements", value) for value in ("0", "-1", "two")),
        ("--min-days", "1"),
        *(("--master", value) for value in ("nonsense", "local[0]", "local[", "spark://")),
        ("--out", " "),
        ("--history", ""),
    ],
)
def test_values_that_cannot_be_are_refused(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names option and value, with exit code 2, before Spark starts."""
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["--out", "x", f"{option}={value}"])
    assert f"argument {option}: {value!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[4]", "local[2, 3]", "spark://a:7077,b:7077", "yarn", "k8s://https://x:443"]
)
def test_masters(master: str) -> None:
    """These forms of Spark are accepted."""
    assert parser().parse_args(["--out", "x", "--master", master]).master == master


def test_more_days_than_there_have_been(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A large number of days selects all of them."""
    assert explain(capsys, "--history", str(history), "--out", "x", "--days", "999999")["days"] == DAYS
    few = explain(capsys, "--history", str(history), "--out", "x", "--days", "2", "--min-days", "2")
    assert few["days"] == DAYS[1:]


def test_the_hour_that_is_still_written_is_left_out_and_today_is_no_whole_day(history: Path) -> None:
    """A file written between listing and reading would belong to one hour only. At night, today has few hours."""
    late = Options(history=str(history), out="x", now=datetime(2023, 11, 15, 23, 30, tzinfo=UTC), days=1)
    hours = [(item.date, item.hour) for item in newest(late)]
    assert hours == [(DAYS[1], hour) for hour in range(24)] + [(DAYS[2], hour) for hour in range(23)]


def test_fewer_days_than_are_needed(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No history could be enough, so this is a usage error and not a refusal."""
    assert main(["--history", str(history), "--out", "x", "--days", "6"]) == 2
    assert "error: --days 6 is less than the 7 good days needed" in capsys.readouterr().err


def test_an_empty_history_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds where Spark could not start."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "history").mkdir()
    assert main(["--history", str(tmp_path / "history"), "--out", str(tmp_path / "out")]) == REFUSED
    assert f"TooLittleHistory: nothing is recorded in {tmp_path}" in capsys.readouterr().err
    assert main(["--history", str(tmp_path / "history"), "--out", str(tmp_path / "out"), "--await-history"]) == 0
    assert f'"reason": "nothing is recorded in {tmp_path}' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("needed", "left_out"), [("4", ()), ("3", ("--leave-out", DAYS[1]))])
def test_too_few_days_are_refused_before_spark_starts(
    history: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    needed: str,
    left_out: Sequence[str],
) -> None:
    """The names of the files are sufficient; Spark would need minutes. An omitted day cannot be a good one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    arguments = ["--history", str(history), "--out", str(tmp_path / "out"), "--min-days", needed, *left_out]
    days = int(needed) - 1
    message = f"history of {days} days; {needed} good days are needed"
    assert main(arguments) == REFUSED
    refused, _, last = capsys.readouterr().err.partition("\nerror: ")
    figures = json.loads(refused.partition(" ")[2])
    assert (figures["refused"], figures["span_days"], figures["cycles"]) == ("TooLittleHistory", days, None)
    assert last == f"TooLittleHistory: {message}\n"
    assert main([*arguments, "--await-history"]) == 0
    assert not (tmp_path / "out").exists()
    assert explain(capsys, *arguments)["refused"] == f"TooLittleHistory: {message}"


def test_a_day_of_which_nothing_is_recorded_is_not_awaited(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two others it is a bad day (`BadDays`), which waiting does not fix."""
    shutil.copytree(history, tmp_path / "history", ignore=lambda _, names: [name for name in names if DAYS[1] in name])
    arguments = ["--history", str(tmp_path / "history"), "--out", "x", "--min-days", "3"]
    result = explain(capsys, *arguments)
    assert (result["days"], result["refused"]) == ([DAYS[0], DAYS[2]], None)
    assert explain(capsys, *arguments, "--leave-out", DAYS[1])["refused"] == (
        "TooLittleHistory: history of 2 days; 3 good days are needed"
    )


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_that_is_not_there_is_no_empty_history(
    scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the job would wait for a misspelled name every night."""
    arguments = ["--history", f"{scheme}{tmp_path}/histroy", "--out", str(tmp_path / "out"), "--await-history"]
    assert main(arguments) == UNREACHABLE
    error = f"error: there is no directory {tmp_path}/histroy; choose another one with --history"
    assert error in capsys.readouterr().err


def test_no_java_is_told_in_a_sentence(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the requirement, the place of the search and the fix, and no gateway."""
    monkeypatch.setenv("PATH", "")
    for name in ("PYSPARK_GATEWAY_PORT", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert main(["--history", str(history), "--out", str(tmp_path), "--min-days", "3"]) == USAGE
    error = "error: Spark needs Java 17 or newer, and there is no java on the PATH: install a JDK"
    assert error in capsys.readouterr().err


def test_folders_are_the_same_for_all_executors(
    history: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors have other working directories, so a relative path would be another one for each."""
    monkeypatch.chdir(history.parent)
    plan = explain(capsys, "--history", history.name, "--out", "calibration")
    assert plan["history"] == str(history)
    assert str(plan["out"]).startswith(f"{history.parent}/calibration/")
    assert explain(capsys, "--history", f"file://{history}", "--out", "x")["history"] == f"file://{history}"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (
            "s3://b/c?endpoint_override=127.0.0.1:9000&scheme=http",
            "s3://b/c/a/x?endpoint_override=127.0.0.1:9000&scheme=http",
        ),
        ("s3://b/c/", "s3://b/c/a/x"),
        ("/folder/with?mark", "/folder/with?mark/a/x"),
    ],
)
def test_options_of_a_uri_stay_at_its_end(uri: str, expected: str) -> None:
    """Otherwise the folder would become part of an option, and files would be at another place or endpoint."""
    assert below(uri, "a/x") == expected


def test_a_place_with_options_writes_where_it_says(tmp_path: Path) -> None:
    """The file is at the returned address."""
    address = OutputFolder(f"file://{tmp_path}?use_mmap").write("a/b", b"x")
    assert (tmp_path / "a" / "b").read_bytes() == b"x"
    assert address == f"file://{tmp_path}/a/b?use_mmap"


def test_a_file_that_could_not_be_written_leaves_no_part_behind(tmp_path: Path) -> None:
    """On a full disk the partial file would keep it full. Here a folder prevents the write, and the folder stays."""
    (tmp_path / "day" / "thresholds.json" / "mine").mkdir(parents=True)
    with pytest.raises(StoreError, match="does not answer"):
        OutputFolder(str(tmp_path)).write("day/thresholds.json", b"{}")
    assert [path.name for path in (tmp_path / "day").iterdir()] == ["thresholds.json"]


def test_what_would_be_computed_is_told(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output contains depth and days of the search."""
    depth = ("--points", "5", "--rounds", "1", "--seed", "7", "--placements", "2")
    arguments = ("--history", str(history), "--out", "x", *depth)
    plan = explain(capsys, *arguments, "--parameter", "threshold_percent", "--leave-out", DAYS[0])
    assert [plan[name] for name in ("points", "rounds", "seed", "placements")] == [5, 1, 7, 2]
    assert explain(capsys, *arguments, "--min-days", "3")["refused"] is None
    assert plan["parameters"] == ["threshold_percent"]
    assert (plan["days"], plan["left_out"]) == (DAYS, DAYS[:1])


def test_a_day_to_leave_out_that_is_none_of_them_is_told(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be misspelled. It is not an error, because an omitted day becomes too old while the option stays."""
    arguments = ("--history", str(history), "--out", "x", "--leave-out", "2022-11-14", "--leave-out", DAYS[1])
    assert main([*arguments, "--explain"]) == 0
    message = "--leave-out 2022-11-14 has no effect: it is not between the first and the last recorded day\n"
    assert capsys.readouterr().err.partition(" ")[2] == message


def test_a_misspelt_parameter_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a similar name, the error lists all."""
    for arguments, message in (
        ("avg_low_treshold", "'avg_low_treshold' is not calibrated; did you mean 'avg_low_threshold_percent'?"),
        ("x", "'x' is not calibrated: expected one of avg_low_floor_percent, "),
        ("split_max_topics", "'split_max_topics' is not calibrated: history does not contain the topics of a bundle"),
        ("cpu_weight", "'cpu_weight' is not calibrated: it defines the score"),
    ):
        with pytest.raises(SystemExit, match="2"):
            parser().parse_args(["--parameter", arguments])
        assert message in " ".join(capsys.readouterr().err.split())


def settings(folder: Path, calibration: str) -> Path:
    """Write a settings file with this section `calibration`."""
    path = folder / "bundlekeel.yaml"
    path.write_text(
        "mode: observe\nmetadata_store: zk:127.0.0.1:2181\n"
        f"history: {{uri: {folder}/history}}\ncalibration: {{{calibration}}}\n"
    )
    return path


def test_the_settings_say_how_it_will_be_looked_at(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Place, required days and largest step are those of the sidecars."""
    path = settings(history.parent, "uri: results, min_days: 9, max_steps: 2, max_age: 1h, min_coverage: 0.5")
    plan = explain(capsys, "--settings", str(path))
    assert (plan["history"], plan["min_days"]) == (str(history), 9)
    assert str(plan["out"]).startswith(f"{history.parent}/results/")
    assert plan["max_steps"] == 2
    other = explain(capsys, "--settings", str(path), "--min-days", "3", "--out", "/elsewhere")
    assert other["min_days"] == 3
    assert str(other["out"]).startswith("/elsewhere/")


def test_a_password_that_only_the_sidecars_have_is_not_needed(
    history: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job does not connect to ZooKeeper, and may run on another host than the sidecars."""
    path = settings(history.parent, "uri: results")
    path.write_text(path.read_text() + "store: {sasl_username: keel}\n")
    monkeypatch.setenv("BUNDLEKEEL_SECRETS_DIR", str(history.parent / "none"))
    assert explain(capsys, "--settings", str(path))["history"] == str(history)


def test_rules_of_the_settings(history: Path) -> None:
    """The job uses all rules of the sidecar, its cluster and preference; without settings the defaults."""
    values = "min_days: 1, max_steps: 2, max_age: 1h, min_coverage: 0.5, prefer: balance"
    loaded = load_settings(settings(history.parent, values))
    parsed = parser().parse_args(["--history", "h", "--out", "o"])
    options = options_of(parsed, loaded)
    rules = Adoption(max_steps=2, max_age_seconds=3600, min_days=1, min_coverage=0.5, cluster="standalone")
    assert options.adoption == rules
    assert (options.rules.min_days, options.search.prefer) == (2, "balance")
    options = options_of(parsed, None)
    assert (options.adoption, options.rules.min_days, options.search.prefer) == (Adoption(), 7, "calm")


def test_without_a_place_for_results(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The place is neither an option nor in the settings."""
    assert main(["--history", str(history)]) == 2
    assert main(["--settings", str(settings(history.parent, ""))]) == 2
    assert capsys.readouterr().err.count("no directory for the results: pass --out URI") == 2


def test_a_place_that_cannot_be_written_to_is_told_at_once(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 comes before Spark starts and reads weeks of history. The place is not changed."""
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    for place in (str(blocked), f"file://{blocked}/below"):
        assert main(["--history", str(history), "--out", place]) == 3
        assert f"{blocked} is not a writable directory" in capsys.readouterr().err
    assert blocked.read_text() == "mine"
    OutputFolder(str(tmp_path / "not" / "yet" / "there")).check()
    assert list(tmp_path.iterdir()) == [blocked]


def test_explain_needs_no_spark(history: Path) -> None:
    """It works without pyspark, and a run names pyspark as missing."""
    without = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from bundlekeel.recalibration.jobs.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", without, "--history", str(history), "--out", str(history.parent / "out")]
    ran = subprocess.run([*command, "--explain"], capture_output=True, text=True, check=False)
    assert (ran.returncode, json.loads(ran.stdout)["days"]) == (0, DAYS)
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "pyspark" in ran.stderr and "Traceback" not in ran.stderr


def test_without_java_it_is_said(history: Path, tmp_path: Path) -> None:
    """Exit code 2 and a sentence; 1 would be a refusal."""
    out = tmp_path / "out"
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "bundlekeel.recalibration.jobs",
            "--history",
            str(history),
            "--out",
            str(out),
            "--min-days",
            "3",
        ],
        env=os.environ | {"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert f"error: Spark needs Java 17 or newer, and there is no java in JAVA_HOME ({tmp_path})" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not out.exists()
