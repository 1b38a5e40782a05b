"""The sidecar of `tests.support.shop` behind its real server: its responses can be changed, and its calls are seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from bundlekeel.api.service import Service
from bundlekeel.leader.gate.responses import Mode
from bundlekeel.model.parameters import Parameters
from bundlekeel.views.picture import BrokerView, Marks, State
from tests.support.page_world import Served
from tests.support.shop import Shop
from tests.support.spied import Spied, with_fields
from tests.support.world import EAGER

# Long after the time of the browser, which is not that of the shop.
EXPIRES_MS = 4_000_000_000_000


@dataclass(kw_only=True)
class ServedShop(Served):
    """Three brokers of a shop, whose clock stands still. The sidecar does nothing by itself.

    `brokers`: by broker, fields of its row that a test replaces.
    """

    mode: Mode = "recommend"
    params: Parameters = EAGER
    review: bool = False
    brokers: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def service(self) -> Service:
        """Return the service, whose results a test may change."""
        return cast(Service, self.spied)

    def change(self, **fields: Any) -> None:
        """Replace fields of the state, and let the page read everything again."""
        self._state |= fields
        self._changes += 1

    def act(self, action: Callable[[Shop], Awaitable[object]]) -> None:
        """Let the shop do something, and run a cycle."""

        async def acting() -> None:
            await action(self.shop)
            await self.shop.turns()

        self._do(acting())

    async def _listen(self) -> None:
        self._state: dict[str, Any] = {}
        self._changes = 0
        self.shop = await Shop(mode=self.mode, params=self.params, review=self.review).open()
        self.spied = Spied(self.shop.service)
        self.spied.results |= {
            "state": self._change_state,
            "brokers": self._replace_rows,
            "changes": self._mark,
            "make_plan": with_fields(expires_ms=EXPIRES_MS),
        }
        await super()._listen()

    def _change_state(self, state: State) -> State:
        return replace(state, **self._state)

    def _replace_rows(self, rows: list[BrokerView]) -> list[BrokerView]:
        return [replace(row, **self.brokers.get(row.broker, {})) for row in rows]

    def _mark(self, marks: Marks) -> Marks:
        return replace(marks, cycle=f"{marks.cycle} {self._changes}")
