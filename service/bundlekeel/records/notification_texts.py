"""Create notifications, with their texts, from journal records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bundlekeel.model.codes import Code, explain
from bundlekeel.ports.records import Event, Notification, Severity
from bundlekeel.pulsar.channel.findings import FindingCode

# Operators' requests that stop or resume the balancer.
_STOPS: Final = ("pause", "resume", "mode", "stop", "takeover", "handback", "deadman")
# Every replica writes these records, because all replicas read the same document. Only the leader notifies.
_SHARED: Final = ("takeover", "handback", "deadman")
# Obstacles in normal operation, or already reported by the notification of an operator's request.
_QUIET: Final = frozenset({Code.NOT_LEADER, Code.OBSERVE_ONLY, Code.RECOMMEND_ONLY, Code.PAUSED, Code.OUTSIDE_WINDOW})
# Findings with which messages can be lost.
_CRITICAL: Final = frozenset({FindingCode.OWNED_TWICE, Code.SERVED_TWICE})
# Outcomes of moves and splits that an operator may want to check.
_ODD: Final = ("unknown", "refused")


class NotificationTexts:
    """Creates notifications from journal records, which it must receive in order, oldest first.

    It remembers only why the leader executes nothing (the last obstacle). An obstacle is reported after two consecutive
    cycles, so that one undecided cycle after a start is not reported."""

    def __init__(self, *, cluster: str, member: Callable[[], str], leads: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._member = member
        self._leads = leads
        self._last_code = self._stopped = ""

    def of(self, record: Mapping[str, Any]) -> list[Notification]:
        """Return the notifications for one journal record; empty for most records."""
        kind = str(record.get("kind", ""))
        if kind == "cycle":
            return self._cycle(record)
        if kind == "request":
            return self._request_text(record)
        if kind == "finding":
            return self._finding(record) if self._leads() else []
        if kind == "external_move":
            text = str(record.get("sentence", ""))
            return [
                self._notification(
                    "findings", "warning", "ExternalMove", text, record, ("bundle", "source", "destination")
                )
            ]
        if kind == "adoption":
            reason = str(record.get("code") or "ThresholdsAdopted")
            severity: Severity = "warning" if record.get("reverted") else "info"
            return [
                self._notification(
                    "adoption", severity, reason, str(record.get("sentence", "")), record, ("version", "by")
                )
            ]
        return []

    def _cycle(self, record: Mapping[str, Any]) -> list[Notification]:
        """Return notifications on the executed moves of a leader's cycle, and on the start or end of an obstacle to
        moves."""
        if record.get("epoch") is None:
            self._last_code = self._stopped = ""
            return []
        notifications = []
        outcomes = {*_words(record.get("outcomes")), *_words(record.get("splits"))}
        if outcomes:
            odd = not outcomes.isdisjoint(_ODD)
            text = str(record.get("sentence", ""))
            keys = ("cycle", "epoch", "code", "outcomes", "splits", "plan")
            notifications.append(
                self._notification("executions", "warning" if odd else "info", "CarriedOut", text, record, keys)
            )
        undecided = record.get("code") if record.get("plan") is None else ""
        code = str(record.get("obstacle") or undecided or "")
        loud, before = "" if code in _QUIET else code, self._last_code
        self._last_code = loud
        if loud != self._stopped and loud in (before, ""):
            notifications.append(self._obstacle(loud, record))
            self._stopped = loud
        return notifications

    def _obstacle(self, code: str, record: Mapping[str, Any]) -> Notification:
        if not code:
            text = f"the leader acts again; before, it was stopped by {self._stopped}"
            return self._notification("stops", "info", "ActsAgain", text, record, ("cycle", "epoch"))
        text = f"nothing is carried out: {explain(code) or code}"
        return self._notification("stops", "warning", code, text, record, ("cycle", "epoch"))

    def _request_text(self, record: Mapping[str, Any]) -> list[Notification]:
        what, text = str(record.get("what", "")), str(record.get("sentence", ""))
        first = what.split(maxsplit=1)[0] if what else ""
        if first in _SHARED and not self._leads():
            return []
        if first in ("thresholds", "adopt", "revert"):
            return [self._notification("adoption", "info", "ThresholdsAsked", text, record, ("what", "by", "reason"))]
        severity: Severity = "warning" if first == "deadman" else "info"
        event: Event = "stops" if first in _STOPS else "executions"
        return [self._notification(event, severity, _camel(first) or "Asked", text, record, ("what", "by", "reason"))]

    def _finding(self, record: Mapping[str, Any]) -> list[Notification]:
        code, is_gone = str(record.get("code", "")), record.get("event") == "gone"
        severity: Severity = "info" if is_gone else "critical" if code in _CRITICAL else "warning"
        keys = ("event", "count", "bundles", "brokers", "remedy")
        return [self._notification("findings", severity, code, str(record.get("sentence", "")), record, keys)]

    def _notification(
        self,
        event: Event,
        severity: Severity,
        reason: str,
        text: str,
        record: Mapping[str, Any],
        keys: tuple[str, ...],
    ) -> Notification:
        return Notification(
            event=event,
            severity=severity,
            reason=reason,
            text=text,
            wall_ms=int(record.get("wall_ms") or 0),
            cluster=self._cluster,
            member=self._member(),
            details={key: record[key] for key in keys if key in record},
        )


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, Mapping) else ()


def _camel(word: str) -> str:
    return word[:1].upper() + word[1:]
