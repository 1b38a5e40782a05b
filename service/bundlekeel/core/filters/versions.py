"""Broker versions compared as semantic versions (`BrokerVersionFilter`)."""

from __future__ import annotations

import re

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")

# Numbers, then whether it is a release, then the parts of a pre-release: numbers below words.
VersionKey = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


def version_key(text: str) -> VersionKey | None:
    """What versions are ordered by (semver.org, section 11), or None for a text that is no version."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    parts = match[4].split(".") if match[4] else []
    pre = tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)
    return int(match[1]), int(match[2]), int(match[3]), not parts, pre
