"""Maintenance windows by the calendar: from settings (cron, time zone, minutes) to what may move now.

Cron times are those of the window's own zone, and its clock changes are heeded as cron does: a time that a change skips
is taken right after it, a time that comes twice counts once. Where minute or hour begins with `*` it opens whenever the
clock shows such a time: twice, or not at all. A window lasts its minutes in real time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from bundlekeel.codec.external_input import utc
from bundlekeel.core.model.codes import Code
from bundlekeel.daemon.gate.allowance import Allowance, WindowSpan, allowance
from bundlekeel.daemon.gate.gate import Obstacle
from bundlekeel.settings.sections import WindowSettings


class Calendar:
    """The windows of the settings; asked in every cycle, computed anew only when one opens or closes."""

    def __init__(self, windows: Sequence[WindowSettings] = (), stepped_ms: Callable[[], int] = lambda: 0) -> None:
        """`stepped_ms`: how far the wall clock has been set since `ports.Clock.wall_ms` began: people mean that one."""
        self._stepped_ms = stepped_ms
        self._windows = tuple(windows)
        self._known: tuple[int, int, Allowance] | None = None

    def at(self, now_ms: int) -> Allowance:
        """What may move at this moment (wall milliseconds)."""
        if not self._windows:
            return Allowance()
        now_ms += self._stepped_ms()
        if self._known is None or not self._known[0] <= now_ms < self._known[1]:
            spans = [span_of(window, now_ms) for window in self._windows]
            turns = [at for span in spans for at in (span.ends_ms, span.next_ms) if at > now_ms]
            self._known = now_ms, min(turns, default=now_ms), allowance(spans)
        return self._known[2]

    def obstacle(self, now_ms: int) -> Obstacle | None:
        """Why nothing moves at this moment because of the windows, or None."""
        found = self.at(now_ms)
        if found.allow != "nothing":
            return None
        if not found.until_ms:
            return Obstacle(code=Code.OUTSIDE_WINDOW, detail="none opens any more")
        word = "the next one opens" if found.closed_by == "hours" else "one that forbids moves ends"
        return Obstacle(code=Code.OUTSIDE_WINDOW, detail=f"{word} at {self._local(found.until_ms)}")

    def relief_until(self, now_ms: int) -> int | None:
        """Until when only overload may be relieved (wall milliseconds), None: no window says so."""
        found = self.at(now_ms)
        return found.until_ms if found.allow == "overload" else None

    def _local(self, at_ms: int) -> str:
        """The moment in the zone of the first window: that of the people who wrote it."""
        zone = self._windows[0].time_zone
        return f"{_moment(at_ms, zone):%Y-%m-%d %H:%M} {zone}"


def span_of(window: WindowSettings, now_ms: int) -> WindowSpan:
    """Where this moment lies between the openings of one window."""
    length = timedelta(minutes=window.minutes)
    now = _moment(now_ms, window.time_zone)
    # Openings after this one cover the moment; they are looked for in UTC, where every minute comes once.
    earliest = (now.astimezone(UTC) - length).astimezone(ZoneInfo(window.time_zone))
    try:
        openings = CronSim(window.cron, earliest)
        begun = list(takewhile(lambda at: _ms(at) <= now_ms, openings))
        following = next(CronSim(window.cron, now), None)
    except CronSimError:
        return WindowSpan(allow=window.allow)
    opened = [_ms(at) for at in begun if now_ms < _ms(at) + window.minutes * 60_000]
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
