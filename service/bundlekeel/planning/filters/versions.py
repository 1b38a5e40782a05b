"""Broker versions compared as semantic versions (`BrokerVersionFilter`)."""

from __future__ import annotations

import re

from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import integer

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")

# Numbers, whether the version is a release, and the parts of a pre-release, in which numbers sort below words.
VersionKey = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


def version_key(text: str) -> VersionKey | None:
    """Return a sort key for a version (semver.org, section 11); None if the string is not a version."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    parts = match[4].split(".") if match[4] else []
    try:
        major, minor, patch = (integer(match[group], field="version") for group in (1, 2, 3))
        pre = tuple(
            (False, integer(part, field="version"), part) if part.isdecimal() else (True, 0, part) for part in parts
        )
    except CodecError:
        return None
    return major, minor, patch, not parts, pre
