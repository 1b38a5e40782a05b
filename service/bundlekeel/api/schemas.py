"""What requests may say (strict) and what answers look like (documented, open to further fields)."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.parameters import PLACEMENTS, STRATEGIES
from bundlekeel.daemon.answers import PlanRequest

Mode = Literal["observe", "recommend", "act"]
Name = Annotated[str, Field(min_length=1, max_length=1024)]
# A broker's id, or the host alone: what its policies match.
NewBroker = Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9._:\[\]-]+$", examples=["new-1"])]
Scalar = bool | int | float | str | list[str]


def _legible(text: str) -> str:
    """What ends in the journal says something, on one line."""
    if not text.strip() or any(unicodedata.category(letter) == "Cc" for letter in text):
        raise ValueError("must say something, without control characters")
    return text.strip()


_LEGIBLE = AfterValidator(_legible)
# The same for who reads the document: no control character, and something beside blanks.
_PATTERN = {"pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\x00-\\x20\\x7f-\\xa0][^\\x00-\\x1f\\x7f-\\x9f]*$"}
Reason = Annotated[str, Field(min_length=1, max_length=1000, json_schema_extra=_PATTERN), _LEGIBLE]
By = Annotated[str, Field(min_length=1, max_length=200, json_schema_extra=_PATTERN), _LEGIBLE]


class Body(BaseModel):
    """A request body: an unknown field is an error, and numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class PlanBody(Body):
    """A dry run: overrides on top of the running settings. Nothing is touched."""

    # The examples are what the web page offers.
    strategy: str | None = Field(
        default=None, max_length=100, description=f"one of {', '.join(STRATEGIES)}", examples=[*STRATEGIES]
    )
    placement: str | None = Field(
        default=None, max_length=100, description=f"one of {', '.join(PLACEMENTS)}", examples=[*PLACEMENTS]
    )
    parameters: dict[Name, Scalar] = Field(
        default_factory=dict, max_length=200, description="parameters by our name or by Pulsar's key"
    )
    remove_brokers: list[Name] = Field(
        default_factory=list, max_length=1000, description="plan as if these brokers were gone"
    )
    add_brokers: list[NewBroker] = Field(
        default_factory=list, max_length=100, description="plan as if these were there too, empty, of middle size"
    )
    traffic_scale: float = Field(
        default=1.0, gt=0, le=1000, strict=True, description="plan as if all traffic were this many times"
    )
    ignore_hit_counts: bool = Field(default=False, strict=True, description="act on a difference at first sight")
    forwarded: bool = Field(default=False, strict=True, description="set by a follower that passes the request on")

    def request(self) -> PlanRequest:
        """The value the service takes."""
        return PlanRequest.of(self.model_dump())


class AssignmentBody(Body):
    """What to place, dry: one bundle, topic or namespace, or several."""

    bundle: Name | None = None
    topic: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    namespace: Name | None = Field(default=None, description="every bundle of tenant/namespace")
    bundles: list[Name] = Field(default_factory=list, max_length=200)
    topics: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(default_factory=list, max_length=200)

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.names():
            raise ValueError("name at least one bundle, topic or namespace")
        return self

    def names(self) -> list[str]:
        """Everything that was asked about."""
        single = [name for name in (self.bundle, self.topic, self.namespace) if name is not None]
        return [*single, *self.bundles, *self.topics]


class ReasonBody(Body):
    """Why, and who asks; both end in the journal."""

    reason: Reason
    by: By = "unix socket"


class PauseBody(ReasonBody):
    """A pause, for a while or until resumed."""

    seconds: float | None = Field(default=None, gt=0, le=365 * 86400, strict=True, description="absent: until resumed")


class ModeBody(ReasonBody):
    """A mode within the ceiling of the settings file."""

    mode: Mode


# --- answers ---------------------------------------------------------------------------------------------


class Answer(BaseModel):
    """An answer; further fields may come with later releases."""

    model_config = ConfigDict(extra="allow")


class Problem(Answer):
    """RFC 9457. `field`, `value`, `allowed` with a wrong value; `difference` with a conflict."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    value: Any = None
    allowed: str | None = None
    difference: list[str] | None = None


class VerdictView(Answer):
    """Why the cycle, or one broker in it, did what it did."""

    code: str = Field(description=f"one of {', '.join(Code)}")
    sentence: str
    broker: str = ""
    hits_low: int = 0
    hits_high: int = 0


class MemberView(Answer):
    """A sidecar as others see it."""

    id: str
    url: str = ""
    version: str = ""
    started_ms: int = 0
    seat: int = -1
    epoch: int = -1


class PauseView(Answer):
    """A pause: why, by whom, and until when (None: until resumed)."""

    reason: str
    by: str
    since_ms: int | None = None
    until_ms: int | None = None


class CycleView(Answer):
    """The last cycle."""

    id: int | str
    wall_ms: int
    sentence: str
    verdict: VerdictView | str | None = None
    moves: int = 0
    seconds: float = 0.0


class State(Answer):
    """Who leads, what mode, how the last cycle went, how even the load is."""

    member: MemberView | str
    role: Literal["leader", "follower", "bench"]
    seat: int | None
    epoch: int | None
    leader: MemberView | None
    members: list[MemberView]
    cluster: str
    cluster_mode: str
    mode: Mode
    mode_ceiling: Mode
    strategy: str
    placement: str
    paused: PauseView | None
    store: dict[str, Any]
    cycle: CycleView | None
    imbalance: dict[str, float | None]
    ledger: dict[str, Any]
    intents: list[Any]
    version: str
    uptime_seconds: float
    acting: bool
    acting_obstacle: str | None
    takeover: dict[str, Any] | None = Field(default=None, description="the last takeover: by, reason, how it ended")
    settling: dict[str, Any] | None = Field(
        default=None, description="after an outage: why, away, missing brokers, quiet_seconds, until_ms, sentence"
    )


class BrokerView(Answer):
    """One registered broker: its load as reported and as predicted with the ledger, and why it is left or chosen."""

    broker: str
    alive: bool
    state: str
    detail: str = ""
    score_ratio: float | None = None
    reported_score_ratio: float | None = None
    resources: dict[str, dict[str, Any]] = {}
    msg_rate_in: float | None = None
    msg_rate_out: float | None = None
    throughput_in: float | None = None
    throughput_out: float | None = None
    predicted_throughput: float | None = None
    bundles: int | None = None
    topics: int | None = None
    report_age_seconds: float | None = None
    version: str = ""
    load_manager: str = ""
    sheds_itself: bool | None = None
    splits_itself: bool | None = None
    unsettled: bool = False
    preallocated: list[dict[str, Any]] = []
    short: dict[str, float] = {}
    long: dict[str, float] = {}
    verdict: VerdictView | None = None


class BundleView(Answer):
    """One bundle: latest sample, short term (10 samples), long term (1,000), and whether it may move."""

    bundle: str
    broker: str | None
    topics: int = 0
    consumers: int = 0
    producers: int = 0
    latest: dict[str, float]
    short: dict[str, float]
    long: dict[str, float]
    short_samples: int
    long_samples: int
    score_ratio: float | None = None
    may_move: bool
    code: str | None = None
    preallocated_to: str | None = None
    preallocated_age_seconds: float | None = None
    last_move_ms: int | None = None


class WhyView(Answer):
    """Why a broker or bundle is where it is, and what would change it."""

    kind: str
    name: str
    broker: str | None = None
    sentence: str
    codes: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    what_would_change_it: Any = None


class CycleVerdict(Answer):
    """One cycle's verdicts."""

    cycle: int | str
    wall_ms: int
    verdict: VerdictView
    brokers: list[VerdictView] = []
    moves: int | list[Any] = 0
    refusals: dict[str, int] = {}


class Record(Answer):
    """A line of the journal: a `move`, a `split`, a `cycle` or a `finding`."""

    kind: str
    wall_ms: int


class Setting(Answer):
    """One effective setting and where it came from; secrets are hidden."""

    key: str
    value: Any = None
    origin: str
    pulsar_keys: list[str] = []
    unit: str = ""
    why: str = ""


class PlanSummary(Answer):
    """A plan made lately, without its moves."""

    hash: str
    wall_ms: int
    strategy: str
    moves: int | list[Any] = 0
    verdict: VerdictView | str | None = None


class PlanView(Answer):
    """A dry run: moves and splits with their reason, refusals with code and explanation, load per broker before and
    after."""

    hash: str
    wall_ms: int
    strategy: str
    placement: str
    verdict: VerdictView
    brokers: list[VerdictView]
    moves: list[dict[str, Any]]
    refusals: list[dict[str, Any]]
    refusal_counts: dict[str, int]
    splits: list[dict[str, Any]] = []
    split_refusals: list[dict[str, Any]] = []
    loads: list[dict[str, Any]]
    imbalance: dict[str, float | None]
    snapshot_digest: str
    expires_ms: int
    by_leader: bool
    what_if: bool = Field(default=False, description="brokers or traffic in it are not as they are: never carried out")
    request: dict[str, Any] = Field(default={}, description="what was asked for")


class TaskView(Answer):
    """An execution that was asked for."""

    task: str
    hash: str
    state: str
    detail: str = ""
    difference: list[str] = Field(default=[], description="what changed since, when it failed for that")


class Place(Answer):
    """Where a topic or bundle is; asking never assigns it."""

    topic: str | None = None
    hash: int | str | None = None
    bundle: str
    broker: str | None
    state: Literal["owned", "unowned", "unloading"]
    web_url: str = ""
    service_url: str = ""
    listener: str | None = Field(default=None, description="the advertised listener that was asked for")
    preallocated_to: str | None = None
    channel: dict[str, Any] | None = Field(default=None, description="its entry in the ownership channel")


class StepView(Answer):
    """One step of the assignment pipeline: who is left, and why each broker it dropped is not."""

    name: str
    candidates: list[str]
    dropped: list[dict[str, str]]
    note: str = ""


class AssignmentView(Answer):
    """Where a bundle would be placed if no broker owned it. `code` says why no broker is `chosen`."""

    topic: str | None = None
    hash: int | str | None = None
    bundle: str
    owner: str | None
    state: Literal["owned", "unowned", "unloading"]
    preallocated: str | None
    chosen: str | None
    placement: str
    candidates: list[str]
    code: str | None
    sentence: str
    steps: list[StepView]


class CheckView(Answer):
    """One test of `doctor`: whether it holds, what is wrong and the fix."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    severity: str = "error"


class WhoAmI(Answer):
    """Which sidecar answers, and what it would let you do here."""

    member: MemberView | str
    role: str
    version: str
    mutations: bool
    you: str = Field(default="", description="the authenticated name; empty without credentials")
    your_role: str = Field(default="", description="viewer, operator or admin")
