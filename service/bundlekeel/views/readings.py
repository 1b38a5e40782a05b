"""The API's reads, for any thread: they use published values and no state of the main event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

from bundlekeel.leader.cycle.effects import joined
from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.check import Check
from bundlekeel.model.plan import Verdict
from bundlekeel.model.response_fields import Json
from bundlekeel.ports import Clock, Journal, Metadata, Ownership
from bundlekeel.pulsar.channel.findings import ChannelFinding
from bundlekeel.pulsar.channel.responses import ChannelSummary, UnitView
from bundlekeel.settings.describe import describe
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.views import channel_rows, listings, why
from bundlekeel.views.journal import RECORDS
from bundlekeel.views.overview import draw_overview
from bundlekeel.views.picture import BrokerView, BundleView, CycleVerdict, Marks, OverviewView, Setting, State, WhyView
from bundlekeel.views.published import Published
from bundlekeel.views.summary import summary
from bundlekeel.views.summary_fields import ALWAYS, Period, SummaryView

# Kinds of records that each sidecar has only in its own journal.
_LOCAL = tuple(kind for kind in RECORDS if kind != "move")


class Readings:
    """All reads of `api.service.Service`. `latest`: returns the newest published values."""

    def __init__(
        self,
        latest: Callable[[], Published],
        *,
        loaded: LoadedSettings,
        journal: Journal,
        clock: Clock,
        metadata: Metadata,
        ownership: Ownership,
    ) -> None:
        """Create the reads. `metadata`, `ownership`: used by `why`, in the thread that calls it."""
        self._latest = latest
        self._loaded, self._journal, self._clock = loaded, journal, clock
        self._metadata, self._ownership = metadata, ownership

    def state(self) -> State:
        """Return the state of this sidecar: role, leader, last cycle, and why it does not act."""
        return self._latest().state

    def changes(self) -> Marks:
        """Return change marks: short values, of which at least one differs after a change that the web page shows."""
        return self._latest().marks

    def brokers(self) -> list[BrokerView]:
        """Return one row per registered broker."""
        return listings.brokers(self._latest().cluster, self._clock.wall_ms())

    def bundles(
        self, *, broker: str | None = None, namespace: str | None = None, after: str = "", limit: int | None = None
    ) -> list[BundleView]:
        """Return bundles, largest short-term throughput first."""
        cluster, now = self._latest().cluster, self._clock.wall_ms()
        return listings.bundles(cluster, now, broker=broker, namespace=namespace, after=after, limit=limit)

    def overview(self, largest: int) -> OverviewView:
        """Return an overview of the cluster with the `largest` bundles of each broker."""
        cluster = self._latest().cluster
        overview = cluster.overviews.get(largest)
        if overview is None:
            overview = draw_overview(cluster.snapshot, largest)
            cluster.overviews.clear()
            cluster.overviews[largest] = overview
        return overview

    async def why(self, name: str) -> WhyView:
        """Explain why a bundle or topic is at its broker, or why a broker has its load, and what would change it."""
        latest = self._latest()
        if latest.cluster.snapshot is not None:
            # Compute it in a thread, because the first time takes half a second in a large cluster.
            await asyncio.to_thread(lambda: latest.cluster.obstacles)
        why_input = why.WhyInput(
            cluster=latest.cluster,
            last=latest.state.cycle,
            metadata=self._metadata,
            ownership=self._ownership,
            records=joined(latest.moves, latest.judged),
            now_ms=self._clock.wall_ms(),
            interval_seconds=self._loaded.settings.cycle.interval,
        )
        answer = await why.why(name, why_input)
        if not latest.channel.followed or answer.bundle is None:
            return answer
        entry = channel_rows.row_of(latest.channel.current(), answer.bundle, self._clock.wall_ms())
        return replace(answer, channel=entry, findings=latest.channel.findings_of(answer.bundle))

    async def verdicts(self, limit: int, period: Period = ALWAYS) -> list[CycleVerdict]:
        """Return the results of planning in the last cycles, newest last."""
        records = await asyncio.to_thread(self._own, ("cycle",), limit, period)
        return [
            CycleVerdict(
                cycle=item["cycle"],
                wall_ms=item["wall_ms"],
                moves=item.get("planned", 0),
                verdict=Verdict(code=item["code"], sentence=item["sentence"]),
                refusals=item.get("refused", {}),
            )
            for item in records[-limit:]
        ]

    async def journal(self, limit: int, kind: str | None, period: Period = ALWAYS) -> list[Json]:
        """Return journal records, newest last.

        Records of moves are those of all sidecars, from the shared state. All other records are those of this sidecar.
        """
        return await asyncio.to_thread(self._records, self._latest(), limit, kind, period)

    def _records(self, latest: Published, limit: int, kind: str | None, period: Period) -> list[Json]:
        if kind == "effect":
            judged = [effect.record() for effect in latest.judged]
            return period.of(judged)[-limit:]
        moves = period.of(joined(latest.moves, latest.judged))
        if kind == "move":
            return moves[-limit:]
        records = self._own(_LOCAL if kind is None else (kind,), limit, period)
        return sorted(records + ([] if kind else moves), key=itemgetter("wall_ms"))[-limit:]

    def _own(self, kinds: Sequence[str], limit: int, period: Period) -> list[Json]:
        """Return records from this sidecar's journal. Reads the journal's files only if the period is limited."""
        if period == ALWAYS:
            return [record for kind in kinds for record in self._journal.tail(limit, kind=kind)]
        records = period.of(self._journal.since(period.since_ms))
        return [record for record in records if record.get("kind") in kinds]

    async def summary(self, period: Period) -> SummaryView:
        """Return a summary of the period."""
        return await asyncio.to_thread(self._summary, self._latest(), period)

    def _summary(self, latest: Published, period: Period) -> SummaryView:
        effects = [effect.record() for effect in latest.judged]
        moves = joined(latest.moves, latest.judged)
        return summary(period, self._clock.wall_ms(), self._journal.since(period.since_ms), moves, effects)

    def settings(self) -> list[Setting]:
        """Return the settings in effect with their origins; for planning parameters, the values of the next plan."""
        return [Setting(**row) for row in describe(self._loaded, self._latest().parameters)]

    # --- the ownership channel ---

    def channel(self) -> ChannelSummary:
        """Return the state of Pulsar's ownership channel, and its numbers of bundles and problems."""
        return self._latest().channel.summary()

    def channel_bundles(
        self,
        *,
        state: UnitState | None = None,
        broker: str | None = None,
        namespace: str | None = None,
        after: str = "",
        limit: int = 1000,
    ) -> list[UnitView]:
        """Return the bundles' entries in Pulsar's ownership channel."""
        view, now = self._latest().channel.current(), self._clock.wall_ms()
        return channel_rows.unit_rows(
            view, now, state=state, broker=broker, namespace=namespace, after=after, limit=limit
        )

    def channel_findings(self) -> list[ChannelFinding]:
        """Return the problems in Pulsar's ownership channel."""
        return self._latest().channel.findings()

    # --- probes ---

    def live(self) -> list[Check]:
        """Check that cycles still run. The check passes during a hanging move or while the store is unreachable."""
        behind = self._clock.boot() - self._latest().turned_boot
        limit = max(60.0, 6 * self._loaded.settings.cycle.interval) + self._loaded.settings.admin.read_timeout * 2
        ok = behind < limit
        return [
            Check(
                name="cycles",
                ok=ok,
                detail=f"the last cycle ended {behind:.0f} s ago",
                fix="" if ok else "restart this sidecar; its intents are settled by the next leader",
            )
        ]

    def ready(self) -> list[Check]:
        """Check the store connection, the role and the snapshot. A sidecar that cannot lead needs no snapshot."""
        return list(self._latest().ready)
