"""The interface of the recorder: start its thread, read recorded requests, set faults."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from tests.support.loop_thread import LoopThread
from tests.support.recorder.model import NEVER, AnswerSeen, RecordedRequest, Route, ScriptedAnswer, State
from tests.support.recorder.proxy import Proxy

if TYPE_CHECKING:
    from dev.cluster.spec import BrokerInfo


class Recorder(LoopThread):
    """A recording reverse proxy with its own thread and event loop.

    Any thread can use it, also as a context manager with `with` or `async with`. Faults can be set before the start if
    the listening port is not 0. ``where`` selects addresses: None selects all, "http" or "tcp" all of that kind, and
    "host:port" this listening address.
    """

    def __init__(self, routes: Iterable[Route | tuple[str, int, str, int]], http: bool = True) -> None:
        """``http``: whether routes given as tuples (listen host, port, target host, port) are HTTP."""
        super().__init__("recorder")
        self.routes = [route if isinstance(route, Route) else Route(*route, http=http) for route in routes]
        self._state = State()
        self._proxies: list[Proxy] = []

    @classmethod
    def for_cluster(cls, brokers: Iterable[BrokerInfo], service_ports: bool = True) -> Recorder:
        """Return a recorder for brokers that advertise another host than they bind (``advertise="proxy"``). Raises
        ValueError if a broker advertises the address it binds.
        """
        routes = []
        for broker in brokers:
            listen, target = broker.advertised_host, broker.bind_host
            if listen == target:
                raise ValueError(f'{broker.name} binds the address it advertises; use advertise="proxy"')
            routes.append(Route(listen, broker.web_port, target, broker.web_port))
            if service_ports:
                routes.append(Route(listen, broker.service_port, target, broker.service_port, http=False))
        return cls(routes)

    # --- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Recorder:
        """Start without blocking the caller's event loop."""
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop without blocking the caller's event loop."""
        await asyncio.to_thread(self.stop)

    async def _listen(self) -> None:
        self._proxies = [Proxy(route, f"{route.listen_host}:{route.listen_port}", self._state) for route in self.routes]
        for proxy in self._proxies:
            await proxy.listen()
            await proxy.apply_faults()

    async def _close(self) -> None:
        for proxy in self._proxies:
            await proxy.close()

    async def _apply_faults(self) -> None:
        for proxy in self._proxies:
            await proxy.apply_faults()

    # --- reading ---------------------------------------------------------------------------

    def address(self, index: int = 0) -> str:
        """Return the listening "host:port" of a route, with the real port once started."""
        if self._proxies:
            return self._proxies[index].address
        return f"{self.routes[index].listen_host}:{self.routes[index].listen_port}"

    def requests(self, user_agent_prefix: str = "") -> list[RecordedRequest]:
        """Return the HTTP requests so far, oldest first. ``user_agent_prefix``: only those with such a User-Agent, such
        as "bundlekeel" for sidecars.
        """
        with self._state.lock:
            return [r for r in self._state.requests if r.user_agent.startswith(user_agent_prefix)]

    def answered(self, request: RecordedRequest) -> AnswerSeen | None:
        """Return the response to a recorded request, None if there is none yet."""
        with self._state.lock:
            return self._state.seen.get(request.number)

    def clear(self) -> None:
        """Forget recorded requests."""
        with self._state.lock:
            self._state.requests.clear()
            self._state.seen.clear()

    # --- faults ----------------------------------------------------------------------------

    def set_delay(self, seconds: float, where: str | None = None) -> None:
        """Delay every request (HTTP) or every read of up to 64 KiB (TCP) by ``seconds``; 0 ends the delay."""
        self._change(where, delay=seconds)

    def set_down(self, down: bool, where: str | None = None) -> None:
        """Refuse connections and cut the open ones, or accept them again."""
        self._change(where, down=down)

    def freeze(self, frozen: bool, where: str | None = None) -> None:
        """Accept connections and requests but pass nothing on.

        When it ends, all waiting data is forwarded, also for clients that have closed their connection. A process that
        was stopped and continued behaves like this.
        """
        self._change(where, frozen=frozen)

    def heal(self) -> None:
        """End every fault and forget every scripted answer."""
        self.clear_answers()
        self._change(None, delay=0.0, down=False, frozen=False)

    def answer(
        self,
        method: str,
        path_regex: str,
        status: int,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        times: int | None = 1,
        user_agent_prefix: str = "",
        where: str | None = None,
    ) -> None:
        """Answer the next ``times`` (None: all) fitting requests instead of forwarding them.

        ``method`` may be "*". The expression must match the whole path, without the query.
        Scripted answers are tried oldest first. Requests are recorded all the same.
        """
        self._addresses(where)
        scripted = ScriptedAnswer(
            method=method,
            path=re.compile(path_regex),
            status=status,
            headers=tuple((headers or {}).items()),
            body=body.encode() if isinstance(body, str) else body,
            times=times,
            user_agent_prefix=user_agent_prefix,
            where=where,
        )
        with self._state.lock:
            self._state.answers.append(scripted)

    def hang(
        self, method: str, path_regex: str, times: int | None = 1, user_agent_prefix: str = "", where: str | None = None
    ) -> None:
        """Accept the next matching requests and never respond. They are not forwarded to the target."""
        self.answer(method, path_regex, NEVER, times=times, user_agent_prefix=user_agent_prefix, where=where)

    def clear_answers(self) -> None:
        """Forget every scripted answer."""
        with self._state.lock:
            self._state.answers.clear()

    def _change(self, where: str | None, **changes: float | bool) -> None:
        self._state.change_faults(self._addresses(where), **changes)
        if self._loop is not None:
            self._do(self._apply_faults())

    def _addresses(self, where: str | None) -> list[str]:
        """Return the listening addresses meant; raises ValueError for an unknown one."""
        addresses = [
            self.address(index)
            for index, route in enumerate(self.routes)
            if where in (None, "http" if route.http else "tcp", self.address(index))
        ]
        if not addresses:
            raise ValueError(f"the recorder has no address {where!r}")
        return addresses
