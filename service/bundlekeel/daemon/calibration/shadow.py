"""Shadow strategies: each cycle of the leader, the same input, their own memory, nothing carried out.

They plan in a thread, after the cycle, so that it never waits for them; while they are at it, later cycles are passed
over and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from bundlekeel.core.model.parameters import with_strategy
from bundlekeel.core.model.plan import Plan
from bundlekeel.core.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.core.planning.memory import StrategyMemory
from bundlekeel.daemon.calibration.comparison import Comparison, compared
from bundlekeel.ports import Clock, Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """A cycle to plan again."""

    epoch: int
    cycle: int
    given: PlanInput
    live: Plan


class ShadowStrategies:
    """One for each sidecar whose settings name strategies."""

    def __init__(self, strategies: Sequence[str], telemetry: Telemetry, clock: Clock) -> None:
        self._strategies = tuple(strategies)
        self._telemetry = telemetry
        self._clock = clock
        self._memories: dict[str, StrategyMemory] = {}
        self._epoch: int | None = None
        self._taken: _Taken | None = None
        self._arrived = asyncio.Event()
        self._news: dict[str, Any] = {}
        self._thread = ThreadPoolExecutor(1, "shadow")

    def cycle_ended(
        self, epoch: int | None, given: PlanInput | None, result: PlanResult | None, record: Mapping[str, Any]
    ) -> None:
        """A cycle is over (`daemon.cycle.cycle.CycleListener`). Returns at once."""
        if epoch is None or given is None or result is None:
            return
        if self.busy:
            self._telemetry.count("shadow_skipped_total")
            return
        self._taken = _Taken(epoch=epoch, cycle=int(record["cycle"]), given=given, live=result.plan)
        self._arrived.set()

    @property
    def busy(self) -> bool:
        """Whether a cycle is being planned, or waits to be."""
        return self._taken is not None

    def news(self) -> dict[str, Any]:
        """What was found since this was asked last, for the next cycle's journal line and history: {cycle, strategies:
        {name: fields of `daemon.calibration.shadow.Comparison`}}, empty when nothing was."""
        found, self._news = self._news, {}
        return found

    async def run(self) -> None:
        """Plan each cycle that was taken, until cancelled."""
        while True:
            await self._arrived.wait()
            await self.play()

    async def close(self) -> None:
        """Stop planning."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def play(self) -> None:
        """Plan the cycle that was taken, if there is one. Raises what a plugin raised, when the others have played."""
        taken = self._taken
        self._arrived.clear()
        if taken is None:
            return
        try:
            await self._play(taken)
        finally:
            self._taken = None

    async def _play(self, taken: _Taken) -> None:
        if taken.epoch != self._epoch:
            self._epoch, self._memories = taken.epoch, {}
        found, failed = list[Comparison](), None
        for strategy in self._strategies:
            if strategy == taken.given.params.strategy:
                continue
            started = self._clock.boot()
            given = replace(
                taken.given,
                params=with_strategy(taken.given.params, strategy),
                memory=self._memories.get(strategy, StrategyMemory()),
            )
            # Shielded: what was begun ends before the next one of its thread.
            work = asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, plan, given))
            (result,) = await asyncio.gather(work, return_exceptions=True)
            if isinstance(result, BaseException):
                # A plugin's mistake costs its own turn only; the task that runs us says it.
                failed = result
                continue
            self._memories[strategy] = result.waiting
            self._telemetry.time("shadow_seconds", self._clock.boot() - started)
            found.append(compared(taken.live, result.plan))
        self._publish(found)
        if found:
            shown = {item.strategy: {k: v for k, v in asdict(item).items() if k != "strategy"} for item in found}
            self._news = {"cycle": taken.cycle, "strategies": shown}
        if failed is not None:
            raise failed

    def _publish(self, found: Sequence[Comparison]) -> None:
        for item in found:
            self._telemetry.count("shadow_cycles_total", strategy=item.strategy, agreement=item.agreement)
            self._telemetry.gauge("shadow_disagreement_ratio", item.disagreement, strategy=item.strategy)
            self._telemetry.gauge("shadow_regret_ratio", item.regret, strategy=item.strategy)
