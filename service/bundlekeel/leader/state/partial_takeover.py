"""Partial takeovers: Bundlekeel balances some namespaces, and the brokers must not shed the load of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bundlekeel.leader.state.responses import EndedView
from bundlekeel.leader.state.takeover_record import EXCLUDED, TakeoverRecord, name_set
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.guard.scope import matches

# Pattern that matches no namespace, because names of namespaces contain a slash.
NOTHING = "-"


def namespaces_of(record: TakeoverRecord | None) -> tuple[str, ...]:
    """Return the namespaces of an active partial takeover; (): no takeover is active, or it covers all."""
    return record.namespaces if record is not None and record.active else ()


def put_aside(record: TakeoverRecord | None) -> EndedView | None:
    """Return how the last takeover ended if the failsafe job ended it; else None."""
    ended = record.ended if record is not None and not record.active else None
    return ended if ended is not None and ended.deadman else None


def left_to_us(values: Mapping[str, str] | None, namespaces: tuple[str, ...]) -> bool:
    """Return whether a broker with these settings excludes all these namespaces from its shedding (PIP-380)."""
    return bool(namespaces) and values is not None and name_set(values.get(EXCLUDED, "")) >= set(namespaces)


def adopted(values: Mapping[str, str], namespaces: tuple[str, ...]) -> Mapping[str, str]:
    """Return the brokers' settings without the exclusions of namespaces that a partial takeover added."""
    return {key: value for key, value in values.items() if key != EXCLUDED} if namespaces else values


def scoped(params: Parameters, namespaces: tuple[str, ...]) -> Parameters:
    """Return the parameters, limited to these namespaces and, of these, to the ones that the settings include."""
    if not namespaces:
        return params
    included = np.zeros(len(namespaces), dtype=bool)
    for pattern in params.included_namespaces:
        included |= matches(pattern, namespaces)
    both = tuple(name for name, is_included in zip(namespaces, included.tolist(), strict=True) if is_included)
    return replace(params, included_namespaces=(both or (NOTHING,)) if params.included_namespaces else namespaces)
