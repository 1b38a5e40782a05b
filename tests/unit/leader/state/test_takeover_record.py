"""The record of a takeover: how it is stored, and the namespaces that it limits plans to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bundlekeel.leader.state import partial_takeover
from bundlekeel.leader.state.responses import EndedView
from bundlekeel.leader.state.takeover_record import EXCLUDED, TakeoverRecord, decode_takeover
from bundlekeel.model.errors import CodecError
from bundlekeel.model.parameters import Parameters
from bundlekeel.requests.takeover import SHEDDING

NAMES = ("t/ns",)


def test_scope_of_the_parameters() -> None:
    params = Parameters()
    assert partial_takeover.scoped(params, ()) is params
    assert partial_takeover.scoped(params, NAMES).included_namespaces == NAMES
    some = replace(params, included_namespaces=("t/*", "u/x"))
    assert partial_takeover.scoped(some, ("t/ns", "v/w")).included_namespaces == ("t/ns",)
    assert partial_takeover.scoped(some, ("v/w",)).included_namespaces == (partial_takeover.NOTHING,)
    values = {EXCLUDED: "[t/ns]", "other": "1"}
    assert partial_takeover.adopted(values, NAMES) == {"other": "1"}
    assert partial_takeover.adopted(values, ()) == values


def test_a_record_is_read_back_as_it_was_written() -> None:
    """With every field. One that lacks a field is refused: nothing else has the settings from before the takeover."""
    record = TakeoverRecord(by="a", reason="r", wall_ms=1, overrides={SHEDDING: None}, runtime={})
    none_ours = replace(record, namespaces=NAMES)
    assert decode_takeover(none_ours.encode()) == none_ours
    ended = replace(
        record, excluded_by_us=NAMES, active=False, ended=EndedView(by="b", reason="x", wall_ms=2, deadman=True)
    )
    assert decode_takeover(ended.encode()) == ended
    assert partial_takeover.namespaces_of(replace(ended, namespaces=NAMES)) == ()
    whole = json.loads(record.encode())
    for name in whole:
        with pytest.raises(CodecError, match=name):
            decode_takeover(json.dumps({key: item for key, item in whole.items() if key != name}).encode())
