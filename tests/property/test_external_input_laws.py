"""Input that other processes write, of any kind: a value, or `CodecError`; within bounded memory and time.

The long form, 100,000 examples of each kind, runs at night and measures CPU time; the short one bounds memory only.
"""

from __future__ import annotations

import os
import tracemalloc
import zlib

import pytest

from bundlekeel.pulsar.formats.external_input import GROWTH_BYTES
from evidence.fuzz import EXAMPLES, STEP_SECONDS, measure
from tests.support.foreign_input import HOSTILE, example, read_one
from tests.support.foreign_kinds import KINDS


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"thresholds"}))
def test_the_usual_bytes_are_read(name: str) -> None:
    """The usual bytes are valid; otherwise the tests below would damage invalid ones. Those of thresholds are the
    beginning of a document."""
    kind = KINDS[name]
    kind.read(zlib.compress(kind.usual) if kind.packed else kind.usual)


@pytest.mark.parametrize("name", KINDS)
def test_any_bytes_are_a_value_or_the_one_error(name: str) -> None:
    """No reader raises another error, and each error can be encoded."""
    for number in range(150):
        read_one(KINDS[name], example(KINDS[name], number))


@pytest.mark.parametrize("name", KINDS)
def test_memory_is_bounded(name: str) -> None:
    """Whatever the hostile bytes unpack to, reading them needs limited memory in addition to the bytes."""
    for data in HOSTILE:
        tracemalloc.start()
        read_one(KINDS[name], data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= GROWTH_BYTES


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", KINDS)
def test_s03_no_step_takes_long(name: str) -> None:
    """Of 100,000 examples none raises another error or blocks the event loop for longer than the limit (CPU time)."""
    measured = measure(KINDS[name], int(os.environ.get("SEED") or 0), EXAMPLES)
    assert not measured.errors, measured.first_errors
    assert measured.longest <= STEP_SECONDS, measured.number
