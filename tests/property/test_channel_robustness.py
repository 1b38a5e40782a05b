"""Any bytes in the ownership channel are decoded or raise CodecError; decoded entries can be judged."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.channel_states import ACTIVE, ChannelTable, RejectedUnit, ServiceUnit, UnitState, owner_of
from bundlekeel.pulsar.channel.findings import Deadlines, Watching, findings
from bundlekeel.pulsar.formats.channel import decode_service_unit
from tests.property.test_extensible_robustness import SCALARS, VALUES
from tests.support.odd_values import attempt, encoded
from tests.support.service_units import encode_service_unit

FIELDS = ["state", "dstBroker", "sourceBroker", "splitServiceUnitToDestBroker", "force", "timestamp", "versionId"]
RANGES = ["0x00000000_0x40000000", "0x40000000_0x80000000", "0x00000000_0x80000000", "0x00000000_0xffffffff"]
BROKERS = ["b1:8080", "b2:8080", "b3:8080"]
BUNDLES = [f"shop/{space}/{bounds}" for space in "ab" for bounds in RANGES]
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from([*UnitState]) | SCALARS,
        "dstBroker": st.sampled_from(BROKERS) | SCALARS,
        "sourceBroker": st.sampled_from(BROKERS) | SCALARS,
        "splitServiceUnitToDestBroker": st.dictionaries(st.sampled_from(RANGES), st.none() | SCALARS) | SCALARS,
        "force": st.booleans() | SCALARS,
        "timestamp": st.integers(0, 2**42) | SCALARS,
        "versionId": st.integers(1, 5) | SCALARS,
    },
)
UNITS = st.builds(
    ServiceUnit,
    state=st.sampled_from(UnitState),
    destination=st.sampled_from([*BROKERS, ""]),
    source=st.sampled_from([*BROKERS, ""]),
    children=st.dictionaries(st.sampled_from(RANGES), st.sampled_from([*BROKERS, ""]), max_size=2),
    force=st.booleans(),
    timestamp_ms=st.integers(0, 10_000_000),
    version=st.integers(1, 6),
)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """The bytes are not JSON."""
    attempt(decode_service_unit, data)


@given(VALUES | ENTRIES | st.dictionaries(st.sampled_from(FIELDS), VALUES), st.booleans())
def test_any_json(value: Any, ascii_only: bool) -> None:
    """An accepted entry is encoded and decoded without change, in its own table."""
    unit = attempt(decode_service_unit, encoded(value, ascii_only=ascii_only))
    if unit is not None:
        assert decode_service_unit(encode_service_unit(unit)) == unit
        assert (owner_of(unit) is not None) is (unit.state in ACTIVE)
        ChannelTable().apply(BUNDLES[0], unit, 0)


@given(
    units=st.dictionaries(st.sampled_from(BUNDLES), UNITS),
    rejected=st.lists(st.tuples(st.sampled_from(BUNDLES), UNITS, st.integers(0, 10_000_000)), max_size=5),
    registered=st.none() | st.sets(st.sampled_from(BROKERS)),
    since_ms=st.dictionaries(st.sampled_from(BUNDLES), st.integers(0, 10_000_000)),
    watched=st.integers(0, 10_000_000),
    later=st.integers(0, 1_000),
)
def test_findings_of_anything(
    units: dict[str, ServiceUnit],
    rejected: list[tuple[str, ServiceUnit, int]],
    registered: set[str] | None,
    since_ms: dict[str, int],
    watched: int,
    later: int,
) -> None:
    """Findings can be encoded, concern existing bundles, and keep their start time over repeated calls."""
    since_ms = {bundle: since_ms.get(bundle, 0) for bundle in units}
    lost = [RejectedUnit(bundle=bundle, unit=unit, wall_ms=at) for bundle, unit, at in rejected]

    def look(now_ms: int) -> dict[tuple[str, str, tuple[str, ...], str], int]:
        problems = findings(
            units, since_ms, lost, registered, Deadlines(), now_ms, watching=Watching(from_ms=watched, gone_ms={})
        )
        for one in problems:
            json.dumps([one.detail, one.remedy])
            assert one.bundle in units and one.since_ms <= now_ms and one.detail and one.remedy
            assert one.deadline_ms == 0 or one.deadline_ms > one.since_ms
        return {(one.code, one.bundle, one.brokers, one.detail): one.since_ms for one in problems}

    before, after = look(10_000_000), look(10_000_000 + later)
    assert all(after[key] == since for key, since in before.items() if key in after)
