"""Usage of resource groups that brokers publish by Pulsar's own transport (PIP-82), for one of its periods. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class PassedUsage(NamedTuple):
    """What passed in one period: messages, and their bytes."""

    messages: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroupUsage:
    """What a broker reports about one ResourceGroup. None: nothing new, it differs by no more than 5 % from what it
    said last; every fifth period or so it says both sides anyway."""

    group: str
    publish: PassedUsage | None = None
    dispatch: PassedUsage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageMessage:
    """One message: the service URL of a broker, and all ResourceGroups that namespaces are attached to there."""

    broker: str
    groups: tuple[ResourceGroupUsage, ...] = ()
