"""The history of a run, to be judged like Jepsen does (`tests.support.chaos.judging`).

Witnesses that do not depend on the sidecars record all calls: a recording proxy in front of the brokers, and the
metadata store's audit log of intents and leaders. The sidecars' records contain their own account. All times are
seconds on one clock. A call is judged by the time when it was *sent*, because its effect can be delayed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Literal

Verdict = Literal["ok", "failed", "unknown"]
Verb = Literal["unload", "split", "claim"]


class Kind(StrEnum):
    """Violations of the rules."""

    TWO_CALLS = "TwoCallsForOneIntent"
    NO_INTENT = "CallWithoutIntent"
    OUTSIDE_LEADERSHIP = "CallOutsideLeadership"
    AGAINST_PAUSE = "AgainstPause"
    AGAINST_PIN = "AgainstPin"
    AGAINST_CORDON = "AgainstCordon"
    AGAINST_DRAIN = "AgainstDrain"
    AGAINST_EXCLUSION = "AgainstExclusion"
    MOVED_TWICE = "MovedTwiceWithinCoolDown"
    NOT_RECORDED = "EffectiveCallNotRecorded"
    OTHER_OWNER = "OwnerIsNotThatOfTheJournal"
    LEFT_OPEN = "IntentLeftOpen"
    RECORDED_TWICE = "RecordedTwice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request that can change a broker, as a witness recorded it. The verdict `failed` means that it certainly had
    no effect (a redirect, a refusal). `unknown` means that there was no response, or that its effect is not clear.
    """

    verb: Verb
    bundle: str
    member: str
    sent: float
    verdict: Verdict
    target: str = ""
    destination: str = ""
    status: int | None = None
    answered: float | None = None

    @property
    def may_count(self) -> bool:
        """Whether the request had an effect or can have had one."""
        return self.verdict != "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The time in which the metadata store contained an intent, the announcement of a move before its call. `ended` is
    None if the store still contains the intent. `id` is empty if the witness does not record it.
    """

    bundle: str
    begun: float
    ended: float | None = None
    id: str = ""

    def covers(self, at: float, slack: float) -> bool:
        """Return whether the intent was stored at time `at`."""
        return self.begun - slack <= at <= (inf if self.ended is None else self.ended) + slack


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term of a leader: its epoch, its sidecar, and when its leader node was deleted (None: it still exists)."""

    epoch: int
    member: str
    begun: float
    ended: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A time in which a sidecar received nothing: stopped from `at` until `until`, or its session lost (`until` =
    `at`).
    """

    member: str
    at: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRequest:
    """A request of an operator.

    `bundle`: the request concerns bundles whose name starts with this text (a bundle, namespace or tenant); "": all.
    `broker`: the request concerns only moves to this broker; a pause or an exclusion concerns moves from it.
    """

    kind: Literal["pause", "pin", "cordon", "drain", "exclusion"]
    since: float
    until: float | None = None
    bundle: str = ""
    broker: str = ""

    def in_force(self, at: float, heeded: float = 0.0) -> bool:
        """Return whether the request had to be obeyed at time `at`. `heeded`: seconds that sidecars have to
        notice it.
        """
        return self.since + heeded < at < (inf if self.until is None else self.until)

    def concerns(self, bundle: str, source: str, destination: str) -> bool:
        """Return whether the request forbids a move of that bundle."""
        brokers: Collection[str] = (destination,) if self.kind in ("cordon", "drain") else (source, destination)
        named = self.bundle in ("", bundle) or bundle.startswith(f"{self.bundle}/")
        return named and (not self.broker or self.broker in brokers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A move as the sidecars recorded it. `at`: its end."""

    bundle: str
    source: str
    landed_on: str
    outcome: str
    started: float
    at: float
    intent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A broker that lost its bundles without a move; no record says where they went."""

    broker: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Time limits of the judgement, in seconds.

    `grace_seconds`: a stopped sidecar is allowed to send prepared calls for this long after it continues.
    `heeded_seconds`: all sidecars must obey a request after this time. `slack_seconds`: largest difference between the
    times of two witnesses for one event. `open_seconds`: maximum age of an intent within one term.
    """

    grace_seconds: float = 1.0
    heeded_seconds: float = 2.0
    slack_seconds: float = 0.25
    cool_down_seconds: float = 300.0
    stayed_seconds: float = 60.0
    open_seconds: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All records of a run until `end`. `first` and `final`: owner of each bundle at the beginning and at the end."""

    attempts: Sequence[Attempt] = ()
    intents: Sequence[Intent] = ()
    terms: Sequence[Term] = ()
    stops: Sequence[Stop] = ()
    requests: Sequence[OperatorRequest] = ()
    records: Sequence[Record] = ()
    disturbances: Sequence[Disturbance] = ()
    first: Mapping[str, str] = field(default_factory=dict)
    final: Mapping[str, str] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    end: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A violation of a rule, with the recorded facts that show it."""

    kind: Kind
    bundle: str
    at: float
    sentence: str
    evidence: tuple[object, ...] = ()

    def __str__(self) -> str:
        """Return the sentence and its evidence, one line each."""
        return "\n    ".join([f"{self.at:.3f} {self.kind} {self.bundle}: {self.sentence}", *map(str, self.evidence)])
