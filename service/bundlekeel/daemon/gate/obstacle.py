"""Why something may not be done now: the gate's one answer."""

from __future__ import annotations

from dataclasses import dataclass

from bundlekeel.core.model.codes import EXPLANATIONS, Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why nothing is carried out now."""

    code: Code
    detail: str = ""

    @property
    def sentence(self) -> str:
        """The explanation of the code, with the detail when there is one."""
        return f"{EXPLANATIONS[self.code]}{f' ({self.detail})' if self.detail else ''}"
