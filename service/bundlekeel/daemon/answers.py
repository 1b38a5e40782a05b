"""What the API and the CLI may ask of a running sidecar: one Protocol, answers as plain JSON-able values.

Every replica answers alike; what only the leader can do is passed on to it. Numbers carry their unit in the name:
`_ratio` 0..1, `_ms` milliseconds since 1970, `_seconds`, rates in msg/s, throughput in bytes/s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from bundlekeel.core.channel.states import UnitState
from bundlekeel.daemon.answers_operations import OperationsService
from bundlekeel.daemon.answers_quotas import QuotasService
from bundlekeel.daemon.answers_thresholds import ThresholdsService

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A dry run: overrides on top of the running settings. `forwarded` stops a second hand-over to a leader."""

    strategy: str | None = None
    placement: str | None = None
    parameters: Json = field(default_factory=dict)
    remove_brokers: tuple[str, ...] = ()
    add_brokers: tuple[str, ...] = ()
    traffic_scale: float = 1.0
    ignore_hit_counts: bool = False
    forwarded: bool = False

    @property
    def what_if(self) -> bool:
        """Whether brokers or traffic in it are not as they are: such a plan is never carried out."""
        return bool(self.remove_brokers or self.add_brokers) or self.traffic_scale != 1.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PlanRequest:
        """Out of JSON: what `told` gave, or a body of the API. TypeError, ValueError for what is no such thing."""
        brokers = {name: tuple(values.get(name, ())) for name in ("remove_brokers", "add_brokers")}
        return cls(**{**values, **brokers})

    def told(self) -> Json:
        """As JSON, for another sidecar or the store. Added brokers only where there are some: a sidecar of the release
        before refuses what it does not know."""
        values = asdict(self)
        return values if self.add_brokers else {key: item for key, item in values.items() if key != "add_brokers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of `doctor` or of `/readyz?verbose`: what was tested, whether it holds, what is wrong and the fix."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    severity: str = "error"


class Service(Protocol):
    """The service of a running sidecar, which the API and the CLI ask.

    Raises NotFound, Conflict, Forbidden, ConfigError, StoreError, SnapshotError of `core.model.errors`; nothing else.
    """

    @property
    def requests(self) -> OperationsService:
        """Drains, moves by hand, pins, reviews (daemon/answers_operations.py)."""

    @property
    def thresholds(self) -> ThresholdsService:
        """Calibrated thresholds (daemon/answers_thresholds.py)."""

    @property
    def quotas(self) -> QuotasService:
        """Quota groups (daemon/answers_quotas.py)."""

    def state(self) -> Json:
        """{member, role: leader|follower|bench, seat, epoch, leader: Member|None, members: [Member], cluster,
        cluster_mode: modular|extensible|other|mixed|unknown, mode, mode_ceiling, strategy, placement, paused:
        {reason, by, since_ms, until_ms: int|None}|None, store: {connected, session_seconds}, cycle: {id, wall_ms,
        sentence, verdict, moves, seconds}|None, imbalance: {throughput_max_mean, score_max_mean}, ledger: {entries,
        unsettled: [ids]}, intents: [..], version, uptime_seconds, acting: bool, acting_obstacle: Code|None, takeover:
        {active, by, reason, wall_ms, namespaces, ended: {by, reason, wall_ms, deadman}|None}|None, settling: after an
        outage {why, away, missing: [ids], quiet_seconds, until_ms, sentence}|None}"""

    def brokers(self) -> list[Json]:
        """One row a registered broker: {broker, alive, state: ok|<exclusion code>, detail, score_ratio (predicted,
        ledger included), reported_score_ratio, resources: {cpu: {percent, usage, limit, overridden}, ...}, msg_rate_in,
        msg_rate_out, throughput_in, throughput_out, predicted_throughput, bundles, topics, report_age_seconds,
        version, load_manager, sheds_itself: bool|None, splits_itself: bool|None, unsettled: bool, preallocated:
        [{bundle, age_seconds}], short: {msg_rate, throughput}, long: {msg_rate, throughput}, verdict: {code, sentence,
        hits_low, hits_high}}"""

    def bundles(
        self, *, broker: str | None = None, namespace: str | None = None, limit: int | None = None
    ) -> list[Json]:
        """Sorted by short-term throughput, largest first: {bundle, broker, topics, consumers, producers, latest,
        short, long: {msg_rate_in, msg_rate_out, throughput_in, throughput_out}, short_samples, long_samples,
        score_ratio, may_move: bool, code: Code|None, preallocated_to, preallocated_age_seconds, last_move_ms}"""

    def overview(self, largest: int) -> Json:
        """{wall_ms: of the picture|None, namespaces: [{namespace, throughput}] largest first, brokers: [{broker,
        bundles: the `largest` of it [{bundle, namespace: place in namespaces, throughput}], other_bundles: count,
        other_throughput}]}; throughput is short-term, both ways."""

    def changes(self) -> Json:
        """Marks that differ when something changed, cheap enough for twice a second: {picture, cycle, leader, store,
        moves, tasks, wishes}."""

    async def why(self, name: str) -> Json:
        """`name`: bundle, topic or broker. {kind, name, broker, sentence, codes: [{code, explanation, detail}],
        history: [journal records about it], what_would_change_it}"""

    def verdicts(self, limit: int) -> list[Json]:
        """Newest last: {cycle, wall_ms, verdict: {code, sentence}, brokers: [...], moves, refusals: {code: count}}"""

    def journal(self, limit: int, kind: str | None) -> list[Json]:
        """Newest last; kind `cycle`, `split`, `finding`, `wish`, `audit`, `effect`, `foreign`, `adoption` or `move`.
        Moves: {kind, wall_ms, bundle, source, destination, landed_on, outcome, code, seconds, epoch, cycle, sentence,
        reason, by, predicted, and once judged: effect, predicted_gain, realised_gain}. Effects: {kind, wall_ms, source,
        destination, bundles, begun_ms, predicted, realised, outcome: helped|no_benefit|worse, sentence}. Foreign:
        {kind, wall_ms, bundle, source, destination, undone, sentence}. Adoptions: {kind, wall_ms, what: recommended|
        refused|adopted|kept|reverted, version: digest, codes, by, reason, sentence}"""

    def settings(self) -> list[Json]:
        """[{key, value, origin, pulsar_keys, unit, why}] with secrets hidden."""

    async def make_plan(self, request: PlanRequest) -> Json:
        """A dry run on the leader's picture: {hash, wall_ms, strategy, placement, verdict, brokers: [verdicts], moves:
        [Move fields + sentence], refusals: [{code, bundle, broker, detail, explanation,
        limit, used, frees_ms}], refusal_counts, splits:
        [Split fields + sentence], split_refusals: [as refusals], loads: [BrokerLoad fields], imbalance: {before,
        after}, snapshot_digest, expires_ms, by_leader: bool, what_if: bool, request: PlanRequest fields}"""

    async def plan(self, hash_: str, *, here: bool = False) -> Json:
        """A plan made earlier by any sidecar (`here`: by this one); NotFound when unknown or expired (15 min)."""

    def plans(self) -> list[Json]:
        """Plans made here lately, newest last, without their moves: {hash, wall_ms, strategy, moves, verdict}"""

    async def execute(self, hash_: str, *, reason: str, by: str) -> Json:
        """Carry out exactly that plan on the leader, or Conflict with what changed: {task, hash, moves, state:
        waiting|proposed, review: id|None}. Proposed: a second person has to approve it first. The leader compares again
        right before it acts: `tasks`."""

    async def tasks(self) -> list[Json]:
        """Executions asked for: {task, kind, hash, state: waiting (for the leader)|running|done|failed|stopped, detail,
        moves: [outcomes], difference: [what changed] where that was why}"""

    async def pause(self, *, reason: str, by: str, seconds: float | None) -> Json:
        """Stop acting everywhere, at once, leader or not; {reason, by, since_ms, until_ms: int|None (until
        resumed)}"""

    async def resume(self, *, reason: str, by: str) -> Json:
        """End a pause."""

    async def set_mode(self, mode: str, *, reason: str, by: str) -> Json:
        """Lower or restore the mode within the file's ceiling; Forbidden above it."""

    async def where(self, name: str, *, listener: str = "") -> list[Json]:
        """A topic, partitioned topic (a row a partition), bundle or namespace: {topic, hash, bundle, broker: id|None,
        state: owned|unowned|unloading, web_url, service_url (of `listener`, if one is named), listener: name|None,
        preallocated_to, channel: as `channel_bundles`|None}. ConfigError: an owner has no such listener. Never assigns
        anything."""

    def channel(self) -> Json:
        """The ownership channel (extensible load manager; else Conflict): {variant: system_topic|metadata_store|None,
        up: bool, detail, obstacle, wall_ms, bundles, states: {state: count}, in_flight_oldest_seconds, findings: {code:
        count}, rejected, deadlines: {in_flight_ms, monitor_ms, tombstone_ms, load_data_ms}}"""

    def channel_bundles(
        self,
        *,
        state: UnitState | None = None,
        broker: str | None = None,
        namespace: str | None = None,
        after: str = "",
        limit: int = 1000,
    ) -> list[Json]:
        """By bundle name, beginning after `after`: {bundle, state, owner: id|None, destination, source, children:
        {range: id}, force, version, since_ms, age_seconds}. Conflict without channel, StoreError unless followed."""

    def channel_findings(self) -> list[Json]:
        """By code, then bundle: {code, bundle, brokers: [id], state, since_ms, deadline_ms (0: never), detail,
        remedy}. Conflict without channel, StoreError unless followed."""

    async def assignments(self, names: Sequence[str]) -> list[Json]:
        """Where topics, bundles or namespaces would be placed if no broker owned them; nothing is assigned, no broker
        is asked: [{topic, hash, bundle, owner: id|None, state, preallocated: id|None, chosen: id|None, placement,
        candidates: [id], code: Code|None, sentence, steps: [{name, candidates: [id], dropped: [{broker, code,
        explanation}], note}]}]"""

    async def doctor(self) -> list[Check]:
        """Every connection and permission, what is wrong and how to mend it."""

    def live(self) -> list[Check]:
        """Whether this process itself turns over; never depends on the store."""

    def ready(self) -> list[Check]:
        """Whether it can do its work now: store, picture, leadership known."""

    def render_metrics(self, accept: str) -> tuple[bytes, str]:
        """Prometheus exposition and content type."""
