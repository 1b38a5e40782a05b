"""The document of calibrated thresholds: which parts can be read and adopted, and the reasons against it."""

from __future__ import annotations

import copy
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError, ThresholdsError
from bundlekeel.model.parameters import Parameters, coerce, defaults
from bundlekeel.recalibration.rules.thresholds import (
    RANGES,
    AdoptionRules,
    checked,
    difference,
    searched,
    stepped,
    steps_between,
    whole,
)
from bundlekeel.recalibration.rules.thresholds_json import digest_of, document_of, parsed, thresholds_of
from tests.support.memory_calibration import MemoryCalibration
from tests.support.threshold_cases import DAY_MS, NOW_MS, as_bytes, document, interval, measures, proposed
from tests.unit.recalibration.adopting.test_calibration import LOW as ADOPTED
from tests.unit.recalibration.adopting.test_calibration import PATH, proposal, ready

ROOT = Path(__file__).parents[3]
RULES = AdoptionRules()


def codes(
    result: dict[str, Any], current: Parameters | None = None, now: int = NOW_MS, rules: AdoptionRules = RULES
) -> list[Code]:
    """The objections to a document."""
    return [item.code for item in checked(thresholds_of(result), current or Parameters(), rules, now)]


# --- ranges ---


@pytest.mark.parametrize("name", RANGES)
def test_every_range_lies_inside_of_what_the_parameter_allows(name: str) -> None:
    """Both ends are values of the parameter, and its default is in between."""
    row = RANGES[name]
    for end in (row.minimum, row.maximum):
        assert coerce(name, end) == end
    default = defaults()[name]
    assert isinstance(default, int | float) and row.minimum <= default <= row.maximum
    assert row.step > (1.0 if row.factor else 0.0)


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("steps", [-3, 1, 2])
def test_a_neighbour_is_as_many_steps_away(name: str, steps: int) -> None:
    start = stepped(name, float(defaults()[name]), 0)  # type: ignore[arg-type]
    there = stepped(name, start, steps)
    row = RANGES[name]
    assert row.minimum <= there <= row.maximum and isinstance(there, int) == whole(name)
    if row.minimum < there < row.maximum:
        assert steps_between(name, start, there) == pytest.approx(abs(steps), abs=0.1 if whole(name) else 1e-6)


def test_steps_that_multiply_never_cross_zero() -> None:
    """No number of them leads from a limit that is off to one that is on."""
    assert steps_between("move_price", -1.0, 300.0) == math.inf
    assert steps_between("cool_down_seconds", 100.0, 100.0) == 0.0


def test_a_strategy_is_searched_by_what_it_reads() -> None:
    assert {"move_price", "overloaded_threshold_percent"} <= set(searched("avg"))
    assert "transfer_target_std" not in searched("avg") and "transfer_target_std" in searched("transfer")


# --- reading ---


def test_what_is_written_is_read_back() -> None:
    thresholds = thresholds_of(document())
    assert thresholds_of(document_of(thresholds)) == thresholds == parsed(as_bytes(document_of(thresholds)))
    assert (
        digest_of(thresholds) == digest_of(thresholds_of(document_of(thresholds))) and len(digest_of(thresholds)) == 16
    )
    assert thresholds.values == {"avg_low_threshold_percent": 20.0} and thresholds.previous == {
        "avg_low_threshold_percent": 15.0
    }
    other = thresholds_of(document(parameters={"avg_low_threshold_percent": proposed(17.5, 15.0)}))
    assert digest_of(other) != digest_of(thresholds)


def test_unknown_fields_are_passed_over() -> None:
    """A job of a later release may say more in the same format."""
    assert thresholds_of(document(more={"x": 1})) == thresholds_of(document())


def changed(path: str, value: object) -> dict[str, Any]:
    """The document with one value changed; `...` takes it out."""
    result = copy.deepcopy(document())
    node: Any = result
    *inner, last = path.split(".")
    for part in inner:
        node = node[part]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return result


LOW = "parameters.avg_low_threshold_percent"
BROKEN: list[tuple[str, object, Code]] = [
    ("format", 2, Code.FUTURE_FORMAT),
    ("format", 0, Code.WRONG_TYPE),
    ("format", "1", Code.WRONG_TYPE),
    ("format", ..., Code.WRONG_TYPE),
    ("created_ms", -1, Code.WRONG_TYPE),
    ("created_ms", 1.5, Code.WRONG_TYPE),
    ("strategy", None, Code.WRONG_TYPE),
    ("software", 7, Code.WRONG_TYPE),
    ("parameters", [], Code.WRONG_TYPE),
    ("parameters", {}, Code.WRONG_TYPE),
    ("parameters.max_moves_per_hour", proposed(1e9, 1000), Code.UNKNOWN_PARAMETER),
    ("parameters.avg_low", proposed(1, 2), Code.UNKNOWN_PARAMETER),
    ("parameters.max_moves_per_source", proposed(6.5, 10), Code.WRONG_TYPE),
    (f"{LOW}.value", 50.1, Code.OUT_OF_RANGE),
    (f"{LOW}.value", 0, Code.OUT_OF_RANGE),
    (f"{LOW}.value", True, Code.WRONG_TYPE),
    (f"{LOW}.value", math.nan, Code.WRONG_TYPE),
    (f"{LOW}.value", math.inf, Code.WRONG_TYPE),
    (f"{LOW}.value", "20", Code.WRONG_TYPE),
    (f"{LOW}.value", ..., Code.WRONG_TYPE),
    (f"{LOW}.previous", -5, Code.WRONG_TYPE),
    (f"{LOW}.step", 0, Code.WRONG_TYPE),
    (f"{LOW}.evidence", "x" * 3000, Code.WRONG_TYPE),
    ("evidence.confidence", 2, Code.WRONG_TYPE),
    ("evidence.held_out", ["yesterday"], Code.WRONG_TYPE),
    ("evidence.placements", 0, Code.WRONG_TYPE),
    ("evidence.prefer", ..., Code.WRONG_TYPE),
    ("decision", ..., Code.WRONG_TYPE),
    ("cluster", ..., Code.WRONG_TYPE),
    ("evidence.chosen.imbalance", interval(-1.0), Code.WRONG_TYPE),
    ("evidence.chosen.imbalance", {"mean": 1, "low": 2, "high": 1}, Code.WRONG_TYPE),
    ("evidence.chosen.moves_per_hour", ..., Code.WRONG_TYPE),
    ("evidence.strategies", 3, Code.WRONG_TYPE),
    ("data.coverage", 1.01, Code.WRONG_TYPE),
    ("data.until_ms", 5, Code.WRONG_TYPE),
    ("data.bad_days", {"2026-09-15": 3}, Code.WRONG_TYPE),
    ("advice", "one", Code.WRONG_TYPE),
    ("created_ms", 10**20, Code.WRONG_TYPE),
    ("data.until_ms", 1e299, Code.WRONG_TYPE),
    ("strategy", "\ud800", Code.WRONG_TYPE),
    ("advice", ["fine", "\udfff"], Code.WRONG_TYPE),
    ("parameters", {"\ud800": proposed(1, 2)}, Code.WRONG_TYPE),
    ("data.bad_days", {"2026-09-15": "a\udc00"}, Code.WRONG_TYPE),
    (f"{LOW}.evidence", "\ud83d", Code.WRONG_TYPE),
]


@pytest.mark.parametrize(("path", "value", "code"), BROKEN, ids=lambda item: str(item)[:40])
def test_what_cannot_be_right_is_refused_by_name(path: str, value: object, code: Code) -> None:
    """The error says which field, and is an error of settings like any other."""
    with pytest.raises(ThresholdsError) as caught:
        thresholds_of(changed(path, value))
    assert caught.value.code == code and isinstance(caught.value, ConfigError)
    assert caught.value.field.startswith(path)
    assert path.rpartition(".")[2] in str(caught.value)
    # It goes into the journal and over the API.
    assert f"{caught.value}{caught.value.field}".encode()


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_no_document_at_all(text: bytes) -> None:
    """Torn, empty, another document."""
    with pytest.raises(ThresholdsError) as caught:
        parsed(text)
    assert caught.value.code in (Code.NOT_JSON, Code.WRONG_TYPE)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
paths = st.sampled_from([path for path, _, _ in BROKEN])


@given(path=paths, value=anything)
def test_whatever_stands_in_a_field(path: str, value: object) -> None:
    _never_out_of_range(changed(path, value))


@given(
    name=st.sampled_from([*RANGES, *defaults()]),
    value=st.floats() | st.integers() | st.booleans(),
    previous=st.floats() | st.integers(),
)
def test_no_value_out_of_range_is_ever_accepted(name: str, value: float, previous: float) -> None:
    _never_out_of_range(document(parameters={name: proposed(value, previous)}))


def _never_out_of_range(value: object) -> None:
    try:
        thresholds = thresholds_of(value)
    except ThresholdsError as error:
        assert error.code in set(Code)
        return
    for name, row in thresholds.parameters.items():
        limits = RANGES[name]
        assert limits.minimum <= row.value <= limits.maximum
        assert coerce(name, row.value) == row.value and isinstance(row.value, int) == whole(name)
    checked(thresholds, Parameters(), RULES, NOW_MS)
    document_of(thresholds)


# --- may it come into force ---


def test_a_good_proposal_has_no_objection() -> None:
    """Recent, two weeks, two steps, a third fewer moves."""
    assert codes(document()) == []


def test_typed_refusals() -> None:
    """Each by its own code."""
    wide = {"avg_low_threshold_percent": proposed(30.0, 15.0)}
    assert codes(document(parameters=wide)) == [Code.STEP_TOO_LARGE]
    assert codes(document(parameters=wide), rules=AdoptionRules(max_steps=6)) == []
    assert codes(document(), now=NOW_MS + 2 * DAY_MS) == [Code.TOO_OLD]
    assert codes(document(), now=NOW_MS - DAY_MS) == [Code.IMPLAUSIBLE]
    assert codes(document(strategy="transfer")) == [Code.OTHER_STRATEGY]
    assert codes(document(), Parameters(strategy="threshold")) == [Code.OTHER_STRATEGY]
    assert codes(document(), Parameters(avg_low_threshold_percent=12.5)) == [Code.OTHER_VALUES]
    assert codes(document(), Parameters(avg_low_threshold_percent=20.0)) == [Code.NOTHING_NEW]
    few = document()["data"] | {"days": ["2026-09-01"] * 20}
    assert codes(document(data=few)) == [Code.TOO_LITTLE_HISTORY]
    thin = document()["data"] | {"coverage": 0.5}
    assert codes(document(data=thin)) == [Code.POOR_COVERAGE]
    stale = document()["data"] | {"until_ms": NOW_MS - 10 * DAY_MS}
    assert codes(document(data=stale)) == [Code.TOO_OLD]
    ahead = document()["data"] | {"until_ms": NOW_MS + DAY_MS}
    assert codes(document(data=ahead)) == [Code.IMPLAUSIBLE]


@pytest.mark.parametrize(
    ("days", "message"),
    [(3, "72.0 h old; at most 60 h are allowed"), (1101, "1,101.0 days old; at most 2.5 days are allowed")],
)
def test_an_age_and_its_limit_have_one_unit(days: int, message: str) -> None:
    """Hours, or days where hours would be many."""
    stale = document()["data"] | {"from_ms": NOW_MS - (days + 14) * DAY_MS, "until_ms": NOW_MS - days * DAY_MS}
    (objections,) = checked(thresholds_of(document(data=stale)), Parameters(), RULES, NOW_MS)
    assert objections.detail == message


def test_what_the_strategy_does_not_read_is_no_proposal_for_it() -> None:
    both = {"avg_low_threshold_percent": proposed(20.0, 15.0), "threshold_percent": proposed(11.0, 10.0)}
    assert codes(document(parameters=both)) == [Code.OTHER_STRATEGY]


def test_a_worse_outcome_is_not_better_whatever_the_difference_says() -> None:
    worse = document()["evidence"] | {"chosen": measures(0.5, 4.0)}
    assert codes(document(evidence=worse)) == [Code.NOT_BETTER]


@pytest.mark.parametrize(
    ("previous", "apart", "good"),
    [
        (measures(0.12, 6.0), measures(0.0, -2.0), True),
        (measures(0.12, 6.0), measures(0.001, -2.0), True),
        (measures(0.12, 6.0), measures(0.002, -2.0), False),
        (measures(0.12, 6.0, 10.0), measures(0.0, -2.0, 1.2), False),
        (measures(0.12, 6.0, 10.0), measures(0.0, 0.0, -5.0), True),
        (measures(0.12, 6.0), measures(-0.02, 0.0), True),
        (measures(0.12, 6.0), measures(-0.02, 0.1), False),
        (measures(0.12, 6.0), measures(0.0, 0.0), False),
        (measures(0.12, 6.0), measures(0.0, 0.0) | {"moves_per_hour": {"mean": -1, "low": -3, "high": 0.1}}, False),
    ],
)
def test_only_what_is_better_for_certain_is_good(previous: Any, apart: Any, good: bool) -> None:
    """No measure more than a hundredth worse, and one of them below zero with its whole interval."""
    evidence = document()["evidence"] | {"previous": previous, "difference": apart}
    assert codes(document(evidence=evidence)) == ([] if good else [Code.NOT_BETTER])


@pytest.mark.parametrize(("low", "good"), [(-3.0, True), (0.0, True), (0.1, False)])
def test_more_overload_counts_when_it_is_certain(low: float, good: bool) -> None:
    """A burst of traffic more or less makes minutes of it, whatever is in force."""
    overloaded = {"mean": 2.0, "low": low, "high": 6.0}
    apart = measures(0.0, -2.0) | {"overloaded_minutes_per_day": overloaded}
    evidence = document()["evidence"] | {"previous": measures(0.12, 6.0, 10.0), "difference": apart}
    assert codes(document(evidence=evidence)) == ([] if good else [Code.NOT_BETTER])


def test_one_more_minute_of_overload_is_accepted_as_by_the_job() -> None:
    """Else the job would propose what the sidecar refuses."""
    apart = measures(0.0, -2.0) | {"overloaded_minutes_per_day": {"mean": 0.7, "low": 0.5, "high": 0.9}}
    evidence = document()["evidence"] | {"previous": measures(0.12, 6.0, 0.2), "difference": apart}
    assert codes(document(evidence=evidence)) == []


def test_the_difference_tells_only_what_changes() -> None:
    both = {"max_moves_per_source": proposed(4, 4), "avg_low_threshold_percent": proposed(20.0, 15.0)}
    (row,) = difference(Parameters(), thresholds_of(document(parameters=both)))
    assert (row.parameter, row.current, row.proposed, row.steps) == ("avg_low_threshold_percent", 15.0, 20.0, 2.0)
    assert row.evidence == "fewer moves at equal imbalance"


def damaged(whole: bytes, seed: int) -> bytes:
    """The document cut off, with bytes exchanged, or with one value of its parameters replaced by nonsense."""
    dice, text = random.Random(seed), bytearray(whole)
    kind = seed % 3
    if kind == 0:
        return bytes(text[: dice.randrange(len(text))])
    if kind == 1:
        for _ in range(dice.randint(1, 5)):
            text[dice.randrange(len(text))] = dice.randrange(256)
        return bytes(text)
    result = json.loads(whole)
    name = dice.choice(sorted(result["parameters"]))
    wrong = (None, "much", [], {}, True, -1, 1e308, float("nan"), float("inf"), 10**400, 0.0)
    result["parameters"][name] = dice.choice(
        [*wrong, *({**result["parameters"][name], "value": item} for item in wrong)]
    )
    return json.dumps(result).encode()


async def test_a14_bad_thresholds() -> None:
    """Rule: unless a whole proposal was adopted, all parameters are unchanged bit by bit; each adopted one is in its
    range.
    """
    adopted = 0
    for seed in range(60):
        store = MemoryCalibration()
        sidecar = await ready(store)
        before = sidecar.effective_parameters.current
        store.put(PATH, damaged(proposal(sidecar), seed))
        await sidecar.calibration.check()
        now = sidecar.effective_parameters.current
        if sidecar.shared_state.desired.adopted is None:
            assert now == before
        else:
            adopted += 1
            assert replace(now, avg_low_threshold_percent=15.0) == before
            assert RANGES[ADOPTED].minimum <= now.avg_low_threshold_percent <= RANGES[ADOPTED].maximum
        assert (await sidecar.cycle.turn()).plan is not None
    assert adopted < 60
