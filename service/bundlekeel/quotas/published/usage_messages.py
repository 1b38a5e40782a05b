"""Usage of ResourceGroups per publishing period, as brokers report it to each other (PIP-82). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class PassedUsage(NamedTuple):
    """Number of messages in one publishing period, and their bytes."""

    messages: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroupUsage:
    """Usage of one ResourceGroup at one broker, for publish and dispatch.

    None: the usage differs by at most 5 % from the last reported one. In about every fifth period a broker reports it
    anyway.
    """

    group: str
    publish: PassedUsage | None = None
    dispatch: PassedUsage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageMessage:
    """One usage message: the service URL of a broker, and the usage of all ResourceGroups with namespaces there."""

    broker: str
    groups: tuple[ResourceGroupUsage, ...] = ()
