"""`bundlekeel history sql` and `read_history` on a recorded day."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from bundlekeel.model.errors import ConfigError, HistoryError
from bundlekeel.recalibration.commands import MOST_ROWS
from bundlekeel.recalibration.history.ports import HOUR_MS
from bundlekeel.recalibration.history.record import BROKERS, Frame, HistoryRecord
from bundlekeel.recalibration.history.replay import RebuiltCycle, rebuilt
from bundlekeel.recalibration.parquet import ParquetStore, read_history
from bundlekeel.recalibration.parquet.tables import TABLES
from bundlekeel.wiring.commands import Bootstrap
from dev.history_worlds import World, records
from tests.support.apps import make_app

ROOT = Path(__file__).resolve().parents[3]
DAY = World(days=1, brokers=3, bundles=30, period_seconds=600, noise=0.3, seed=2)
EXAMPLES = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/concepts/history.md").read_text(encoding="utf-8"), re.DOTALL)


def _leave_and_stay(number: int, frame: Frame) -> Frame:
    """The first broker is constant. The last one and its bundles leave within an hour, with and without a return."""
    brokers, bundles = frame.brokers, frame.bundles
    floats, whole = brokers.floats.copy(), brokers.whole.copy()
    floats[0], whole[0] = 5e6, 7
    frame = replace(frame, brokers=replace(brokers, floats=floats, whole=whole))
    if number % 24 not in {3, 4, 5, 6, 7, 13, 14}:
        return frame
    stays = np.flatnonzero(bundles.texts[:, 0] != brokers.names[-1])
    return replace(frame, brokers=frame.brokers.rows(np.arange(len(brokers) - 1)), bundles=bundles.rows(stays))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A day of three brokers."""
    folder = tmp_path_factory.mktemp("history")
    store = ParquetStore(folder, "pulsar-1")
    for hour, together in groupby(records(DAY, _leave_and_stay), lambda record: record.wall_ms // HOUR_MS):
        store.publish(1, hour, list(together))
    return folder


@pytest.fixture(scope="module")
def cycles(history: Path) -> list[RebuiltCycle]:
    """All cycles, by the reader of `history check`."""
    store = ParquetStore(history)
    return list(rebuilt(record for file in store.files() for record in store.records(file)))


def run(query: str, place: Path, *options: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    arguments = ["history", "sql", query, "--history", str(place), *options]
    result = CliRunner().invoke(make_app(Bootstrap), arguments, env={"COLUMNS": "400"})
    return result.exit_code, result.stdout, result.stderr


def rows(query: str, place: Path, *options: str) -> list[dict[str, Any]]:
    code, output, error = run(query, place, *options, "-o", "json")
    assert code == 0, error
    result: list[dict[str, Any]] = json.loads(output)
    return result


def _moves_per_hour(cycles: list[RebuiltCycle]) -> list[dict[str, Any]]:
    gains = defaultdict(list)
    for item in cycles:
        for move in item.record.outcome.details["moves"]:
            left = max(move["source_after"], move["target_after"])
            gains[item.record.wall_ms // 3_600_000 % 24].append(move["source_before"] - left)
    date = "2023-11-13"
    return [
        {"date": date, "hour": hour, "moves": len(of), "gain": pytest.approx(sum(of) / len(of))}
        for hour, of in sorted(gains.items())
    ]


def _most_moved(cycles: list[RebuiltCycle]) -> list[dict[str, Any]]:
    moves = [move for item in cycles for move in item.record.outcome.details["moves"]]
    owners = {move["bundle"]: move["target"] for move in moves}
    counts = Counter(move["bundle"] for move in moves)
    most = sorted(owners, key=lambda name: (-counts[name], name))[:10]
    return [{"bundle": name, "moves": counts[name], "owner": owners[name]} for name in most]


def _imbalance(cycles: list[RebuiltCycle]) -> list[dict[str, Any]]:
    at = [BROKERS.floats.index(f"traffic_msg_throughput_{way}") for way in ("in", "out")]
    hours = defaultdict(list)
    for item in cycles:
        assert item.frame is not None
        load = item.frame.brokers.floats[:, at].sum(axis=1)
        hours[item.record.wall_ms // 3_600_000 % 24].append(load.max() / load.mean())
    return [{"hour": hour, "imbalance": pytest.approx(sum(of) / len(of))} for hour, of in sorted(hours.items())]


@pytest.mark.parametrize(
    ("example", "expected"), list(zip(EXAMPLES, (_moves_per_hour, _most_moved, _imbalance), strict=True))
)
def test_each_example_of_the_docs_agrees_with_the_rebuilt_cycles(
    example: str, expected: Callable[[list[RebuiltCycle]], list[dict[str, Any]]], history: Path, cycles: Any
) -> None:
    wanted, result = expected(cycles), rows(example, history)
    assert len(wanted) >= 5
    assert result == wanted


@pytest.mark.parametrize("table", ["brokers", "bundles"])
@pytest.mark.parametrize("since", [0, 13, 40])
def test_the_rows_give_the_members_of_each_cycle(table: str, since: int, history: Path, cycles: Any) -> None:
    """Also if the period begins within an hour."""
    changes, members = defaultdict(list), set()
    for row in read_history(str(history), table, since_ms=cycles[since].record.wall_ms).to_pylist():
        changes[row["cycle"]].append(row)
    departures: set[str] = set()
    for item in cycles[since // 6 * 6 :]:
        missing = {row["name"] for row in changes[item.record.cycle] if row["topics"] is None}
        members = (members | {row["name"] for row in changes[item.record.cycle]}) - missing
        assert members == set(getattr(item.frame, table).names)
        departures |= missing
    assert departures


def test_a_record_of_all_values_ends_what_left_in_a_gap(history: Path, tmp_path: Path) -> None:
    """In the first hour, cycles are lost while a broker leaves, and the recorder starts again in that hour.

    A copy of a file changes nothing."""
    source, store = ParquetStore(history), ParquetStore(tmp_path)
    lost = source.records(source.files()[0])
    later = list(records(DAY, _leave_and_stay))[6]
    restart: HistoryRecord = replace(later, wall_ms=lost[-1].wall_ms)
    for seq in (1, 2):
        store.publish(1, seq, [*lost[:2], lost[4], restart])
    table = read_history(str(tmp_path), "brokers").to_pylist()
    gone = [(row["cycle"], row["load_manager"]) for row in table if row["topics"] is None]
    assert gone == [(restart.cycle, None)]


def test_a_period_that_begins_within_an_hour_has_that_hour_in_full(history: Path, cycles: Any) -> None:
    start = "2023-11-13T12:30Z"
    hour = [item for item in cycles if item.record.wall_ms // HOUR_MS % 24 >= 12]
    assert rows(EXAMPLES[2], history, "--since", start) == _imbalance(hour)
    brokers = "SELECT count(DISTINCT name) AS brokers FROM brokers WHERE hour = 12"
    assert rows(brokers, history, "--since", start) == [{"brokers": 3}]


def test_a_row_has_its_date_hour_and_cluster(history: Path) -> None:
    expected = [{"date": "2023-11-13", "cluster": "pulsar-1", "hours": 24, "cycles": 144}]
    query = "SELECT date, cluster, count(DISTINCT hour) AS hours, count(*) AS cycles FROM cycles GROUP BY ALL"
    assert rows(query, history) == expected
    assert rows(query.replace("FROM", "from"), history, "--since", "2023-11-13T12:00Z")[0]["cycles"] == 72


@pytest.mark.parametrize("table", TABLES)
def test_read_history_returns_the_rows_of_sql(table: str, history: Path) -> None:
    whole = read_history(str(history), table)
    assert whole.schema.equals(TABLES[table])
    assert rows(f"SELECT count(*) AS n FROM {table}", history) == [{"n": whole.num_rows}]
    first = whole.column("wall_ms").to_pylist()[0]
    part = read_history(history.as_uri(), table, since_ms=first, until_ms=first)
    assert 0 < part.num_rows < whole.num_rows
    assert set(part.column("wall_ms").to_pylist()) == {first}


def test_a_merged_file_counts_once(history: Path, tmp_path: Path) -> None:
    """Both exist after a crash in a merge."""
    store, place = ParquetStore(history), tmp_path / "copy"
    copy = ParquetStore(place)
    records = store.records(store.files()[0])
    files = [copy.publish(1, seq, records[at:][:3]) for seq, at in ((1, 0), (2, 3))]
    copy.merge(files)
    assert len(copy.files()) == 3
    assert read_history(str(place)).num_rows == len(records)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("SELECT * FROM readings", ("readings does not exist", "LINE 1", "tables: cycles, brokers, bundles, moves")),
        ("SELECT gain FROM moves", ('"gain" not found', "columns of moves: date, hour, cluster, epoch", "rule")),
        ("SELECT 1\nFRM x y", ('syntax error at or near "x"', "LINE 2: FRM x y")),
        ("SELECT code::INTEGER FROM cycles", ("Could not convert",)),
        ("SELECT 1; SELECT 2", ("not one SELECT",)),
        ("SELECT 1; -- nothing\nDROP VIEW cycles", ("not one SELECT",)),
        ("CREATE TABLE x AS SELECT 1", ("not one SELECT",)),
        ("DELETE FROM moves", ("not one SELECT",)),
        ("SET enable_external_access = true", ("not one SELECT",)),
        ("COPY moves TO '/tmp/moves.csv'", ("not one SELECT",)),
        ("ATTACH '/tmp/a.db'", ("not one SELECT",)),
        ("SELECT * FROM read_text('/etc/passwd')", ("disabled by configuration",)),
        ("SELECT * FROM read_parquet('/etc/*')", ("disabled by configuration",)),
        ("SELECT * FROM '/etc/passwd'", ("does not exist",)),
        ("SELECT * FROM database", ("does not exist",)),
    ],
)
def test_a_wrong_or_writing_query_is_refused(query: str, parts: tuple[str, ...], history: Path) -> None:
    code, output, error = run(query, history)
    assert (code, output) == (2, "")
    assert [part for part in parts if part not in error] == [], error


def test_faults_of_the_history_are_named(history: Path, tmp_path: Path) -> None:
    assert run("FROM cycles", tmp_path)[::2] == (1, f"error: nothing is recorded in {tmp_path} for that time\n")
    assert run("FROM cycles", history, "--until", "2020-01-01")[0] == 1
    store = ParquetStore(history)
    path = tmp_path / store.files()[0].path
    path.parent.mkdir(parents=True)
    data = bytearray((history / store.files()[0].path).read_bytes())
    path.write_bytes(data[:5000])
    assert (run("FROM cycles", tmp_path)[0], path.name in run("FROM cycles", tmp_path)[2]) == (1, True)
    data[100:5000] = bytes(4900)
    path.write_bytes(data)
    code, _, error = run("FROM cycles", tmp_path)
    assert (code, "run bundlekeel history check" in error) == (1, True), error
    with pytest.raises(HistoryError, match="history check"):
        read_history(str(tmp_path))
    pq.write_table(pq.read_table(history / store.files()[0].path), path)
    assert "was not recorded by Bundlekeel" in run("FROM cycles", tmp_path)[2]
    with pytest.raises(ConfigError, match="readings"):
        read_history(str(history), "readings")


def test_a_long_result_is_cut_with_a_note(history: Path) -> None:
    """Without reading the rest: these rows do not fit into memory."""
    code, output, error = run("SELECT range AS n FROM range(1000000000000)", history, "-o", "json")
    assert (code, json.loads(output)) == (0, [{"n": n} for n in range(MOST_ROWS)])
    assert f"the first {MOST_ROWS:,} rows" in error
    code, output, error = run(f"FROM range({MOST_ROWS})", history, "-o", "json")
    assert (code, len(json.loads(output)), error) == (0, MOST_ROWS, "")


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["a", "a", "a_1"], ["a", "a_2", "a_1"]),
        (["a_1", "a", "a", "a_1"], ["a_1", "a", "a_2", "a_1_1"]),
        (["a", "a", "a"], ["a", "a_1", "a_2"]),
    ],
)
def test_no_column_is_lost(names: list[str], columns: list[str], history: Path) -> None:
    query = "SELECT " + ", ".join(f"{number} AS {name}" for number, name in enumerate(names))
    assert rows(query, history) == [dict(zip(columns, range(len(names)), strict=True))]


def test_values_that_json_lacks(history: Path) -> None:
    """And equal names of columns."""
    query = "SELECT 'nan'::DOUBLE AS a, DATE '2026-01-05' AS a, 1.5::DECIMAL(9, 2) AS b, [1, NULL] AS c, {'x': 1} AS d"
    assert rows(query, history) == [{"a": None, "a_1": "2026-01-05", "b": 1.5, "c": [1, None], "d": {"x": 1}}]
    code, output, _ = run("SELECT 12345.5 AS rate, NULL AS none, 'x' AS text", history)
    assert (code, [line.split() for line in output.splitlines()]) == (
        0,
        [["rate", "none", "text"], ["12,345.5", "x"]],
    )
    assert run("SELECT * FROM moves WHERE false", history)[1] == "no rows\n"


def test_without_duckdb_the_remedy_is_told(history: Path) -> None:
    """In a process of its own, which has no duckdb."""
    code = "import sys; sys.modules['duckdb'] = None; from bundlekeel.__main__ import main; main()"
    arguments = [sys.executable, "-c", code, "history", "sql", "FROM cycles", "--history", str(history)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "error: history sql needs duckdb: pip install '.[sql]' in the sources\n",
    )
