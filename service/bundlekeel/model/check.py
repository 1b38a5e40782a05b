"""Result of one check of `bundlekeel doctor` or of a Kubernetes probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bundlekeel.model.doc import Answer, Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Answer):
    """Result of one check of `bundlekeel doctor` or of a Kubernetes probe, with details and the fix."""

    name: Annotated[str, Doc("name of the check")]
    ok: Annotated[bool, Doc("whether the check passed")]
    detail: Annotated[str, Doc("result of the check")]
    fix: Annotated[str, Doc("what to do; empty: nothing to do")] = ""
    severity: Annotated[str, Doc("severity of a failed check", of=("error", "warning"))] = "error"

    @classmethod
    def passed(cls, name: str, detail: str) -> Check:
        """Return a passed check."""
        return cls(name=name, ok=True, detail=detail)

    @classmethod
    def failed(cls, name: str, detail: str, fix: str) -> Check:
        """Return a failed check."""
        return cls(name=name, ok=False, detail=detail, fix=fix)

    @classmethod
    def warned(cls, name: str, detail: str, fix: str) -> Check:
        """Return a check that failed, but only as a warning: an operator may accept it."""
        return cls(name=name, ok=False, detail=detail, fix=fix, severity="warning")
