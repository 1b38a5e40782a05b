"""Run the command line against an in-memory sidecar behind a real server in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

from typer.testing import CliRunner, Result

from bundlekeel.api import ApiServer
from bundlekeel.leader.cycle.plan_responses import PlanView
from tests.support.apps import ROUTES, make_app
from tests.support.fake_wiring import FakeWiring
from tests.support.shop import Shop
from tests.support.spied import Spied


class Sidecar:
    """A sidecar with a real server, and the command line with the address of its socket."""

    def __init__(self, served: Served, socket: Path) -> None:
        self.service, self.url, self.socket = served.service, served.url, socket
        self.wiring, self.do = FakeWiring(), served.do
        self.be()

    def be(self, **settings: Any) -> None:
        """Replace the sidecar by a new one with these settings."""
        self.shop: Shop = self.do(_opened(settings))
        self.service.target = self.shop.service
        self.service.reset()

    def run(self, *arguments: str, to: str = "socket", **more: Any) -> Result:
        """Run one command. `to`: how the command gets the sidecar's address, such as "socket"."""
        where = {"socket": ["--socket", str(self.socket)], "url": ["--url", self.url], "none": []}[to]
        return CliRunner().invoke(make_app(lambda: cast(Any, self.wiring)), [*arguments, *where], **more)

    def plan(self) -> PlanView:
        """Make a plan that moves three bundles."""
        view: PlanView = self.do(self.shop.plan(ignore_hit_counts=True))
        return view


async def _opened(settings: dict[str, Any]) -> Shop:
    return await Shop(**settings).open()


class Served:
    """A server in a thread, whose service can be replaced."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: Path) -> None:
        self._loop = loop
        self.service = Spied(Shop().service)
        self.server = ApiServer(cast(Any, self.service), "127.0.0.1", 0, socket, features=ROUTES)
        self.url: str = self.do(self.server.start())

    def do(self, action: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the event loop of the sidecar and return its result."""
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(30)
