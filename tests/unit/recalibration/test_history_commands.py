"""`bundlekeel history` and `bundlekeel replay` on real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bundlekeel.recalibration.history.frames import frame_of
from bundlekeel.recalibration.history.record import recorded
from bundlekeel.recalibration.parquet import ParquetStore
from bundlekeel.settings.model import Settings
from bundlekeel.wiring.commands import Bootstrap
from tests.support.apps import make_app
from tests.support.history_cases import START_MS, records_of, sequence


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two epochs: cycles 1 to 6 in two minutes, then 7 and 8."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BUNDLEKEEL_CONFIG", raising=False)
    place = tmp_path / "history"
    store = ParquetStore(place)
    records = records_of(sequence(6, 12))
    store.publish(1, 1, records[:3])
    store.publish(1, 2, records[3:])
    store.publish(2, 1, records_of(sequence(2, 13, start_ms=START_MS + 60_000), epoch=2, first=7))
    return place


def run(*arguments: str, columns: int = 400) -> Result:
    """The command line with the real store."""
    return CliRunner().invoke(make_app(Bootstrap), list(arguments), env={"COLUMNS": str(columns)})


def answer(folder: Path, *arguments: str) -> Any:
    result = run(*arguments, "--history", str(folder), "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_ls_lists_files_with_their_cycles(folder: Path) -> None:
    """In order, with spans; as JSON and as a table."""
    rows = answer(folder, "history", "ls")
    assert [(row["epoch"], row["first_cycle"], row["last_cycle"]) for row in rows] == [(1, 1, 3), (1, 4, 6), (2, 7, 8)]
    assert "1-2.parquet" in run("history", "ls", "--history", folder.as_uri()).stdout
    narrow = run("history", "ls", "--history", str(folder), columns=80).stdout.splitlines()
    assert narrow[0] == rows[0]["file"] and narrow[2].startswith("  3 cycles, ")
    assert (
        narrow[1] == "  cycle 1, 2023-11-14 22:00:00 UTC, to cycle 3, 2023-11-14 22:00:20 UTC"
        and narrow[-1] == "3 files"
        and max(map(len, narrow)) <= 80
    )


@pytest.mark.parametrize(
    ("name", "cycle"), [("5", 5), ("1:2", 2), ("2:8", 8), ("2023-11-14T22:00:25", 3), ("2023-11-14T23:01:05+01:00", 7)]
)
def test_show_finds_a_cycle_by_number_epoch_or_time(folder: Path, name: str, cycle: int) -> None:
    """A time means the last cycle up to it."""
    body = answer(folder, "history", "show", name)
    assert body["cycle"] == cycle
    assert body["plan"] and body["brokers"] > 0
    assert f"cycle {cycle} of epoch" in run("history", "show", name, "--history", str(folder)).stdout


def test_a_time_without_a_zone_is_local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert answer(folder, "history", "show", "2023-11-15T07:00:25")["cycle"] == 3
        assert (
            "2023-11-15 07:00:20 JST" in run("history", "show", "2023-11-14T22:00:25Z", "--history", str(folder)).stdout
        )
    time.tzset()


@pytest.mark.parametrize("word", ["1m", "today", "yesterday", "2023-11-14 22:00:25 UTC"])
def test_a_time_is_named_as_with_since(folder: Path, word: str) -> None:
    for number, days in enumerate((3, 1)):
        at_ms = int(1000 * (time.time() - 86_400 * days))
        late = records_of(sequence(1, 14, start_ms=at_ms), epoch=3 + number, first=9 + number)
        ParquetStore(folder).publish(3 + number, 1, late)
    expected = {"1m": 10, "today": 10, "yesterday": 9}.get(word, 3)
    assert answer(folder, "history", "show", word)["cycle"] == expected
    exported = run("history", "export", word, "--history", str(folder))
    assert json.loads(exported.stdout)["summary"]["cycle"] == expected
    assert answer(folder, "replay", word)["same"] == 1


def test_an_empty_history_is_said_once(tmp_path: Path) -> None:
    """Not that a cycle is missing in it, and no table of nothing. It names the place, which may be the wrong one."""
    output = run("history", "show", "1", "--history", str(tmp_path))
    listed = run("history", "ls", "--history", str(tmp_path))
    replayed = run("replay", "all", "--history", str(tmp_path))
    for result in (output, listed, replayed):
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            f"error: nothing is recorded in {tmp_path} yet; name another place with history.uri or --history\n"
        )
    assert json.loads(run("history", "ls", "--history", str(tmp_path), "-o", "json").stdout) == []


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("99", 1, "99 is not in the history"),
        ("7:1", 1, "7:1 is not in the history"),
        ("2020-01-01", 1, "2020-01-01 is not in the history"),
        ("0001-01-01", 2, "is neither a cycle (812)"),
        ("yesterdays", 2, "is neither a cycle (812)"),
        ("9" * 4095, 2, "is neither a cycle (812)"),
        ("\u0663", 2, "is neither a cycle (812)"),
    ],
)
def test_what_is_not_there_is_said(folder: Path, name: str, code: int, why: str) -> None:
    """With the exit code of bad news, or of wrong usage."""
    result = run("history", "show", name, "--history", str(folder))
    assert (result.exit_code, why in result.stderr) == (code, True), result.stderr


def test_export_holds_everything_plan_saw(folder: Path, tmp_path: Path) -> None:
    """Every broker, every bundle, every document path; to a file as well."""
    result = run("history", "export", "4", "--history", str(folder))
    parsed = json.loads(result.stdout)
    assert len(parsed["bundles"]) == parsed["summary"]["bundles"]
    assert {row["owner"] for row in parsed["bundles"]} <= {row["name"] for row in parsed["brokers"]}
    assert {"params.strategy", "guard.recent", "ledger.entries", "memory.courses", "seed"} <= set(parsed["input"])
    file = tmp_path / "cycle.json"
    assert run("history", "export", "4", "--history", str(folder), "--file", str(file)).exit_code == 0
    assert json.loads(file.read_text()) == parsed


def test_replay_of_all_and_of_one(folder: Path) -> None:
    """Same hashes, and how many cycles moved something."""
    result = answer(folder, "replay", "all")
    assert (result["ok"], result["cycles"], result["same"], result["different"]) == (True, 8, 8, [])
    assert answer(folder, "replay", "2:7")["same"] == 1
    assert "8 of 8 replayed cycles" in run("replay", "all", "--history", str(folder)).stdout


def test_another_plan_is_bad_news(folder: Path) -> None:
    """A record whose hash is another one: exit code 1, with both hashes and who recorded it."""
    record = records_of(sequence(1, 14), epoch=3, first=9)[0]
    ParquetStore(folder).publish(3, 1, [replace(record, outcome=replace(record.outcome, plan_hash="0" * 16))])
    result = run("replay", "all", "--history", str(folder))
    assert result.exit_code == 1
    assert f"recorded {'0' * 16} (test)" in result.stdout


def test_check_is_content_and_tells_what_is_wrong(folder: Path) -> None:
    """A truncated file is named with exit code 1; set aside on request; the others stay as they are."""
    assert answer(folder, "history", "check")["ok"]
    others = {path: path.read_bytes() for path in folder.rglob("*.parquet") if path.name != "1-2.parquet"}
    torn = next(folder.rglob("1-2.parquet"))
    torn.write_bytes(torn.read_bytes()[:-4])
    result = run("history", "check", "--history", str(folder))
    assert result.exit_code == 1
    assert "cannot be read: date=2023-11-14/hour=22/1-2.parquet" in result.stdout
    assert torn.exists()
    listed = run("history", "ls", "--history", str(folder))
    assert (listed.exit_code, "torn or no Parquet file" in listed.stdout) == (0, True)
    assert run("replay", "all", "--history", str(folder)).exit_code == 1
    result = run("history", "check", "--set-aside", "--history", str(folder))
    assert result.exit_code == 1 and "set aside: _aside/" in result.stdout
    assert not torn.exists()
    assert {path: path.read_bytes() for path in others} == others


def test_a_fault_is_a_line_however_many_cycles_it_costs(tmp_path: Path) -> None:
    records = records_of(sequence(6, 12))
    ParquetStore(tmp_path).publish(1, 2, records[2:])
    why = "it continues cycle 2 of epoch 1, which is missing"
    checked = run("history", "check", "--history", str(tmp_path)).stdout
    assert f"4 cycles, 1:3 to 1:6 cannot be rebuilt: {why}" in checked and checked.count("cannot be rebuilt") == 1
    replayed = run("replay", "all", "--history", str(tmp_path)).stdout
    assert f"4 cycles, 1:3 to 1:6: {why} (test)" in replayed and replayed.count("which is missing") == 1
    (torn,) = tmp_path.rglob("*.parquet")
    torn.write_bytes(torn.read_bytes()[:-4])
    for command in (["history", "check"], ["replay", "all"]):
        assert run(*command, "--history", str(tmp_path)).stdout.count("hour=22/1-2.parquet") == 1


def test_j12_an_empty_store_is_not_ok(folder: Path, tmp_path: Path) -> None:
    """Nothing recorded is what a wrong folder or bucket looks like: said, exit code 1, in JSON too."""
    empty = tmp_path / "none"
    empty.mkdir()
    result = run("history", "check", "--history", str(empty))
    assert (result.exit_code, result.stdout.split("\n")[-2]) == (1, "not ok")
    assert f"nothing is recorded in {empty} yet; name another place with history.uri" in result.stdout
    listed = run("history", "ls", "--history", str(empty))
    assert (listed.exit_code, f"nothing is recorded in {empty} yet" in listed.stderr) == (1, True)
    output = run("history", "check", "--history", str(empty), "-o", "json")
    assert (output.exit_code, json.loads(output.stdout)["ok"]) == (1, False)
    for torn in folder.rglob("*.parquet"):
        torn.write_bytes(b"")
    assert run("history", "check", "--set-aside", "--history", str(folder)).exit_code == 1
    assert f"nothing is recorded in {folder} yet" in run("history", "check", "--history", str(folder)).stdout


def test_without_a_store_it_says_so(folder: Path, tmp_path: Path) -> None:
    result = run("history", "ls")
    assert (result.exit_code, "history.uri is not set" in result.stderr) == (2, True)
    empty = run("replay", "all", "--history", str(tmp_path))
    assert (empty.exit_code, "nothing is recorded in" in empty.stderr) == (1, True)
    for wrong, message in (
        ("ftp://somewhere/else", "the scheme 'ftp' is not known (allowed: a folder, or one of the schemes file, s3, "),
        ("s3:/bucket/keel", "neither a folder nor a URI"),
        (f"file:{folder}", "nor a URI"),
        ("", "is empty"),
    ):
        slash = run("history", "check", "--history", wrong)
        assert (slash.exit_code, message in slash.stderr) == (2, True)


@pytest.mark.parametrize("command", ["history ls", "history show 1", "history check", "history export 1", "replay all"])
def test_a_folder_that_is_not_there_is_named(tmp_path: Path, command: str) -> None:
    """A misprint is not an empty history."""
    result = run(*command.split(), "--history", str(tmp_path / "none"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: --history: there is no folder {tmp_path / 'none'} (allowed: a folder that is there, or a URI with ://)\n"
    )


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("history", "ls", "--history", str(tmp_path / "file"))
    assert (result.exit_code, f"there is no folder {tmp_path / 'file'}" in result.stderr) == (2, True)


def test_a_name_that_is_no_text_is_passed_over(folder: Path) -> None:
    (folder / os.fsdecode(b"\xff")).touch()
    assert len(answer(folder, "history", "ls")) == 3


def test_h16_links_that_lead_back_are_not_followed(folder: Path, tmp_path: Path) -> None:
    """Two links to the folder itself double the paths with every level. A day that is a link is read like any other."""
    for name in ("here", "again", "date=2023-11-15"):
        (folder / name).symlink_to(".")
    (folder / "date=2023-11-16").symlink_to("date=2023-11-16")
    day = folder / "date=2023-11-14"
    day.rename(tmp_path / "elsewhere")
    day.symlink_to(tmp_path / "elsewhere")
    # A process of its own, for it may have to be killed.
    command = [sys.executable, "-c", "from bundlekeel.wiring import main; main()", "history", "ls"]
    command += ["--history", str(folder), "-o", "json"]
    done = subprocess.run(command, check=False, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert [row["file"] for row in json.loads(done.stdout)] == [row["file"] for row in answer(folder, "history", "ls")]
    assert len(json.loads(done.stdout)) == 3


def test_a_plugin_that_is_not_installed_here_is_said(folder: Path) -> None:
    inputs = next(sequence(1, 14))
    frame = frame_of(replace(inputs, params=replace(inputs.params, strategy="theirs")))
    outcome = records_of([inputs])[0].outcome
    ParquetStore(folder).publish(3, 1, [recorded(None, frame, epoch=3, cycle=9, outcome=outcome)])
    result = run("replay", "all", "--history", str(folder))
    assert (result.exit_code, "'theirs' is not known here" in result.stdout) == (1, True)
    assert "8 of 9 replayed cycles give the recorded plan" in result.stdout


def test_the_settings_name_the_store(folder: Path, tmp_path: Path) -> None:
    """A folder of the settings belongs to the settings file's folder."""
    config = tmp_path / "keel.yaml"
    config.write_text("history: {uri: history}\n")
    result = run("replay", "all", "-c", str(config), "-o", "json")
    assert json.loads(result.stdout)["same"] == 8
    assert Settings().history.uri is None
