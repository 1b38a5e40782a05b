"""Shadow strategies: strategies that plan on the input of the leader's cycles, only for comparison.

Their plans are never executed. Each strategy has its own memory. Planning runs in a thread after the cycle, so that the
cycle never waits. Cycles that end before the thread has finished are skipped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from bundlekeel.model.parameters import with_strategy
from bundlekeel.model.plan import Plan
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.ports import Clock, Telemetry
from bundlekeel.recalibration.adopting.comparison import Comparison, compare_plans


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShadowCycle:
    """A cycle of the leader, with its input and its plan, on which the shadow strategies plan again."""

    epoch: int
    cycle: int
    plan_input: PlanInput
    live: Plan


class ShadowStrategies:
    """Runs the shadow strategies that the settings name."""

    def __init__(self, strategies: Sequence[str], telemetry: Telemetry, clock: Clock) -> None:
        self._strategies = tuple(strategies)
        self._telemetry = telemetry
        self._clock = clock
        self._memories: dict[str, StrategyMemory] = {}
        self._epoch: int | None = None
        self._queued: _ShadowCycle | None = None
        self._arrived = asyncio.Event()
        self._news: dict[str, Any] = {}
        self._thread = ThreadPoolExecutor(1, "shadow")

    def cycle_ended(
        self, epoch: int | None, plan_input: PlanInput | None, result: PlanResult | None, record: Mapping[str, Any]
    ) -> None:
        """Queue a finished cycle of the leader, on which the shadow strategies then plan. Returns immediately."""
        if epoch is None or plan_input is None or result is None:
            return
        if self.busy:
            self._telemetry.count("shadow_skipped_total")
            return
        self._queued = _ShadowCycle(epoch=epoch, cycle=int(record["cycle"]), plan_input=plan_input, live=result.plan)
        self._arrived.set()

    @property
    def busy(self) -> bool:
        """Return whether a cycle is being planned or is queued."""
        return self._queued is not None

    def news(self) -> dict[str, Any]:
        """Return the comparisons of the last planned cycle once; later calls return an empty map.

        The next cycle's journal line and history contain them. Form: {cycle, strategies: {name: fields of
        `Comparison`}}.
        """
        news, self._news = self._news, {}
        return news

    async def run(self) -> None:
        """Plan each queued cycle with the shadow strategies, until cancelled."""
        while True:
            await self._arrived.wait()
            await self.play()

    async def close(self) -> None:
        """Stop planning."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def play(self) -> None:
        """Plan on the queued cycle, if there is one. Raises the error of a plugin, after all other strategies have
        run."""
        queued = self._queued
        self._arrived.clear()
        if queued is None:
            return
        try:
            await self._play(queued)
        finally:
            self._queued = None

    async def _play(self, queued: _ShadowCycle) -> None:
        if queued.epoch != self._epoch:
            self._epoch, self._memories = queued.epoch, {}
        comparisons, failed = list[Comparison](), None
        for strategy in self._strategies:
            if strategy == queued.plan_input.params.strategy:
                continue
            started = self._clock.boot()
            plan_input = replace(
                queued.plan_input,
                params=with_strategy(queued.plan_input.params, strategy),
                memory=self._memories.get(strategy, StrategyMemory()),
                trial=None,
            )
            # Shielded, because a thread cannot be cancelled: the running plan ends before the next one starts.
            work = asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, plan, plan_input))
            (result,) = await asyncio.gather(work, return_exceptions=True)
            if isinstance(result, BaseException):
                # If a plugin fails, the other strategies still plan. The caller logs the error.
                failed = result
                continue
            self._memories[strategy] = result.waiting
            self._telemetry.time("shadow_seconds", self._clock.boot() - started)
            comparisons.append(compare_plans(queued.live, result.plan))
        self._publish(comparisons)
        if comparisons:
            fields = {item.strategy: {k: v for k, v in asdict(item).items() if k != "strategy"} for item in comparisons}
            self._news = {"cycle": queued.cycle, "strategies": fields}
        if failed is not None:
            raise failed

    def _publish(self, comparisons: Sequence[Comparison]) -> None:
        for item in comparisons:
            self._telemetry.count("shadow_cycles_total", strategy=item.strategy, agreement=item.agreement)
            self._telemetry.gauge("shadow_disagreement_ratio", item.disagreement, strategy=item.strategy)
            self._telemetry.gauge("shadow_regret_ratio", item.regret, strategy=item.strategy)
