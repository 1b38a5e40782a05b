"""Responses about the gate: mode, pause, wait after an outage.

The command line imports them, so they are separate from the code that needs numpy or structlog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.response_fields import Requested, Sentence

Mode = Literal["observe", "recommend", "act"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseView(Requested):
    """A pause: until it ends, nothing moves."""

    until_ms: Annotated[int | None, Doc("end time; null: until resumed")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlingView(Answer):
    """The wait after an outage, during which nothing moves."""

    why: Annotated[str, Doc("the outage, as a sentence")]
    away: Annotated[bool, Doc("whether the outage lasts")]
    missing: Annotated[list[str], Doc("brokers that were registered before the outage and are missing")]
    quiet_seconds: Annotated[float, Doc("time without a change of the registry")]
    until_ms: Annotated[int, Doc("time at which moves start again; 0: unknown")]
    sentence: Sentence
