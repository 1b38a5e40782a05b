"""Maintenance windows: compute from the settings (cron, time zone, minutes) which moves are allowed now.

Cron times are in the window's time zone. Clock changes work as in cron. If a change skips the opening time, the window
opens right after the change. If the time occurs twice, the window opens once. If minute or hour starts with `*`, it
opens at each matching clock time: twice, or not at all. A window lasts its minutes in real time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from bundlekeel.leader.gate.allowance import Allowance, WindowSpan, allowance
from bundlekeel.leader.gate.gate import Obstacle
from bundlekeel.model.codes import Code
from bundlekeel.pulsar.formats.external_input import utc
from bundlekeel.settings.sections import WindowSettings


class Calendar:
    """The maintenance windows of the settings. They are computed again only when a window opens or closes."""

    def __init__(self, windows: Sequence[WindowSettings] = (), stepped_ms: Callable[[], int] = lambda: 0) -> None:
        """`stepped_ms`: returns the ms by which the host's clock was set since the start. Windows follow that clock."""
        self._stepped_ms = stepped_ms
        self._windows = tuple(windows)
        self._cached: tuple[int, int, Allowance] | None = None

    def at(self, now_ms: int) -> Allowance:
        """Return the moves allowed at a Unix time in ms."""
        if not self._windows:
            return Allowance()
        now_ms += self._stepped_ms()
        if self._cached is None or not self._cached[0] <= now_ms < self._cached[1]:
            spans = [span_of(window, now_ms) for window in self._windows]
            turns = [at for span in spans for at in (span.ends_ms, span.next_ms) if at > now_ms]
            self._cached = now_ms, min(turns, default=now_ms), allowance(spans)
        return self._cached[2]

    def obstacle(self, now_ms: int) -> Obstacle | None:
        """Return why the windows allow no moves at a Unix time in ms, or None."""
        allowed = self.at(now_ms)
        if allowed.allow != "nothing":
            return None
        if not allowed.until_ms:
            return Obstacle(code=Code.OUTSIDE_WINDOW, detail="none opens any more")
        word = "the next one opens" if allowed.closed_by == "hours" else "one that forbids moves ends"
        return Obstacle(code=Code.OUTSIDE_WINDOW, detail=f"{word} at {self._local(allowed.until_ms)}")

    def relief_until(self, now_ms: int) -> int | None:
        """Return until when (Unix ms) windows allow only moves that relieve overloaded brokers; None: no such limit."""
        allowed = self.at(now_ms)
        return allowed.until_ms if allowed.allow == "overload" else None

    def _local(self, at_ms: int) -> str:
        zone = self._windows[0].time_zone
        return f"{_moment(at_ms, zone):%Y-%m-%d %H:%M} {zone}"


def span_of(window: WindowSettings, now_ms: int) -> WindowSpan:
    """Return the window's current opening at a Unix time in ms, if it is open, and its next opening."""
    length = timedelta(minutes=window.minutes)
    now = _moment(now_ms, window.time_zone)
    # Openings after this one cover `now_ms`. Subtract in UTC, where every minute occurs once.
    earliest = (now.astimezone(UTC) - length).astimezone(ZoneInfo(window.time_zone))
    try:
        openings = CronSim(window.cron, earliest)
        started = list(takewhile(lambda at: _ms(at) <= now_ms, openings))
        following = next(CronSim(window.cron, now), None)
    except CronSimError:
        return WindowSpan(allow=window.allow)
    opened = [_ms(at) for at in started if now_ms < _ms(at) + window.minutes * 60_000]
    return WindowSpan(
        allow=window.allow,
        opened_ms=opened[0] if opened else 0,
        ends_ms=opened[-1] + window.minutes * 60_000 if opened else 0,
        next_ms=_ms(following) if following is not None else 0,
    )


def _moment(at_ms: int, zone: str) -> datetime:
    return utc(at_ms, field="at_ms").astimezone(ZoneInfo(zone))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
