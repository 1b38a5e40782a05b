"""Capacity overrides: what a broker can carry where its own report is blind (NICs of VMs and pods) or misleading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOverride:
    """Limits for the brokers that `pattern` matches: an id, a glob, or a regular expression between slashes.

    `nic_gbps` Gbit/s each way, `cores` CPU cores, `msg_rate` msg/s in and out together, `throughput` bytes/s in and
    out together, `direct_memory_mb` MiB; None leaves the report's own. `ignore` names resources that do not count:
    `cpu`, `bandwidth`, `direct_memory`.
    """

    pattern: str
    nic_gbps: float | None = None
    cores: float | None = None
    msg_rate: float | None = None
    throughput: float | None = None
    direct_memory_mb: float | None = None
    ignore: tuple[str, ...] = ()


def match_capacity(overrides: Sequence[CapacityOverride], broker_id: str) -> CapacityOverride | None:
    """The override of a broker: an exact id beats a glob, a glob beats a regular expression; first match wins."""
    exact = [item for item in overrides if item.pattern == broker_id]
    globs = [item for item in overrides if not _is_regex(item.pattern) and fnmatchcase(broker_id, item.pattern)]
    regexes = [item for item in overrides if _is_regex(item.pattern) and re.fullmatch(item.pattern[1:-1], broker_id)]
    return next(iter(exact + globs + regexes), None)


def _is_regex(pattern: str) -> bool:
    return len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")
