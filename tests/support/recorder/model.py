"""Types of the recorder: routes, recorded requests, scripted responses, faults."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import h11


@dataclass(frozen=True, slots=True)
class Route:
    """An address on which the recorder listens, and the target to which it forwards. Only ``http`` routes are parsed.

    A ``listen_port`` of 0 lets the system choose (see ``Recorder.address``).
    """

    listen_host: str
    listen_port: int
    target_host: str
    target_port: int
    http: bool = True

    @property
    def target(self) -> str:
        """The address that it forwards to, as host:port."""
        return f"{self.target_host}:{self.target_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One HTTP request, recorded when its head arrived, also if it was not forwarded.

    wall_ms: wall-clock time. boot_seconds: CLOCK_BOOTTIME, comparable across processes.
    client_port: the port the client called from. target: host:port it is meant for.
    path is as sent (percent-encoded), query is without the question mark.
    headers: names in lower case, in the order sent. number: counts the requests of one recorder.
    """

    wall_ms: float
    boot_seconds: float
    client_port: int
    method: str
    path: str
    query: str
    user_agent: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    number: int = 0

    def header(self, name: str) -> str | None:
        """Return the first header of that name (any case), or None."""
        return next((value for key, value in self.headers if key == name.lower()), None)


@dataclass(frozen=True, slots=True)
class AnswerSeen:
    """Response to a request: the status passed on, and its time (CLOCK_BOOTTIME)."""

    status: int
    boot_seconds: float


# Status of a scripted response: never respond.
NEVER = 0


@dataclass(slots=True, kw_only=True)
class ScriptedAnswer:
    """A response that replaces forwarding for ``times`` requests (None: until cleared). Status ``NEVER``: no
    response.
    """

    method: str
    path: re.Pattern[str]
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    times: int | None
    user_agent_prefix: str
    where: str | None

    def fits(self, request: RecordedRequest) -> bool:
        """Return whether this response applies to a request. The expression must match the whole path."""
        return (
            self.method in ("*", request.method)
            and self.path.fullmatch(request.path) is not None
            and request.user_agent.startswith(self.user_agent_prefix)
        )

    def events(self, method: str) -> list[h11.Event]:
        """Return the answer in parts as they are sent."""
        headers = list(self.headers)
        if not any(name.lower() == "content-length" for name, _ in headers):
            headers.append(("Content-Length", str(len(self.body))))
        body = [] if method == "HEAD" else [h11.Data(self.body)]
        return [h11.Response(status_code=self.status, headers=headers, reason=b"Scripted"), *body, h11.EndOfMessage()]


@dataclass(frozen=True, slots=True)
class Faults:
    """The current faults of one listening address; `delay` is in seconds."""

    delay: float = 0.0
    down: bool = False
    frozen: bool = False


@dataclass(slots=True)
class State:
    """State that the caller's thread writes and the proxy's thread reads."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    requests: list[RecordedRequest] = field(default_factory=list)
    seen: dict[int, AnswerSeen] = field(default_factory=dict)
    count: int = 0
    answers: list[ScriptedAnswer] = field(default_factory=list)
    faults: dict[str, Faults] = field(default_factory=dict)

    def faults_of(self, address: str) -> Faults:
        """Return the faults of a listening address."""
        with self.lock:
            return self.faults.get(address, Faults())

    def change_faults(self, addresses: Iterable[str], **changes: float | bool) -> None:
        """Change one or more faults of some addresses."""
        with self.lock:
            for address in addresses:
                self.faults[address] = replace(self.faults.get(address, Faults()), **changes)  # type: ignore[arg-type]

    def take_answer(self, request: RecordedRequest, address: str) -> ScriptedAnswer | None:
        """Return the oldest scripted answer for a request and use it up once."""
        with self.lock:
            for answer in self.answers:
                if answer.where in (None, "http", address) and answer.fits(request):
                    if answer.times is not None:
                        answer.times -= 1
                        if answer.times <= 0:
                            self.answers.remove(answer)
                    return answer
        return None
