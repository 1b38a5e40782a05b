"""Plans of a recorded history, compared with `plans_golden.txt` byte by byte.

The recorder wrote `golden_history`: runs of the simulator with each strategy, then random inputs, some with `compat`.
The text has one section per cycle: the hash and the plan; plans longer than `LONGEST` are digests. History files must
stay readable and plans must stay equal, so both stay as they are: where a cycle fails, change the code. Numbers have
12 digits here, because CPUs with and without AVX-512 differ in the last digit of some.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.model.plan import Plan
from bundlekeel.planning.engine import plan
from bundlekeel.recalibration.history.frames import input_of
from bundlekeel.recalibration.history.record import Frame, HistoryRecord, dumped
from bundlekeel.recalibration.history.replay import rebuilt
from bundlekeel.recalibration.parquet import FileWal, ParquetStore
from bundlekeel.recalibration.recorder.recorder import Recorder
from bundlekeel.records.metrics import PrometheusTelemetry
from tests.support.world import TestClock

HERE = Path(__file__).parent
MOVE = (
    *("bundle", "source", "target", "rule", "threshold", "source_before", "source_after", "target_before"),
    *("target_after", "runner_up", "traffic", "pressure", "sentence"),
)
SPLIT = ("bundle", "broker", "rule", "value", "limit", "hits", "at", "halves", "sentence")
PLAN = (
    *("wall_ms", "strategy", "placement", "seed", "snapshot_digest", "verdict", "brokers", "refusals", "loads"),
    *("groups", "split_refusals", "mean", "hash", "extra"),
)
LONGEST = 2500


def read(folder: Path) -> list[HistoryRecord]:
    """Every record of a history, in order."""
    store = ParquetStore(folder)
    return [record for file in store.files() for record in store.records(file)]


RECORDS = read(HERE / "golden_history")
FRAMES = [item.frame for item in rebuilt(RECORDS)]
GOLDEN = [part.split("\n")[1:-1] for part in (HERE / "plans_golden.txt").read_text().split("== ")[1:]]


def twelve_digits(text: str) -> str:
    """Round every number with a decimal point."""
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda match: f"{float(match[0]):.12g}", text)


def as_json(made: Plan) -> str:
    """Every value of a plan without its name, so that a new field does not change the text."""
    values: dict[str, Any] = {name: getattr(made, name) for name in PLAN}
    values["closed"] = sorted(made.closed)
    for name, columns in (("moves", MOVE), ("splits", SPLIT)):
        values[name] = [[getattr(item, column) for column in columns] for item in getattr(made, name)]
    return twelve_digits(json.dumps([values[name] for name in sorted(values)], separators=(",", ":"), default=astuple))


def section(frame: Frame) -> list[str]:
    """Return hash and plan of a recorded input."""
    made = plan(input_of(frame)).plan
    text = as_json(made)
    return [made.hash, text if len(text) <= LONGEST else hashlib.sha256(text.encode()).hexdigest()]


def test_each_record_has_a_plan() -> None:
    """Every record can be rebuilt, and the history contains moves, splits and plans of Pulsar's own classes."""
    assert len(GOLDEN) == len(FRAMES) == len([frame for frame in FRAMES if frame is not None])
    assert sum(record.outcome.planned for record in RECORDS) > 50
    assert {frame.document["params.compat"] for frame in FRAMES if frame} == {"none", "4.0", "4.2"}


@pytest.mark.parametrize("place", range(len(GOLDEN)))
def test_a_plan_is_the_same_to_the_byte(place: int) -> None:
    """And its hash is the recorded one."""
    frame = FRAMES[place]
    assert frame is not None
    assert section(frame) == GOLDEN[place]
    assert GOLDEN[place][0] == RECORDS[place].outcome.plan_hash


async def test_the_recorder_writes_the_same_history(tmp_path: Path) -> None:
    """Outcomes are as in the file, and the inputs of the new file give the same plans."""
    recorder = Recorder(
        lambda: (FileWal(tmp_path / "wal"), ParquetStore(tmp_path / "store")),
        PrometheusTelemetry(),
        TestClock(),
        leads=lambda: False,
    )
    task = asyncio.create_task(recorder.run())
    for record, frame in zip(RECORDS, FRAMES, strict=True):
        assert frame is not None
        given = input_of(frame)
        recorder.take(record.epoch, given, plan(given), record.outcome.details["report"])
        await asyncio.sleep(0)
        while recorder._queue:  # noqa: ASYNC110 - another thread works
            await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await recorder.close()
    again = read(tmp_path / "store")
    assert [written(record) for record in again] == [written(record) for record in RECORDS]
    assert [item.frame and section(item.frame) for item in rebuilt(again)] == GOLDEN


def written(record: HistoryRecord) -> list[Any]:
    """Everything in a record but its input, which may gain fields, and the name of the software."""
    outcome = record.outcome
    counts = (outcome.planned, outcome.acted, outcome.dropped, outcome.skipped)
    head = (record.epoch, record.cycle, record.wall_ms, record.full, record.base, record.schema)
    return [*head, outcome.plan_hash, outcome.code, *counts, twelve_digits(dumped(outcome.details))]
