"""Pulsar's own classes (`compat`) on the reports that our strategies get, for tests that show both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from bundlekeel.compat.reports import decode_columns, decode_reports
from bundlekeel.compat.shedders import CompatPicture, Placer, shed
from bundlekeel.model.load import BrokerReport, Ints
from bundlekeel.model.parameters import Parameters, compat_defaults
from bundlekeel.planning.memory import CompatMemory

_RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
_RESOURCES = ("cpu", "directMemory", "bandwidthIn", "bandwidthOut")


def select(
    picture: CompatPicture,
    params: Parameters,
    memory: CompatMemory,
    placement: str,
    row: int,
    candidates: Ints,
    seed: int = 0,
) -> tuple[Ints, int, CompatMemory]:
    """Return (rows of the set from which the class draws, drawn row, new memory); an empty set and -1 without one.

    `row`: row of the bundle; -1: a bundle without data.
    """
    placer = Placer(picture, params, memory, placement, seed)
    allowed, drawn = placer.select(row, candidates)
    return allowed, drawn, placer.memory()


def picture(reports: Sequence[BrokerReport]) -> CompatPicture:
    """Return the leader's snapshot once each report was sampled often enough to be its own average."""
    bundles = {
        name: json.dumps(
            {
                "shortTermData": {"maxSamples": 10, "numSamples": 10, **dict(zip(_RATES, row, strict=True))},
                "longTermData": {"maxSamples": 1000, "numSamples": 1000, **dict(zip(_RATES, row, strict=True))},
                "topics": 1,
            }
        ).encode()
        for report in reports
        for name, row in zip(report.bundle_names, report.bundle_traffic.tolist(), strict=True)
    }
    brokers = {report.broker_id: json.dumps(_record(report)).encode() for report in reports}
    return decode_compat(brokers, bundles)


def decode_compat(
    brokers: Mapping[str, bytes | msgspec.Raw], bundles: Mapping[str, bytes | msgspec.Raw], recent: Iterable[str] = ()
) -> CompatPicture:
    """Everything of one turn; rows as Java's maps order them when they are filled in the order given."""
    columns, torn = decode_columns(bundles)
    picture = decode_reports(brokers, columns, recent)
    return replace(picture, excluded=picture.excluded + torn)


def _record(report: BrokerReport) -> dict[str, Any]:
    usages = zip(_RESOURCES, report.usage.tolist(), report.limit.tolist(), strict=True)
    stats = zip(report.bundle_names, report.bundle_traffic.tolist(), strict=True)
    return {
        **{name: {"usage": usage, "limit": limit} for name, usage, limit in usages},
        **dict(zip(_RATES, report.traffic.tolist(), strict=True)),
        "bundles": list(report.bundle_names),
        "lastStats": {name: dict(zip(_RATES, row, strict=True)) for name, row in stats},
    }


@dataclass(slots=True)
class Pulsar:
    """One leader with one shedder: what it unloads call after call. Acts at first sight unless told otherwise."""

    strategy: str
    settings: dict[str, Any] = field(default_factory=dict)
    release: str = "4.2"
    memory: CompatMemory = field(default_factory=CompatMemory)

    def _params(self) -> Parameters:
        eager = {"avg_hit_count_low": 1, "avg_hit_count_high": 1}
        named = {"strategy": self.strategy, "compat": self.release}
        return Parameters(**{**compat_defaults(self.release), **eager, **named, **self.settings})

    def moves(self, reports: Sequence[BrokerReport]) -> list[tuple[str, str, str]]:
        """One call of `findBundlesForUnloading`: (bundle, broker, destination or "") in the order of selection."""
        snapshot = picture(reports)
        result = shed(snapshot, self._params(), self.memory, self.strategy, self.release)
        self.memory = result.memory
        names, brokers = snapshot.bundles.names, snapshot.brokers
        return [
            (names[row], brokers[owner], brokers[result.to[row]] if row in result.to else "")
            for row, owner in result.unload
        ]

    def unloads(self, reports: Sequence[BrokerReport]) -> dict[str, list[str]]:
        """Return the unloads as bundles by broker."""
        unloads: dict[str, list[str]] = {}
        for bundle, owner, _ in self.moves(reports):
            unloads.setdefault(owner, []).append(bundle)
        return unloads

    def drawn_from(self, reports: Sequence[BrokerReport], placement: str, bundle: int = 0) -> list[str]:
        """One selection: the brokers from which the placement class draws at random, all brokers being candidates."""
        snapshot, candidates = picture(reports), np.arange(len(reports))
        rows, _, self.memory = select(snapshot, self._params(), self.memory, placement, bundle, candidates)
        return sorted(snapshot.brokers[row] for row in rows.tolist())
