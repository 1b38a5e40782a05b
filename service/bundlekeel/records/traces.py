"""Traces: one tree of spans per cycle, created from the journal records at the end of the cycle.

The parts of a tree: cycle -> plan, cycle -> execute -> each move, cycle -> split -> each split. Creating a tree does
not delay the cycle, because journal records contain all times and durations. Moves that an operator requested are
separate trees.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from bundlekeel.ports import Clock
from bundlekeel.ports.traces import Span, SpanSink

# Highest number of moves that wait for their cycle's record; budgets allow far fewer.
KEPT: Final = 2_000
_FINE: Final = ("done", "released")
_CYCLE: Final = ("cycle", "epoch", "code", "sentence", "acted", "obstacle")
_PLAN: Final = ("plan", "digest", "planned", "planned_splits", "code")
_MOVE: Final = ("bundle", "source", "destination", "landed_on", "outcome", "code", "epoch", "intent", "cycle")
_SPLIT: Final = ("bundle", "broker", "rule", "outcome", "code", "epoch", "intent", "cycle")


class Traces:
    """Passes a tree of spans to the sink for each cycle, and for each requested move or split."""

    def __init__(self, sink: SpanSink, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self._parts: deque[tuple[str, Span]] = deque(maxlen=KEPT)

    def observe(self, record: Mapping[str, Any]) -> None:
        """Process a journal record. Returns immediately and never raises."""
        kind = record.get("kind")
        if kind in ("move", "split") and record["started_ms"]:  # 0: an earlier leader started it, at an unknown time
            span = _part(record)
            if str(record["cycle"]).isdecimal():
                self._parts.append((str(record["cycle"]), span))
            else:
                self._sink.add(span)  # requested by an operator
        elif kind == "cycle":
            mine = [span for cycle, span in self._parts if cycle == str(record["cycle"])]
            self._parts.clear()
            self._sink.add(_cycle(record, mine, self._clock.wall_ms()))

    async def close(self) -> None:
        """Send the remaining spans."""
        await asyncio.to_thread(self._sink.close)


def _cycle(record: Mapping[str, Any], parts: list[Span], now_ms: float) -> Span:
    """Return the tree of a cycle that ended at `now_ms`. Its last parts are the execution of moves, then of splits."""
    seconds = record["seconds"]
    total = seconds.get("total", 0.0)
    start = now_ms - 1000 * total
    children = []
    if record["plan"] is not None:
        children.append(
            Span(name="plan", start_ms=start, seconds=seconds.get("plan", 0.0), attributes=_named(record, _PLAN))
        )
    end = now_ms
    for phase, name in (("split", "split"), ("execute", "move")):
        if phase in seconds:
            within = tuple(span for span in parts if span.name == name)
            end -= 1000 * seconds[phase]
            children.insert(1, Span(name=phase, start_ms=end, seconds=seconds[phase], children=within))
    return Span(
        name="cycle",
        start_ms=start,
        seconds=total,
        attributes=_named(record, _CYCLE),
        error=record["sentence"] if record["plan"] is None else "",
        children=tuple(children),
    )


def _part(record: Mapping[str, Any]) -> Span:
    kind = record["kind"]
    fine = record["outcome"] in _FINE
    return Span(
        name=kind,
        start_ms=record["started_ms"],
        seconds=record["seconds"],
        attributes=_named(record, _MOVE if kind == "move" else _SPLIT),
        error="" if fine else " ".join(filter(None, (record["outcome"], record["code"], record["error"]))),
    )


def _named(record: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, str | int | float | bool]:
    attributes = {f"bundlekeel.{key}": record[key] for key in keys if record[key] not in (None, "")}
    return {key: value for key, value in attributes.items() if isinstance(value, str | int | float | bool)}
