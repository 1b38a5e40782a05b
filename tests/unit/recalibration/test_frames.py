"""Recorded values, documents and versions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import pytest

from bundlekeel.model.errors import HistoryError
from bundlekeel.planning.engine import PlanInput
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.recalibration.history.frames import STATE, document_of, frame_of, input_of, plain, restored
from bundlekeel.recalibration.history.record import SCHEMA, changed_document, document_changes, dumped
from bundlekeel.recalibration.history.replay import rebuilt, replay
from tests.support.history_cases import records_of, sequence
from tests.unit.planning.test_costs import followed, wave


@dataclass(frozen=True)
class Inner:
    """A value in a value."""

    at_ms: int
    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    """Every kind of member that a plan's input has."""

    number: float = 1.0
    nothing: int | None = None
    inner: Mapping[str, Inner] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], int] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    four: tuple[float, float] = (0.0, 0.0)
    many: tuple[Inner, ...] = ()


class TestValues:
    """`plain` and `restored`."""

    def test_back_and_forth(self) -> None:
        """Every kind comes back equal, through JSON's own text."""
        value = Outer(
            nothing=3,
            inner={"b": Inner(at_ms=1), "a": Inner(at_ms=2, share=0.1 + 0.2)},
            pairs={("x", "y"): 1},
            names=frozenset({"q", "p"}),
            four=(1e-300, -0.0),
            many=(Inner(at_ms=5),),
        )
        state = restored(Outer, plain(value))
        assert state == value
        assert list(state.inner) == ["b", "a"]
        assert math.copysign(1, state.four[1]) == -1

    def test_whole_numbers_stay_whole(self) -> None:
        """A whole number in a field of floats is not made a float: texts of the plan would differ."""
        state = restored(Outer, plain(Outer(number=1)))
        assert type(state.number) is int

    def test_a_member_that_is_not_recorded_has_its_default(self) -> None:
        """The back-test restores some members of a class only."""
        assert restored(Outer, {"number": 2.0}) == Outer(number=2.0)

    @pytest.mark.parametrize(
        ("value", "why"),
        [
            ({"numbr": 2.0}, "Outer has numbr, which this release does not know"),
            ({"inner": {"a": {"share": 1.0}}}, "Inner lacks at_ms"),
            ({"four": [1.0]}, "1 values"),
            ([], "Outer is not a map"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, value: object, why: str) -> None:
        """Nothing is guessed."""
        with pytest.raises(HistoryError, match=why):
            restored(Outer, value)


class TestDocuments:
    """Changes of documents."""

    @pytest.mark.parametrize(
        ("before", "now"),
        [
            ({"a": 1}, {"a": 1.0}),
            ({"a": 0.0}, {"a": -0.0}),
            ({"a": True}, {"a": 1}),
            ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "y": 3}}),
            ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}),
            ({"a": {"x": 1}}, {"a": {"x": 1, "y": 1}}),
            ({"a": 1, "b": 2}, {"a": 1, "c": 2}),
            ({"a": []}, {"a": {}}),
        ],
    )
    def test_every_difference_counts(self, before: dict[str, object], now: dict[str, object]) -> None:
        change = document_changes(before, now)
        assert change != {"=": {}}
        assert dumped(changed_document(before, change)) == dumped(now)

    def test_only_what_changed_is_kept(self) -> None:
        """One member of a large map costs one member."""
        before = {"a": {str(number): number for number in range(100)}, "b": [1]}
        change = document_changes(before, {"a": before["a"] | {"7": 0}, "b": [1]})  # type: ignore[operator]
        assert change == {"=": {}, "~": {"a": {"7": 0}}}

    def test_every_member_of_a_plan_input_is_recorded(self) -> None:
        """A field that is added to what plan() sees is in the document, whoever adds it."""
        inputs = next(sequence(1, 1))
        document = document_of(inputs)
        for item in fields(PlanInput):
            if item.name == "snapshot":
                continue
            value = getattr(inputs, item.name)
            members = [f"{item.name}.{inner.name}" for inner in fields(value)] if hasattr(value, "__slots__") else []
            assert set(members or [item.name]) <= set(document)
        expected_names = {"wall_ms", "mode", "registered", "digest", "excluded", "brokers", "bundles", "intervals"}
        assert {item.name for item in fields(inputs.snapshot)} == expected_names


class TestVersions:
    """Schema versions."""

    @pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
    def test_another_schema_is_refused_and_does_not_spoil_what_follows(self, schema: int) -> None:
        """A record of another schema has no picture. The next full record has one."""
        records = records_of(sequence(2, 1))
        other = replace(records[1], schema=schema)
        items = list(rebuilt([records[0], other, *records_of(sequence(1, 2), epoch=2)]))
        assert [replay(item).same for item in items] == [True, False, True]
        assert items[1].why.startswith(f"it is of schema {schema}, and this release reads only schema {SCHEMA}")


class TestRebuilding:
    def test_a_changed_figure_is_found_by_the_checksum(self) -> None:
        record = records_of(sequence(1, 4))[0]
        floats = record.brokers.table.floats.copy()
        floats[0, 0] += 1e-9
        spoilt = replace(record, brokers=replace(record.brokers, table=replace(record.brokers.table, floats=floats)))
        assert [item.why for item in rebuilt([spoilt])] == ["its checksum does not hold"]

    @pytest.mark.parametrize("document", ["", "{}", "[]", '{"=": {}, "order": {"brokers": [[7, 3]]}}'])
    def test_a_document_that_is_none_is_refused(self, document: str) -> None:
        """Whatever is in it."""
        records = records_of(sequence(2, 5))
        items = list(rebuilt([records[0], replace(records[1], document=document)]))
        assert items[0].why == ""
        assert items[1].frame is None


def test_intervals_of_counters_are_recorded() -> None:
    inputs = next(sequence(1, 3))
    brokers = len(inputs.snapshot.brokers)
    snapshot = replace(inputs, snapshot=replace(inputs.snapshot, intervals=(0, *[3100] * (brokers - 1))))
    assert input_of(frame_of(snapshot)).snapshot.intervals == snapshot.snapshot.intervals
    assert input_of(frame_of(inputs)).snapshot.intervals == ()
    assert frame_of(inputs).document == {k: v for k, v in frame_of(snapshot).document.items() if k != "intervals"}


def test_costs_are_kept_by_history() -> None:
    memory = StrategyMemory(costs=followed(wave(), minutes=60))
    assert restored(StrategyMemory, plain(memory)) == memory


def test_the_leaders_own_state_can_be_another_one() -> None:
    """A back-test reads it from the first cycle only; everything else is that of the cycle."""
    first, *_, last = sequence(5, 1)
    again = input_of(frame_of(last), first)
    assert [getattr(again, part) for part in STATE] == [getattr(first, part) for part in STATE]
    assert frame_of(replace(again, **{part: getattr(last, part) for part in STATE})).seal() == frame_of(last).seal()
