"""Threads that decode a type for the first time at the same moment."""

from __future__ import annotations

import subprocess
import sys

# msgspec 0.22 builds the fields of a type at its first use, without a lock. The process of the test must not crash.
_PROGRAM = """
import sys, threading
from dataclasses import make_dataclass
from bundlekeel.pulsar.formats import external_input

sys.setswitchinterval(1e-6)
names = [f"f{number}" for number in range(40)]
data = b'{"g": [{%s}]}' % b", ".join(b'"%s": {"a": 1}' % name.encode() for name in names)
uses = [
    lambda kind: external_input.read(data, kind, what="test"),
    lambda kind: external_input.convert({"g": [{name: {"a": 1} for name in names}]}, kind),
]
for _ in range(400):
    inner = make_dataclass("Inner", [(name, "dict[str, int]") for name in names])
    outer = make_dataclass("Outer", [("g", list[inner])])
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=lambda use=use: (barrier.wait(), use(outer))) for use in uses * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_a_first_use_in_several_threads_does_not_crash() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
