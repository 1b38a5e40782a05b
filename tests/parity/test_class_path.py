"""Every class that Pulsar's own jars name is in the class path of the release, or in the JDK.

A jar of a wrong version often lets a broker start, and fails only when a topic is loaded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from zipfile import ZipFile

import pytest

from dev.cluster.jars import ensure_jars
from dev.pulsar_releases import RELEASES, Release

CHECKED = re.compile(r"(pulsar|managed-ledger|bookkeeper-(server|common))-")
JDK = re.compile(r"(java|jdk|sun|com/sun|javax/(management|net|crypto|security|naming|xml|script)|org/(w3c|xml|ietf))/")
# Optional at run time.
OPTIONAL = re.compile(r"lombok/|org/joda/time/|io/swagger/|org/apache/avro/util/ClassSecurityValidator")
# Bytes after the tag of each kind of constant, except UTF-8 (1); 5 and 6 use two numbers (Java specification, 4.4).
SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


def named_classes(code: bytes) -> Iterator[str]:
    """Yield the classes that a class file names, except arrays of primitive types."""
    (count,) = struct.unpack(">H", code[8:10])
    texts, classes, at, number = dict[int, bytes](), list[int](), 10, 1
    while number < count:
        tag, at = code[at], at + 1
        if tag == 1:
            size = 2 + int.from_bytes(code[at : at + 2])
            texts[number] = code[at + 2 : at + size]
        else:
            size = SIZES[tag]
        if tag == 7:
            classes.append(int.from_bytes(code[at : at + 2]))
        at, number = at + size, number + (2 if tag in (5, 6) else 1)
    for name in (texts[one].decode() for one in classes):
        if not name.startswith("["):
            yield name
        elif name.endswith(";"):
            yield name.lstrip("[").removeprefix("L").removesuffix(";")


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_no_class_is_missing(release: Release) -> None:
    present, named = set[str](), dict[str, str]()
    for path in ensure_jars(release):
        with ZipFile(path) as jar:
            for file in (name for name in jar.namelist() if name.endswith(".class")):
                present.add(re.sub(r"^META-INF/versions/\d+/", "", file).removesuffix(".class"))
                if CHECKED.match(path.name):
                    named |= dict.fromkeys(named_classes(jar.read(file)), path.name)
    missing = {name for name in named.keys() - present if not JDK.match(name) and not OPTIONAL.match(name)}
    assert not missing, {name: named[name] for name in sorted(missing)}
    assert len(named) > 5000
