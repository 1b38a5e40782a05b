"""`bundlekeel decide` with `compat`: what Pulsar's own class of that release answers, bare.

No guard, no pipeline, no averages of ours: the records are read as Pulsar's mapper reads them, and a bundle that
`bundles` does not name is no candidate. `to` holds the destinations that the class couples; a `placement` named in
the reset adds its choice among all brokers for the others (the owner is left out, as the broker skips it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from bundlekeel.cli.offline.decide_lines import unload_hash
from bundlekeel.codec.compat import decode_columns, decode_reports
from bundlekeel.core.compat import BundleColumns, CompatPicture, CompatResult, Placer, shed
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.planning.memory import CompatMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatTurn:
    """The input of a turn, kept for `bench`: the text of the reports, and bundle data that are in memory already."""

    brokers: dict[str, msgspec.Raw]
    bundles: BundleColumns
    torn: tuple[tuple[str, str], ...]
    recent: tuple[str, ...]

    def decode(self) -> CompatPicture:
        """The reports, read anew."""
        return decode_reports(self.brokers, self.bundles, self.recent)


def compat_turn(brokers: dict[str, msgspec.Raw], bundles: dict[str, msgspec.Raw], recent: list[str]) -> CompatTurn:
    """Read what stays in memory between turns of a bench."""
    columns, torn = decode_columns(bundles)
    return CompatTurn(brokers=brokers, bundles=columns, torn=torn, recent=tuple(recent))


@dataclass(slots=True)
class CompatDecider:
    """One reset's parameters with what the classes remember since. `places`: the reset named a placement."""

    params: Parameters
    seed: int
    places: bool
    memory: CompatMemory

    def decide(self, picture: CompatPicture) -> CompatResult:
        """One call of the class."""
        result = shed(picture, self.params, self.memory, self.params.strategy, self.params.compat)
        self.memory = result.memory
        return result

    def answer(self, turn: CompatTurn) -> dict[str, Any]:
        """One turn's answer."""
        picture = turn.decode()
        result = self.decide(picture)
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
        excluded = [*picture.excluded, *turn.torn]
        if excluded:
            answer["excluded"] = [{"record": name, "detail": why} for name, why in excluded]
        return answer

    def _destinations(self, picture: CompatPicture, result: CompatResult) -> dict[int, int]:
        found = dict(result.to)
        if not self.places or len(picture.brokers) < 2:
            return found
        placer = Placer(picture, self.params, self.memory, self.params.placement, self.seed)
        everybody = np.arange(len(picture.brokers), dtype=np.int64)
        for bundle, source in result.unload:
            if bundle not in found:
                _, chosen = placer.select(bundle, everybody)
                if chosen not in (-1, source):
                    found[bundle] = chosen
        self.memory = placer.memory()
        return found
