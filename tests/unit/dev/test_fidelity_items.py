"""The rows of docs/reference/fidelity-to-pulsar.md name places and tests that are there, and why they differ."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from dev.fidelity_items import ITEMS, Item, Items, faults, items

# Tests that run only where something is installed: by a mark of their own, and by one of the whole file.
OF_AN_EXTRA = "unit/wiring/test_traces.py::test_a_cycle_arrives_at_the_collector"
OF_A_CHART = "chart/test_apache_chart.py::test_the_container_comes_out_as_it_went_in"
SOUND = Item(
    number=1,
    what="the score",
    verdict="same",
    where=["core/planning/pressure.py::score_of"],
    tests=["unit/dev/test_fidelity_items.py::test_every_row_is_sound"],
)


def changed(values: Mapping[str, object]) -> Items:
    """One row of PIP-364, sound but for these values."""
    return {"PIP-364": [msgspec.structs.replace(SOUND, **values)]}


def test_every_row_is_sound() -> None:
    """Each place and test is there and runs, numbers are unique, and what is not the same says why."""
    assert faults(items()) == []


def test_every_text_has_its_rows() -> None:
    """150 rows are what was promised; the list began with 163."""
    assert {text: len(rows) for text, rows in items().items() if len(rows) < 10} == {}
    assert len({row.number for rows in items().values() for row in rows}) >= 163


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"where": ["core/planning/pressure.py::score_off"]},
            "item 1: there is no core/planning/pressure.py::score_off in the code",
        ),
        ({"where": ["core/no_such.py::score_of"]}, "item 1: there is no core/no_such.py::score_of in the code"),
        (
            {"where": ["core/model/parameters.py::Parameters.no_such"]},
            "there is no core/model/parameters.py::Parameters.no_such",
        ),
        ({"where": []}, "item 1 names no place or no test"),
        ({"tests": []}, "item 1 names no place or no test"),
        (
            {"tests": ["unit/dev/test_fidelity_items.py::test_no_such"]},
            "there is no test unit/dev/test_fidelity_items.py::test_no",
        ),
        (
            {"tests": ["unit/dev/test_fidelity_items.py::changed"]},
            "there is no test unit/dev/test_fidelity_items.py::changed",
        ),
        (
            {"tests": ["unit/settings/test_settings.py::test_defaults"]},
            "there is no test unit/settings/test_settings.py::test_defaults",
        ),
        ({"tests": [OF_AN_EXTRA]}, f"there is no test {OF_AN_EXTRA} that runs"),
        ({"tests": [OF_A_CHART]}, f"there is no test {OF_A_CHART} that runs"),
        ({"verdict": "different"}, "item 1 is different: `because`"),
        ({"because": "no reason is due"}, "item 1 is same: `because`"),
    ],
)
def test_what_is_wrong_is_said(values: Mapping[str, object], said: str) -> None:
    """Each fault has its sentence, and there is no other one."""
    assert faults({"PIP-364": [SOUND]}) == []
    (fault,) = faults(changed(values))
    assert said in fault


def test_numbers_and_texts_are_checked_as_well() -> None:
    """A number stands once in all texts, and each text is one of the five."""
    assert faults({"PIP-364": [SOUND], "PIP-82": [SOUND]}) == ["item 1 is there twice"]
    assert faults({"PIP-1": [SOUND]}) == ["PIP-1 is none of the texts"]


def test_tests_and_members_of_classes_are_found() -> None:
    """As pytest names them, and as Python does."""
    inside = {
        "where": [
            "core/model/parameter_table.py::StrategyParameters.cpu_weight",
            "core/channel/states.py::UnitState.OWNED",
        ],
        "tests": ["unit/settings/test_settings.py::TestSources::test_defaults"],
    }
    assert faults(changed(inside)) == []


def test_a_row_that_is_none_is_refused() -> None:
    """By the field that is wrong."""
    text = ITEMS.read_text(encoding="utf-8")
    assert "verdict: same" in text
    with pytest.raises(msgspec.ValidationError, match="verdict"):
        msgspec.convert({"PIP-364": [{"number": 1, "what": "a", "verdict": "alike", "where": [], "tests": []}]}, Items)
