"""Encode and decode `ServiceUnitStateData` (compared with Java in tests/parity/test_channel_machine.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bundlekeel.model.channel_states import MAX_VERSION, MIN_VERSION, ServiceUnit, UnitState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats.channel import check_bundle, decode_service_unit
from tests.support.service_units import encode_service_unit

# As a 4.2.4 broker published it.
OWNED = b'{"state":"Owned","dstBroker":"b1:8080","force":false,"timestamp":1795239588454,"versionId":7}'
SPLITTING = (
    b'{"state":"Splitting","sourceBroker":"b1:8080","splitServiceUnitToDestBroker":{"0x00000000_0x40000000":null,'
    b'"0x40000000_0x80000000":"b2:8080"},"force":true,"timestamp":5,"versionId":8}'
)
GOOD: dict[str, Any] = json.loads(OWNED)


@pytest.mark.parametrize("text", [OWNED, SPLITTING])
def test_there_and_back(text: bytes) -> None:
    assert encode_service_unit(decode_service_unit(text)) == text


def test_fields() -> None:
    assert decode_service_unit(SPLITTING) == ServiceUnit(
        state=UnitState.SPLITTING,
        source="b1:8080",
        children={"0x00000000_0x40000000": "", "0x40000000_0x80000000": "b2:8080"},
        force=True,
        timestamp_ms=5,
        version=8,
    )
    nulls = {"dstBroker": None, "sourceBroker": None, "splitServiceUnitToDestBroker": None, "state": "Free"}
    assert decode_service_unit(json.dumps(GOOD | nulls).encode()) == ServiceUnit(
        state=UnitState.FREE, timestamp_ms=GOOD["timestamp"], version=7
    )


def test_fields_of_other_releases_are_passed_over() -> None:
    """Whatever they hold."""
    assert decode_service_unit(json.dumps(GOOD | {"newField": {"deep": [1, None]}}).encode()) == decode_service_unit(
        OWNED
    )


@pytest.mark.parametrize("version", [0, 1, MAX_VERSION, MIN_VERSION])
def test_versions(version: int) -> None:
    """The smallest follows the largest in Java."""
    assert decode_service_unit(json.dumps(GOOD | {"versionId": version}).encode()).version == version


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "Sleeping"),
        ("state", "owned"),
        ("state", 3),
        ("state", None),
        ("dstBroker", 8080),
        ("dstBroker", ""),
        ("dstBroker", " "),
        ("dstBroker", "\ud800"),
        ("sourceBroker", ["b1"]),
        ("force", "true"),
        ("force", 1),
        ("timestamp", -1),
        ("timestamp", "now"),
        ("timestamp", 2**63),
        ("versionId", -1),
        ("versionId", 1.5),
        ("versionId", True),
        ("versionId", 2**63),
        ("versionId", 10**400),
        ("splitServiceUnitToDestBroker", []),
        ("splitServiceUnitToDestBroker", {"0x00000000_0x40000000": 1}),
        ("splitServiceUnitToDestBroker", {"0x40000000_0x00000000": None}),
        ("splitServiceUnitToDestBroker", {"x/0x00000000_0x40000000": None}),
        ("splitServiceUnitToDestBroker", {"0x00000000_0x40000000": "\udfff"}),
    ],
)
def test_rubbish_names_its_field(field: str, value: object) -> None:
    """The whole entry is refused, with a sentence that can be written out."""
    with pytest.raises(CodecError, match=f"^{field}: ") as caught:
        decode_service_unit(json.dumps(GOOD | {field: value}).encode())
    assert caught.value.field == field and caught.value.code == Code.WRONG_TYPE
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", Code.EMPTY_REPORT),
        (b"null", Code.WRONG_TYPE),
        (b"[]", Code.WRONG_TYPE),
        (b"{", Code.NOT_JSON),
        (b"\xff", Code.NOT_JSON),
        (b'{"a":' * 100_000, Code.NOT_JSON),
        (OWNED + b" " * 2_000_000, Code.REPORT_TOO_LARGE),
    ],
)
def test_what_is_no_entry(text: bytes, code: Code) -> None:
    """Each in its own words."""
    with pytest.raises(CodecError) as caught:
        decode_service_unit(text)
    assert caught.value.code == code


def test_keys_are_bundles() -> None:
    """Version 1 names with a cluster among them."""
    for name in ("shop/a/0x00000000_0x80000000", "shop/use/a/0x00000000_0x80000000"):
        assert check_bundle(name) == name
    for name in ("", "shop/a", "shop/a/0x80000000_0x00000000", "shop/a/0x00000000_0x80000000 ", "\ud800"):
        with pytest.raises(CodecError, match="is not a bundle name") as caught:
            check_bundle(name)
        str(caught.value).encode()
