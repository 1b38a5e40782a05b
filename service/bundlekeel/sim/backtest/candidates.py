"""A candidate: the settings that a back-test tries, as changes of the recorded ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bundlekeel.core.model.parameters import Parameters, coerce, in_form

Value = bool | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """`changes`: parameters (names of `core.model.parameters`) over the recorded ones; none: what holds now.
    `cycle_seconds`:
    how often it plans, 0: at every period."""

    name: str
    changes: Mapping[str, Value] = field(default_factory=dict)
    cycle_seconds: float = 0.0

    @property
    def key(self) -> str:
        """The same settings, the same key: their JSON."""
        settings = {"changes": dict(sorted(self.changes.items())), "cycle_seconds": float(self.cycle_seconds)}
        return json.dumps(settings, separators=(",", ":"))

    def params(self, base: Parameters) -> Parameters:
        """The recorded parameters with the changes. ConfigError for an unknown name or a value out of range.

        Another strategy than the recorded one is the corrected form, unless `compat` is among the changes.
        """
        coerced = {name: coerce(name, value) for name, value in self.changes.items()}
        if coerced.get("strategy", base.strategy) != base.strategy:
            coerced.setdefault("compat", "none")
        return replace(in_form(base, str(coerced.get("compat", base.compat))), **coerced)  # type: ignore[arg-type]

    def to_json(self) -> str:
        """All of it, for a row of a table."""
        whole = {"name": self.name, "changes": dict(self.changes), "cycle_seconds": self.cycle_seconds}
        return json.dumps(whole, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Candidate:
        """The opposite of `to_json`."""
        found = json.loads(text)
        return Candidate(name=found["name"], changes=found["changes"], cycle_seconds=found["cycle_seconds"])
