"""Capacity overrides: settings that replace the limits in a broker's load report.

They are needed if the report has no limit, as for network cards of VMs and pods, or a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from bundlekeel.model.load import REPORTED_RESOURCES, RESOURCES, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOverride:
    """Limits for the brokers whose id `pattern` matches: an id, a glob, or a regular expression between slashes.

    `nic_gbps`: Gbit/s in each direction. `cores`: CPU cores. `msg_rate`: msg/s, sum of in and out. `throughput`:
    bytes/s, sum of in and out. `direct_memory_mb`: MiB. None: the broker's reported limit applies. `ignore`: resources
    that do not count in the broker's load (`cpu`, `bandwidth`, `direct_memory`).
    """

    pattern: str
    nic_gbps: float | None = None
    cores: float | None = None
    msg_rate: float | None = None
    throughput: float | None = None
    direct_memory_mb: float | None = None
    ignore: tuple[str, ...] = ()


def match_capacity(overrides: Sequence[CapacityOverride], broker_id: str) -> CapacityOverride | None:
    """Return the override for a broker; None if no pattern matches its id.

    An equal id wins over a glob, a glob over a regular expression, and each of them over `*`. The first match counts.
    """
    exact = [item for item in overrides if item.pattern == broker_id]
    globs = [item for item in overrides if not _is_regex(item.pattern) and fnmatchcase(broker_id, item.pattern)]
    regexes = [item for item in overrides if _is_regex(item.pattern) and re.fullmatch(item.pattern[1:-1], broker_id)]
    return min(exact + globs + regexes, key=lambda item: item.pattern == "*", default=None)


def _is_regex(pattern: str) -> bool:
    return len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")


# A usage above the limit times this factor proves that the limit is wrong. A broker measures its CPU over a minute
# (`LinuxBrokerHostUsageImpl`). The kernel may let the broker overrun its quota by a period or two of 0.1 s, and a pause
# of the JVM between two readings shifts a few seconds of usage. So up to 110 %, the limit can be right, and the broker
# is overloaded.
WRONG_LIMIT_FACTOR: Final = 1.1


def wrong_limit_marks(usage: Floats, limit: Floats) -> tuple[str, ...]:
    """Return the resources of one broker whose usage proves that the reported limit is wrong, as `!cpu` and so on.

    `usage`, `limit`: one value per resource, in the order of `RESOURCES`.
    """
    columns = range(REPORTED_RESOURCES)
    return tuple(f"!{RESOURCES[at]}" for at in columns if limit[at] > 0 and usage[at] > WRONG_LIMIT_FACTOR * limit[at])
