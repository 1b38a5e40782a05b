"""Records of the journal: their kinds and fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import RootModel

from bundlekeel.model.codes import EFFECTS, OUTCOMES, Code
from bundlekeel.model.doc import Doc
from bundlekeel.model.response_fields import CODE_OR_EMPTY, CodeName, Json, Sentence, WallMs
from bundlekeel.pulsar.channel.findings import FindingCode

JournalKind = Literal[
    "cycle", "move", "split", "finding", "request", "audit", "effect", "external_move", "adoption", "quota", "settings"
]

SPLIT_OUTCOMES = ("done", "unknown", "refused")
_ADOPTIONS = ("recommended", "refused", "adopted", "widened", "kept", "reverted")
_DESTINATION = "broker that the bundle was sent to"
_RATE = "(`messages` in msg/s, `bytes` in bytes/s; -1: no limit)"
_GROUP_FORM = (
    "`origin`, `members` and `limits` (per second over all brokers; null: no limit); null: the group did not exist"
)


@dataclass(frozen=True, kw_only=True)
class OtherRecord:
    """Fields of every journal record. A record of a kind that a later release adds has further fields."""

    # Not an `Answer`, because fields with a default can be absent from a record, and later releases can add fields.
    __pydantic_config__: ClassVar = {"json_schema_serialization_defaults_required": False, "extra": "allow"}

    kind: Annotated[str, Doc("kind of the record", grows=get_args(JournalKind))]
    wall_ms: WallMs
    sentence: Sentence


@dataclass(frozen=True, kw_only=True)
class CycleRecord(OtherRecord):
    """A cycle: its plan and the results."""

    kind: Annotated[Literal["cycle"], Doc("kind of the record")]
    cycle: Annotated[int, Doc("number of the cycle")]
    epoch: Annotated[int | None, Doc("epoch of the leader's term; null: this sidecar did not lead")]
    code: Annotated[str, Doc("code of the verdict", grows=Code)]
    acted: Annotated[bool, Doc("whether moves were started")]
    obstacle: Annotated[str | None, Doc("code of the obstacle to executing the plan; null: none", grows=Code)]
    plan: Annotated[str | None, Doc("hash of the plan; null: no plan was possible")]
    digest: Annotated[str | None, Doc("digest of the snapshot that the plan is based on; null: no plan was possible")]
    measured_seconds: Annotated[
        float | None,
        Doc("longest time between two readings of a broker's counters; null: values are from load reports"),
    ]
    planned: Annotated[int, Doc("number of planned moves")]
    refused: Annotated[dict[str, int], Doc("number of refused bundles by code", keys=Code)]
    outcomes: Annotated[dict[str, int], Doc("number of finished moves by outcome", keys=OUTCOMES)]
    planned_splits: Annotated[int, Doc("number of planned splits")]
    splits: Annotated[dict[str, int], Doc("number of finished splits by outcome", keys=SPLIT_OUTCOMES)]
    seconds: Annotated[dict[str, float], Doc("duration of each part in seconds: `plan`, `execute`, `split`, `total`")]
    operations: Annotated[
        dict[str, Json] | None, Doc("only with drains: progress of each drain by broker, in the form of `DrainView`")
    ] = None
    shadow: Annotated[
        Json | None,
        Doc(
            "only with `shadow.strategies`: `cycle`, the number of the planned cycle, and `strategies`: by name "
            "`strategy`, `moves`, `disagreement` (a ratio of the moves), `agreement`, `regret` (a difference of "
            "max/mean), `plan_hash`"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class _FinishedRecord(OtherRecord):
    """Fields of a finished move or split."""

    bundle: Annotated[str, Doc("the bundle")]
    code: Annotated[str, Doc("code of the reason if the outcome is not `done`; empty: none", grows=CODE_OR_EMPTY)]
    error: Annotated[str, Doc("error from the broker or the metadata store; empty: none")]
    started_ms: Annotated[int, Doc("start time")]
    epoch: Annotated[int, Doc("epoch of the leader that started it; -1: unknown")]
    intent: Annotated[str, Doc("id of the stored intent, with which a new leader finishes it")]
    cycle: Annotated[str, Doc("number of the cycle that started it, as a string, or the id of the task")]


@dataclass(frozen=True, kw_only=True)
class MoveRecord(_FinishedRecord):
    """A move of a bundle that has ended."""

    kind: Annotated[Literal["move"], Doc("kind of the record")]
    source: Annotated[str, Doc("broker that owned the bundle")]
    destination: Annotated[str, Doc(_DESTINATION)]
    landed_on: Annotated[str, Doc("broker that owns the bundle now; empty: none, or unknown")]
    outcome: Annotated[
        str,
        Doc(
            "`done`, `landed_elsewhere`, `released` (no broker owns it), `unknown` or `refused` (nothing moved)",
            grows=OUTCOMES,
        ),
    ]
    landed_ms: Annotated[int, Doc("time at which the new owner was first observed; 0: no owner observed")]
    seconds: Annotated[float, Doc("duration, including the wait in the queue")]
    hops: Annotated[list[str], Doc("brokers that redirected the unload request")]
    topic: Annotated[str, Doc("topic whose lookup makes the destination load the bundle; empty: none is known")]
    predicted: Annotated[
        dict[str, float],
        Doc(
            "planned scores of both brokers, as ratios: `source_before`, `source_after`, `target_before` and "
            "`target_after`; empty: not predicted"
        ),
    ]
    effect: Annotated[
        str | None, Doc("effect on the load, if known: `helped`, `no_benefit` or `worse`", grows=EFFECTS)
    ] = None
    predicted_gain: Annotated[float | None, Doc("only with `effect`: `predicted` of the effect record")] = None
    realised_gain: Annotated[float | None, Doc("only with `effect`: `realised` of the effect record")] = None


@dataclass(frozen=True, kw_only=True)
class SplitRecord(_FinishedRecord):
    """A split of a bundle that has ended."""

    kind: Annotated[Literal["split"], Doc("kind of the record")]
    broker: Annotated[str, Doc("broker that owned the bundle")]
    rule: Annotated[str, Doc("rule that selected the bundle")]
    outcome: Annotated[str, Doc("`done`, `unknown` or `refused` (nothing was done)", grows=SPLIT_OUTCOMES)]
    positions: Annotated[list[int], Doc("hashes at which the bundle was divided")]
    children: Annotated[list[str], Doc("bundles that replace it; empty: not `done`")]
    seconds: Annotated[float, Doc("duration")]


@dataclass(frozen=True, kw_only=True)
class FindingRecord(OtherRecord):
    """Problems of bundles, the ownership channel or brokers' settings that appeared or disappeared, all of one code."""

    kind: Annotated[Literal["finding"], Doc("kind of the record")]
    event: Annotated[str, Doc("`appeared` or `gone`", grows=("appeared", "gone"))]
    code: Annotated[str, Doc("code of the findings", grows=(*FindingCode, *Code))]
    count: Annotated[int, Doc("number of findings")]
    bundles: Annotated[list[str], Doc("first bundles with this finding")]
    brokers: Annotated[list[str], Doc("brokers with this finding")]
    since_ms: Annotated[int, Doc("time at which the oldest finding was detected")]
    remedy: Annotated[str, Doc("what to do; empty: the findings are gone")]


@dataclass(frozen=True, kw_only=True)
class RequestRecord(OtherRecord):
    """A request of an operator."""

    kind: Annotated[Literal["request"], Doc("kind of the record")]
    what: Annotated[str, Doc("the request as text; a takeover and its end have `takeover`, `handback` or `deadman`")]
    reason: Annotated[str, Doc("reason that the operator entered")]
    by: Annotated[str, Doc("operator who made the request")]
    group: Annotated[str | None, Doc("only for a quota group: name of the group")] = None
    before: Annotated[Json | None, Doc(f"only for a quota group: the group before the request, {_GROUP_FORM}")] = None
    after: Annotated[Json | None, Doc(f"only for a quota group: the group after the request, {_GROUP_FORM}")] = None


@dataclass(frozen=True, kw_only=True)
class AuditRecord(OtherRecord):
    """A mutating request to the API, and its response status."""

    kind: Annotated[Literal["audit"], Doc("kind of the record")]
    by: Annotated[
        str, Doc("authenticated name; on the unix socket the name that the caller sent; empty: no valid credentials")
    ]
    role: Annotated[str, Doc("role of the credentials; empty: no valid credentials")]
    address: Annotated[str, Doc("IP address of the caller, or `unix socket`")]
    what: Annotated[str, Doc("method and path of the request")]
    reason: Annotated[str, Doc("reason that the caller entered; empty: the request was refused before it was read")]
    status: Annotated[int, Doc("HTTP status of the response")]
    attempts: Annotated[
        int | None,
        Doc("only if refused before it was read: number of similar requests since the previous record"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EffectRecord(OtherRecord):
    """Measured effect of the moves from one broker to another."""

    kind: Annotated[Literal["effect"], Doc("kind of the record")]
    source: Annotated[str, Doc("broker that the bundles left")]
    destination: Annotated[str, Doc("broker that received the bundles")]
    bundles: Annotated[list[str], Doc("moved bundles")]
    begun_ms: Annotated[int, Doc("time at which the first move was planned")]
    predicted: Annotated[float, Doc("planned decrease of the higher load of the two brokers, as a ratio of capacity")]
    realised: Annotated[float, Doc("measured decrease, as a ratio of capacity; negative: an increase")]
    outcome: Annotated[str, Doc("`helped`, `no_benefit` or `worse`", grows=EFFECTS)]


@dataclass(frozen=True, kw_only=True)
class ExternalMoveRecord(OtherRecord):
    """A move that Bundlekeel did not start."""

    kind: Annotated[Literal["external_move"], Doc("kind of the record")]
    bundle: Annotated[str, Doc("the bundle")]
    source: Annotated[str, Doc("broker that owned the bundle")]
    destination: Annotated[str, Doc("broker that owns the bundle now")]
    undone: Annotated[bool, Doc("whether the move reverted a move of Bundlekeel")]


@dataclass(frozen=True, kw_only=True)
class AdoptionRecord(OtherRecord):
    """A decision to adopt, keep or revert thresholds that a recalibration proposed."""

    kind: Annotated[Literal["adoption"], Doc("kind of the record")]
    what: Annotated[str, Doc("`recommended`, `refused`, `adopted`, `widened`, `kept` or `reverted`", grows=_ADOPTIONS)]
    code: Annotated[
        str,
        Doc(
            "`Thresholds` followed by the value of `what`",
            grows=[f"Thresholds{word.capitalize()}" for word in _ADOPTIONS],
        ),
    ]
    version: Annotated[str, Doc("digest of the thresholds")]
    reverted: Annotated[bool, Doc("whether the thresholds were reverted")]
    codes: Annotated[list[CodeName], Doc("codes of the objections")]
    by: Annotated[str, Doc("operator who decided, or `bundlekeel`")]
    reason: Annotated[str, Doc("reason that the operator entered; empty: automatic decision")]


@dataclass(frozen=True, kw_only=True)
class QuotaRecord(OtherRecord):
    """Rates and resource groups that quotas wrote in one cycle, or problems of quotas."""

    kind: Annotated[Literal["quota"], Doc("kind of the record")]
    what: Annotated[
        str,
        Doc(
            "`rates` or `resource_groups` (written), or `problems` (a change of the problems)",
            grows=("rates", "resource_groups", "problems"),
        ),
    ]
    code: Annotated[
        str,
        Doc(
            "`RatesWritten`, `ResourceGroupsWritten` or `QuotaProblems`",
            grows=("RatesWritten", "ResourceGroupsWritten", "QuotaProblems"),
        ),
    ]
    changes: Annotated[
        list[Json] | None,
        Doc(
            "not for `problems`: the first successful writes. For `rates`: `topic`, `side` (`publish` or "
            f"`dispatch`), `group`, `before` and `rate` {_RATE}, `restores` (whether it is the original rate). For "
            "`resource_groups`: `namespace`, `before` and `group` (names), or `group`, `before` and `limits` (per "
            "second and broker). null: none"
        ),
    ] = None
    errors: Annotated[
        list[Json] | None, Doc("not for `problems`: the first failed writes, in the same form, each with `error`")
    ] = None
    problems: Annotated[
        list[str] | None, Doc("only for `problems`: the problems as sentences; empty: all are solved")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SettingsRecord(OtherRecord):
    """A reload of the settings file."""

    kind: Annotated[Literal["settings"], Doc("kind of the record")]
    outcome: Annotated[
        str,
        Doc(
            "`applied`, `unchanged` or `refused` (the previous settings stay in effect)",
            grows=("applied", "unchanged", "refused"),
        ),
    ]
    applied: Annotated[list[str] | None, Doc("not if refused: keys that take effect with the next cycle")] = None
    restart_needed: Annotated[list[str] | None, Doc("not if refused: keys that need a restart")] = None
    problems: Annotated[list[str] | None, Doc("only if refused: the errors, one per line of the file")] = None


class JournalRecord(RootModel[Any], defer_build=True):
    """A record of the journal. `kind` selects the type; the last type is for unknown kinds."""

    root: (
        CycleRecord
        | MoveRecord
        | SplitRecord
        | FindingRecord
        | RequestRecord
        | AuditRecord
        | EffectRecord
        | ExternalMoveRecord
        | AdoptionRecord
        | QuotaRecord
        | SettingsRecord
        | OtherRecord
    )


RECORDS: Final[Mapping[JournalKind, type[OtherRecord]]] = {
    "cycle": CycleRecord,
    "move": MoveRecord,
    "split": SplitRecord,
    "finding": FindingRecord,
    "request": RequestRecord,
    "audit": AuditRecord,
    "effect": EffectRecord,
    "external_move": ExternalMoveRecord,
    "adoption": AdoptionRecord,
    "quota": QuotaRecord,
    "settings": SettingsRecord,
}
