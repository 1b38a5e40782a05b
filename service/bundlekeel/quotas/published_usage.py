"""Usage of resource groups that brokers publish through Pulsar's own transport (PIP-82), per period. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class PassedUsage(NamedTuple):
    """Messages, and their bytes, in one period."""

    messages: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroupUsage:
    """Usage of one ResourceGroup at one broker. None: it differs by at most 5 % from the last report.

    A broker reports both sides in about every fifth period anyway.
    """

    group: str
    publish: PassedUsage | None = None
    dispatch: PassedUsage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageMessage:
    """One usage message: the service URL of a broker, and all ResourceGroups attached to namespaces there."""

    broker: str
    groups: tuple[ResourceGroupUsage, ...] = ()
