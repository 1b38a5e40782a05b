"""Find the violations in the history of a run (`tests.support.chaos.history`), as Jepsen does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from tests.support.chaos.history import Attempt, History, Intent, Kind, Record, Term, Violation


@dataclass(frozen=True, slots=True)
class _Call:
    """All requests that were sent for one intent, oldest first. A request without an intent is a call of its own."""

    intent: Intent | None
    attempts: tuple[Attempt, ...]

    @property
    def begun(self) -> float:
        return self.attempts[0].sent if self.intent is None else self.intent.begun

    @property
    def effective(self) -> Attempt | None:
        """Return the first request that had an effect or can have had one."""
        return next((item for item in self.attempts if item.may_count), None)

    @property
    def destination(self) -> str:
        """Return the destination of the move, as far as an attempt contains it: only the first request names it."""
        return next((item.destination for item in self.attempts if item.destination), "")


def judge(history: History) -> list[Violation]:
    """Return every violation in a history, in the order of time."""
    calls = _calls(history)
    faults = [
        *_one_call_per_intent(calls),
        *_within_leadership(history),
        *_as_requested(history, calls),
        *_rested(history, calls),
        *_recorded(history, calls),
        *_owners(history),
        *_closed(history),
        *_once(history),
    ]
    return sorted(faults, key=lambda item: (item.at, item.kind))


def _calls(history: History) -> list[_Call]:
    slack = history.rules.slack_seconds
    of_bundle: dict[str, list[Intent]] = defaultdict(list)
    for intent in sorted(history.intents, key=lambda item: item.begun):
        of_bundle[intent.bundle].append(intent)
    groups: dict[Intent, list[Attempt]] = defaultdict(list)
    calls = []
    for attempt in sorted(history.attempts, key=lambda item: item.sent):
        if attempt.verb == "claim":
            continue
        # Clocks of witnesses differ a little: use the newest intent that fits exactly, else one that nearly fits.
        exact = [item for item in of_bundle[attempt.bundle] if item.covers(attempt.sent, 0.0)]
        near = exact or [item for item in of_bundle[attempt.bundle] if item.covers(attempt.sent, slack)]
        if near:
            groups[near[-1]].append(attempt)
        else:
            calls.append(_Call(None, (attempt,)))
    calls.extend(_Call(intent, tuple(attempts)) for intent, attempts in groups.items())
    return sorted(calls, key=lambda call: call.begun)


def _one_call_per_intent(calls: Sequence[_Call]) -> Iterator[Violation]:
    for call in calls:
        first = call.attempts[0]
        if call.intent is None:
            yield Violation(
                kind=Kind.NO_INTENT,
                bundle=first.bundle,
                at=first.sent,
                sentence=f"{first.member} sent {first.verb} while the store held no intent",
                evidence=(first,),
            )
            continue
        effective = call.effective
        later = [item for item in call.attempts if effective is not None and item.sent > effective.sent]
        if effective is not None and later:
            yield Violation(
                kind=Kind.TWO_CALLS,
                bundle=first.bundle,
                at=later[0].sent,
                sentence=f"asked again although the attempt before it was {effective.verdict}",
                evidence=(call.intent, effective, *later),
            )


def _within_leadership(history: History) -> Iterator[Violation]:
    for attempt in history.attempts:
        terms = [term for term in history.terms if term.member == attempt.member]
        slack = history.rules.slack_seconds
        if not any(term.begun - slack <= attempt.sent <= _may_send_until(term, history) for term in terms):
            last = max(
                (term for term in terms if term.begun <= attempt.sent), key=lambda term: term.begun, default=None
            )
            yield Violation(
                kind=Kind.OUTSIDE_LEADERSHIP,
                bundle=attempt.bundle,
                at=attempt.sent,
                sentence=f"{attempt.member} sent {attempt.verb} while it did not lead",
                evidence=(attempt, last, *(stop for stop in history.stops if stop.member == attempt.member)),
            )


def _may_send_until(term: Term, history: History) -> float:
    """Return until when the leader of a term is allowed to send calls. A stopped leader cannot notice the term's
    end.
    """
    if term.ended is None:
        return inf
    rules, learned, late = history.rules, term.ended, False
    for stop in sorted(history.stops, key=lambda item: item.at):
        if stop.member == term.member and stop.at <= learned + rules.grace_seconds and stop.until >= learned:
            learned, late = stop.until, True
    return learned + (rules.grace_seconds if late else rules.slack_seconds)


_AGAINST: Final = {
    "pause": Kind.AGAINST_PAUSE,
    "pin": Kind.AGAINST_PIN,
    "cordon": Kind.AGAINST_CORDON,
    "drain": Kind.AGAINST_DRAIN,
    "exclusion": Kind.AGAINST_EXCLUSION,
}


def _as_requested(history: History, calls: Sequence[_Call]) -> Iterator[Violation]:
    for call in calls:
        first = call.attempts[0]
        for request in history.requests:
            if request.kind != "pause" and first.verb != "unload":
                continue
            change = request.in_force(call.begun, history.rules.heeded_seconds)
            if change and request.concerns(first.bundle, _source(call, history), call.destination):
                yield Violation(
                    kind=_AGAINST[request.kind],
                    bundle=first.bundle,
                    at=call.begun,
                    sentence=f"begun {call.begun - request.since:.1f} s after the {request.kind}",
                    evidence=(request, call.intent, first),
                )


def _record_of(call: _Call, attempt: Attempt, history: History) -> Record | None:
    """Return the record of a call: by the intent's id if there is one, else the newest one that began before it was
    sent.
    """
    slack = history.rules.slack_seconds
    of_bundle = [record for record in history.records if record.bundle == attempt.bundle]
    if call.intent is not None and call.intent.id:
        return next((record for record in of_bundle if record.intent == call.intent.id), None)
    earlier = [
        record for record in of_bundle if record.started <= attempt.sent + slack and record.at >= attempt.sent - slack
    ]
    return max(earlier, key=lambda record: record.started, default=None)


def _source(call: _Call, history: History) -> str:
    """Return the bundle's broker before the move, by its record; "" without one."""
    record = _record_of(call, call.attempts[0], history)
    return "" if record is None else record.source


def _drained(call: _Call, history: History) -> bool:
    """Return whether the call moved a bundle from a broker that operators drained. Then no cool-down applies."""
    source, heeded = _source(call, history), history.rules.heeded_seconds
    drains = [request for request in history.requests if request.kind == "drain" and request.broker == source]
    return any(request.in_force(call.begun) or request.in_force(call.begun - heeded) for request in drains)


def _rested(history: History, calls: Sequence[_Call]) -> Iterator[Violation]:
    """Check that no bundle is moved again within its cool-down, which is shorter if the last move had no effect."""
    rules = history.rules
    last: dict[str, _Call] = {}
    for call in calls:
        effective = call.effective
        if effective is None or effective.verb != "unload":
            continue
        before, last[effective.bundle] = last.get(effective.bundle), call
        if before is None or before.effective is None:
            continue
        record = _record_of(before, before.effective, history)
        if (record is not None and record.outcome == "refused") or _drained(call, history):
            continue
        stayed = record is not None and record.landed_on == record.source
        rest = min(rules.stayed_seconds, rules.cool_down_seconds) if stayed else rules.cool_down_seconds
        if call.begun - before.effective.sent < rest - rules.slack_seconds:
            yield Violation(
                kind=Kind.MOVED_TWICE,
                bundle=effective.bundle,
                at=call.begun,
                sentence=f"{call.begun - before.effective.sent:.1f} s after the last time, it rests for {rest:.0f} s",
                evidence=(before.effective, record, effective),
            )


def _recorded(history: History, calls: Sequence[_Call]) -> Iterator[Violation]:
    """Check that each call with an effect has a record once its intent was deleted."""
    for call in calls:
        effective = call.effective
        if effective is None or effective.verb != "unload" or call.intent is None or call.intent.ended is None:
            continue
        if _record_of(call, effective, history) is None:
            yield Violation(
                kind=Kind.NOT_RECORDED,
                bundle=effective.bundle,
                at=call.intent.ended,
                sentence="its intent is gone, and no record says how it ended",
                evidence=(effective, call.intent),
            )


def _once(history: History) -> Iterator[Violation]:
    """Check that each move has one record, whichever sidecar wrote it."""
    records: dict[tuple[str, str], Record] = {}
    for record in history.records:
        if not record.intent:
            continue
        before = records.setdefault((record.bundle, record.intent), record)
        if before is not record:
            yield Violation(
                kind=Kind.RECORDED_TWICE,
                bundle=record.bundle,
                at=record.at,
                sentence=f"intent {record.intent} has two records",
                evidence=(before, record),
            )


def _owners(history: History) -> Iterator[Violation]:
    """Check that each bundle ends at the broker of its last record or, without a record, at its first broker."""
    ended: dict[str, Record] = {}
    for record in sorted(history.records, key=lambda item: item.started):
        if record.outcome != "refused":
            ended[record.bundle] = record
    for bundle, owner in history.final.items():
        last = ended.get(bundle)
        expected = history.first.get(bundle, "") if last is None else last.landed_on
        # A broker that was killed during the move can have been the owner shortly before.
        since = -inf if last is None else last.started
        disturbed = any(item.broker == expected and item.at >= since for item in history.disturbances)
        # The end of the move is unknown, so it may have ended anywhere.
        if owner != expected and not disturbed and expected:
            yield Violation(
                kind=Kind.OTHER_OWNER,
                bundle=bundle,
                at=inf,
                sentence=f"owned by {owner or 'nobody'}, and not by {expected}",
                evidence=(last,),
            )


def _closed(history: History) -> Iterator[Violation]:
    """Check that no intent stays for longer than the limit within one term, because it blocks its bundle. The limit
    starts again with each leader."""
    for intent in history.intents:
        ended = history.end if intent.ended is None else intent.ended
        spans = (
            min(ended, history.end if term.ended is None else term.ended) - max(intent.begun, term.begun)
            for term in history.terms
        )
        lasted = max(spans, default=0.0)
        if lasted > history.rules.open_seconds:
            yield Violation(
                kind=Kind.LEFT_OPEN,
                bundle=intent.bundle,
                at=intent.begun,
                sentence=f"its intent stood for {lasted:.0f} s of one term",
                evidence=(intent,),
            )
