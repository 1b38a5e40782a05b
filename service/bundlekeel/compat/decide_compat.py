"""Decisions of Pulsar's own shedders in `bundlekeel decide`, without the guard, policies and averages of Bundlekeel.

Records are read as Pulsar's mapper reads them. A bundle that `bundles` does not contain is not a candidate. `to`
contains the destinations that the shedder chooses. If the reset names a `placement`, `to` also contains its choice
among all brokers for the other bundles. AvgShedder of 5.0 is always asked as placement, as it may replace an overloaded
target. A bundle for which the placement chooses the owner is not in `to`, because the
broker skips such a bundle. Bundles that TransferShedder unloads without transfer (`loadBalancerTransferEnabled: false`)
are in `unload` only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from bundlekeel.compat.decide_extensible import TransferTurn, is_extensible, refuse_extensible
from bundlekeel.compat.decide_lines import InputLine, LineFault, unload_hash
from bundlekeel.compat.reports import decode_columns, decode_reports
from bundlekeel.compat.shedders import BundleColumns, CompatPicture, CompatResult, Placer, shed
from bundlekeel.compat.transfer import TransferOutcome, TransferPicture, find_bundles
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.memory import CompatMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatTurn:
    """One line of input for the modular load manager: the reports as text, and decoded bundle data."""

    brokers: dict[str, msgspec.Raw]
    bundles: BundleColumns
    recent: tuple[str, ...]

    def picture(self) -> CompatPicture:
        """Decode the reports into the input of Pulsar's shedders."""
        return decode_reports(self.brokers, self.bundles, self.recent)


@dataclass(slots=True)
class CompatDecider:
    """Decides input lines with the copy of a Pulsar shedder, and keeps its memory. `places`: whether the reset line
    names a placement."""

    params: Parameters
    seed: int
    places: bool
    memory: CompatMemory = field(default_factory=CompatMemory)
    turn: CompatTurn | None = None

    def decode(self) -> Callable[[], object] | None:
        """Decode the last input line again; return a function that decides it, or None before the first line."""
        if self.turn is None:
            return None
        picture = self.turn.picture()
        return lambda: self._decide(picture)

    def _decide(self, picture: CompatPicture) -> CompatResult:
        result = shed(picture, self.params, self.memory, self.params.strategy, self.params.compat)
        self.memory = result.memory
        return result

    def answer(self, line: InputLine) -> dict[str, Any]:
        """Return the response to an input line: the bundles that Pulsar's shedder unloads."""
        refuse_extensible(line)
        columns, torn = decode_columns(line.bundles or {})
        brokers = {} if line.brokers is UNSET else line.brokers
        self.turn = CompatTurn(brokers=brokers, bundles=columns, recent=tuple(line.recent or ()))
        return self._render(self.turn.picture(), torn)

    def _render(self, picture: CompatPicture, torn: tuple[tuple[str, str], ...]) -> dict[str, Any]:
        result = self._decide(picture)
        brokers, names = picture.brokers, picture.bundles.names
        unload: dict[str, list[str]] = {}
        for bundle, source in result.unload:
            unload.setdefault(brokers[source], []).append(names[bundle])
        to = {names[bundle]: brokers[target] for bundle, target in self._destinations(picture, result).items()}
        answer: dict[str, Any] = {
            "unload": unload,
            "to": to,
            "verdict": {
                "code": result.verdict.code,
                "sentence": result.verdict.sentence,
                "brokers": [
                    {"code": item.code, "sentence": item.sentence, "broker": item.broker} for item in result.brokers
                ],
            },
            "refused": [],
            "plan_hash": unload_hash(unload, to),
        }
        excluded = [*picture.excluded, *torn]
        if excluded:
            answer["excluded"] = [{"record": name, "detail": why} for name, why in excluded]
        return answer

    def _destinations(self, picture: CompatPicture, result: CompatResult) -> dict[int, int]:
        destinations = dict(result.to)
        if not (self.places or self.memory.planned) or len(picture.brokers) < 2:
            return destinations
        placer = Placer(picture, self.params, self.memory, self.params.placement, self.seed)
        all_brokers = np.arange(len(picture.brokers), dtype=np.int64)
        for bundle, source in result.unload:
            if bundle not in destinations:
                _, target = placer.select(bundle, all_brokers)
                if target not in (-1, source):
                    destinations[bundle] = target
        self.memory = placer.memory()
        return destinations


@dataclass(slots=True)
class CompatTransferDecider:
    """Decides input lines with the copy of TransferShedder, and keeps its memory between them."""

    params: Parameters
    hits: int = 0
    turn: TransferTurn | None = None

    def decode(self) -> Callable[[], object] | None:
        """Decode the last input line again; return a function that decides it, or None before the first line."""
        if self.turn is None:
            return None
        picture, _ = self.turn.picture()
        return lambda: self._decide(picture)

    def _decide(self, picture: TransferPicture) -> TransferOutcome:
        outcome = find_bundles(picture, self.params, self.hits)
        self.hits = outcome.hits
        return outcome

    def answer(self, line: InputLine) -> dict[str, Any]:
        """Return the response to an input line: the bundles that TransferShedder unloads."""
        if line.brokers and not is_extensible(line):
            raise LineFault("TransferShedder reads the load data of the extensible load manager", "brokers")
        self.turn = TransferTurn.of(line)
        picture, unread = self.turn.picture()
        outcome = self._decide(picture)
        unload: dict[str, list[str]] = {}
        for item in outcome.unloads:
            unload.setdefault(item.source, []).append(item.bundle)
        to = {item.bundle: item.target for item in outcome.unloads if item.target}
        answer: dict[str, Any] = {
            "unload": unload,
            "to": to,
            "verdict": {
                "code": outcome.reason,
                "label": outcome.label,
                "sentence": _sentence(outcome, self.params),
                "hits": outcome.hits,
                "brokers": [],
            },
            "refused": [],
            "plan_hash": unload_hash(unload, to),
        }
        if unread:
            answer["excluded"] = unread
        return answer


def _sentence(outcome: TransferOutcome, params: Parameters) -> str:
    if outcome.unloads:
        return f"{len(outcome.unloads)} bundles to {'transfer' if params.transfer_enabled else 'unload'}"
    return f"nothing to unload; condition met {outcome.hits} times, more than {params.transfer_hit_count} needed"
