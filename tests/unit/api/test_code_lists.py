"""Fields that hold a code list those of their release in the OpenAPI document: a client sees them without a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from bundlekeel.leader.execution.intents import OutcomeWord
from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.codes import Code
from bundlekeel.planning.effects import HELPED, NO_BENEFIT, WORSE
from bundlekeel.pulsar.channel.findings import FindingCode
from bundlekeel.views.journal import RECORDS
from bundlekeel.wiring.openapi import openapi_document

OPEN = "x-extensible-enum"
# Their descriptions speak of the code of another field; that of the channel is a sentence.
SPEAK_OF_ANOTHER = re.compile(r"explanation|acting_detail|ChannelSummary.obstacle|AssignmentView.chosen")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document of all routes."""
    return openapi_document()


@pytest.fixture(scope="module")
def schemas(document: dict[str, Any]) -> dict[str, Any]:
    return dict(document["components"]["schemas"])


def fields(schemas: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """`Schema.field` of each, and what the document says of it."""
    for name, schema in schemas.items():
        for field, item in schema.get("properties", {}).items():
            yield f"{name}.{field}", item


def types(item: dict[str, Any]) -> set[str]:
    parts = [item, item.get("items", {}), *item.get("anyOf", ())]
    return {part.get("type", "") for part in parts}


def words(item: dict[str, Any]) -> list[str]:
    parts = [item, item.get("items", {}), item.get("propertyNames", {}), *item.get("anyOf", ())]
    return [word for part in parts for word in (part.get("enum") or part.get(OPEN) or ())]


def test_a_field_that_holds_a_code_lists_the_codes(schemas: dict[str, Any]) -> None:
    coded = {
        name: item
        for name, item in fields(schemas)
        if (re.search(r"\.(codes?|verdict|obstacle|held)$", name) and "string" in types(item))
        or re.search(r"\bcodes?\b", item["description"])
        if not SPEAK_OF_ANOTHER.search(name) and "$ref" not in item.get("items", {})
    }
    assert len(coded) > 35
    assert [name for name, item in coded.items() if not words(item)] == []


def test_a_description_that_spells_its_words_lists_them(schemas: dict[str, Any]) -> None:
    """`a`, `b` or `c`: then the schema says so, too."""
    spelt = {
        name: re.findall(r"`(\w+)`", item["description"])
        for name, item in fields(schemas)
        if re.match(r"(only where it is known: )?`\w+`[^:]*,? or `\w+`", item["description"])
    }
    lists = {name: words(item) for name, item in fields(schemas)}
    assert len(spelt) > 7
    assert {name: value for name, value in spelt.items() if not set(value) & set(lists[name])} == {}


def test_every_code_of_an_example_is_in_the_list_of_its_field(
    document: dict[str, Any], schemas: dict[str, Any]
) -> None:
    count, wrong = 0, list[str]()

    def look(value: Any, schema: dict[str, Any], at: str) -> None:
        nonlocal count
        schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        if isinstance(value, dict):
            if value.get("kind") in RECORDS and "anyOf" in schema:
                schema = schemas[RECORDS[value["kind"]].__name__]
            for key, item in value.items():
                within = schema.get("properties", {}).get(key) or {}
                look(item, _with_null(within), f"{at}.{key}")
        elif isinstance(value, list):
            for item in value:
                look(item, schema.get("items", {}), at)
        elif isinstance(value, str) and value in set(Code):
            count += 1
            wrong.extend([at] if value not in words(schema) else [])
        elif isinstance(value, str) and schema.get(OPEN):
            wrong.extend([f"{at} = {value}"] if value not in words(schema) else [])

    for path, item in document["paths"].items():
        for operation in item.values():
            answer = next(output for status, output in operation["responses"].items() if status.startswith("2"))
            for content in answer["content"].values():
                look(content.get("example"), content["schema"], path)
    assert count > 20 and sorted(set(wrong)) == []


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    forms = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
    return {**forms[0], **schema} if forms else schema


def test_the_lists_are_those_of_one_table_each(schemas: dict[str, Any]) -> None:
    """Codes, findings, states, outcomes, effects."""

    def of(name: str) -> set[str]:
        schema, _, field = name.partition(".")
        return set(words(schemas[schema]["properties"][field]))

    assert of("State.acting_obstacle") == of("PlanView.refusal_counts") == set(Code)
    assert of("ManualMoveView.held") == of("MoveRecord.code") == {"", *Code}
    assert of("BrokerView.state") == {"ok", *Code}
    assert of("FindingRecord.code") == {*FindingCode, *Code}
    assert of("ChannelSummary.findings") == set(FindingCode)
    assert of("ChannelSummary.states") == of("ChannelFinding.state") == set(UnitState)
    assert of("MoveRecord.outcome") == of("CycleRecord.outcomes") == set(get_args(OutcomeWord))
    assert of("MoveRecord.effect") == of("EffectRecord.outcome") == {HELPED, NO_BENEFIT, WORSE}
