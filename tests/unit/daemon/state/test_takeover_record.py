"""The record of a takeover: read from earlier versions, and what it limits plans to."""

from __future__ import annotations

import json
from dataclasses import replace

from bundlekeel.core.model.parameters import Parameters
from bundlekeel.daemon.operations.takeover import SHEDDING
from bundlekeel.daemon.state import takeover_record as records
from bundlekeel.daemon.state.takeover_record import EXCLUDED, TakeoverEnd, TakeoverRecord, decode_takeover

NAMES = ("t/ns",)


def test_scope_of_the_parameters() -> None:
    """What the settings include is narrowed, never widened; what the brokers leave to us is not adopted as excluded."""
    params = Parameters()
    assert records.scoped(params, ()) is params
    assert records.scoped(params, NAMES).included_namespaces == NAMES
    some = replace(params, included_namespaces=("t/*", "u/x"))
    assert records.scoped(some, ("t/ns", "v/w")).included_namespaces == ("t/ns",)
    assert records.scoped(some, ("v/w",)).included_namespaces == (records.NOTHING,)
    values = {EXCLUDED: "[t/ns]", "other": "1"}
    assert records.adopted(values, NAMES) == {"other": "1"}
    assert records.adopted(values, ()) == values


def test_records_of_earlier_versions_are_read() -> None:
    """Without the new fields; and with them nothing is lost."""
    record = TakeoverRecord(by="a", reason="r", wall_ms=1, overrides={SHEDDING: None}, runtime={})
    known = {"by": "a", "reason": "r", "wall_ms": 1, "overrides": {SHEDDING: None}, "runtime": {}, "active": True}
    old = json.dumps(known).encode()
    assert decode_takeover(old) == record
    partly = json.dumps(known | {"namespaces": NAMES}).encode()
    assert decode_takeover(partly) == replace(record, namespaces=NAMES, excluded_by_us=NAMES)
    none_ours = replace(record, namespaces=NAMES)
    assert decode_takeover(none_ours.encode()) == none_ours
    ended = replace(
        record, excluded_by_us=NAMES, active=False, ended=TakeoverEnd(by="b", reason="x", wall_ms=2, deadman=True)
    )
    assert decode_takeover(ended.encode()) == ended
    assert records.namespaces_of(replace(ended, namespaces=NAMES)) == ()
