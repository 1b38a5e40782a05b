"""Convert the requests that the recording proxy in front of the brokers saw to attempts of the history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import parse_qs, unquote

from tests.support.chaos.history import Attempt, Verb, Verdict
from tests.support.recorder import RecordedRequest, Recorder

_AGENT: Final = re.compile(r"bundlekeel.*\(([^)]*)\)$")
_BUNDLE_CALL: Final = re.compile(r"/admin/v2/namespaces/(.+)/(unload|split)")
_LOOKUP: Final = re.compile(r"/lookup/v2/topic/(.+)")
UNLOADS: Final = r"/admin/v2/namespaces/.+/unload"


def verdict_of(status: int | None) -> Verdict:
    """Return the effect that a status implies. After a redirect no bundle has changed yet. A 5xx can come after the
    change, so the effect is unknown, as without a response (None).
    """
    if status is None or status >= 500:
        return "unknown"
    return "ok" if status < 300 else "failed"


def attempts(recorder: Recorder, bundle_of: Callable[[str], str] = str) -> list[Attempt]:
    """Return all requests of sidecars that can change a broker, oldest first. `bundle_of`: returns the bundle of a
    topic.
    """
    return list(_attempts(recorder, bundle_of))


def _attempts(recorder: Recorder, bundle_of: Callable[[str], str]) -> Iterable[Attempt]:
    for request in recorder.requests("bundlekeel"):
        verb, what = _verb_of(request)
        if verb is None:
            continue
        answer, member = recorder.answered(request), _AGENT.match(request.user_agent)
        status = None if answer is None else answer.status
        yield Attempt(
            verb=verb,
            bundle=what if verb != "claim" else bundle_of(what),
            member=member[1] if member is not None else request.user_agent,
            sent=request.boot_seconds,
            verdict=verdict_of(status),
            target=request.target,
            destination=next(iter(parse_qs(request.query).get("destinationBroker", [])), ""),
            status=status,
            answered=None if answer is None else answer.boot_seconds,
        )


def _verb_of(request: RecordedRequest) -> tuple[Verb | None, str]:
    """Return the verb of a request and its bundle or topic; (None, "") if it changes nothing."""
    path = unquote(request.path)
    call = _BUNDLE_CALL.fullmatch(path)
    if request.method == "PUT" and call is not None:
        return ("unload" if call[2] == "unload" else "split"), call[1]
    lookup = _LOOKUP.fullmatch(path)
    if request.method == "GET" and lookup is not None and "authoritative=true" in request.query:
        return "claim", lookup[1]
    return None, ""


class AdminFaults:
    """Faults of the brokers' admin API that only sidecars get. `heal` of the recorder ends all of them.

    `times`: number of requests that get the fault; None: all, until `heal`.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def fail(self, times: int | None = 1) -> None:
        """Respond to unloads with 500; no broker receives them."""
        self._recorder.answer("PUT", UNLOADS, 500, body=b'{"reason":"chaos"}', times=times)

    def hang(self, times: int | None = 1) -> None:
        """Accept unloads and never respond; no broker receives them."""
        self._recorder.hang("PUT", UNLOADS, times=times)

    def loop(self, times: int | None = 1) -> None:
        """Redirect unloads endlessly: each address redirects to itself."""
        for index, route in enumerate(self._recorder.routes):
            if route.http:
                where = self._recorder.address(index)
                location = {"Location": f"http://{where}/admin/v2/namespaces/chaos/loop/0x0_0x1/unload"}
                self._recorder.answer("PUT", UNLOADS, 307, location, times=times, where=where)

    def late(self, seconds: float) -> None:
        """Delay every request by `seconds`."""
        self._recorder.set_delay(seconds, "http")
