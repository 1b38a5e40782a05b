"""Takeovers of named namespaces only: the namespaces to plan for, and brokers whose own shedding leaves them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bundlekeel.core.guard.scope import matches
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.daemon.state.takeover_record import EXCLUDED, TakeoverEnd, TakeoverRecord, name_set

# Matches no namespace: they have exactly one slash.
NOTHING = "-"


def namespaces_of(record: TakeoverRecord | None) -> tuple[str, ...]:
    """The namespaces a takeover in force is limited to, () when it is not limited or there is none."""
    return record.namespaces if record is not None and record.active else ()


def put_aside(record: TakeoverRecord | None) -> TakeoverEnd | None:
    """How the failsafe ended the last takeover; None when it did not."""
    ended = record.ended if record is not None and not record.active else None
    return ended if ended is not None and ended.deadman else None


def left_to_us(values: Mapping[str, str] | None, namespaces: tuple[str, ...]) -> bool:
    """Whether a broker that runs with these settings leaves all these namespaces alone (PIP-380)."""
    return bool(namespaces) and values is not None and name_set(values.get(EXCLUDED, "")) >= set(namespaces)


def adopted(values: Mapping[str, str], namespaces: tuple[str, ...]) -> Mapping[str, str]:
    """Broker settings to adopt: what the brokers leave to us is no exclusion of ours."""
    return {key: value for key, value in values.items() if key != EXCLUDED} if namespaces else values


def scoped(params: Parameters, namespaces: tuple[str, ...]) -> Parameters:
    """Only these namespaces, and of them only those that the settings include."""
    if not namespaces:
        return params
    wanted = np.zeros(len(namespaces), dtype=bool)
    for pattern in params.included_namespaces:
        wanted |= matches(pattern, namespaces)
    both = tuple(name for name, held in zip(namespaces, wanted.tolist(), strict=True) if held)
    return replace(params, included_namespaces=(both or (NOTHING,)) if params.included_namespaces else namespaces)
