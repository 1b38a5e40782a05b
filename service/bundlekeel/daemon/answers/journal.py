"""Records of the journal: their kinds, and what each field of a kind holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import RootModel

from bundlekeel.core.channel.findings import FindingCode
from bundlekeel.core.model.codes import EFFECTS, OUTCOMES, Code
from bundlekeel.core.model.doc import Doc
from bundlekeel.daemon.answers.doc import CODE_OR_EMPTY, CodeName, Json, Sentence, WallMs

JournalKind = Literal[
    "cycle", "move", "split", "finding", "request", "audit", "effect", "external_move", "adoption", "quota", "settings"
]

SPLIT_OUTCOMES = ("done", "unknown", "refused")
_ADOPTIONS = ("recommended", "refused", "adopted", "kept", "reverted")
_EPOCH = "number of the leader's term that began it; -1: not known"
_CAUSE = "number of the cycle that began it, as a text, or the id of the task"
_DESTINATION = "the broker it was sent to"
_RATE = "(`messages` in msg/s, `bytes` in bytes/s; -1: no limit)"
_GROUP_FORM = "`origin`, `members` and `limits` (a second, over all brokers; null: no limit); null: it was not there"


@dataclass(frozen=True, kw_only=True)
class OtherRecord:
    """What every record has; one of a kind that a later release adds has fields of its own beside it."""

    # As no `Answer`: a field with a default is there only sometimes. Later releases may have further fields.
    __pydantic_config__: ClassVar = {"json_schema_serialization_defaults_required": False, "extra": "allow"}

    kind: Annotated[str, Doc("what it is about", grows=get_args(JournalKind))]
    wall_ms: WallMs
    sentence: Sentence


@dataclass(frozen=True, kw_only=True)
class CycleRecord(OtherRecord):
    """A cycle: what was planned, and what came of it."""

    kind: Annotated[Literal["cycle"], Doc("what it is about")]
    cycle: Annotated[int, Doc("number of the cycle")]
    epoch: Annotated[int | None, Doc("number of the leader's term; null: this sidecar did not lead")]
    code: Annotated[str, Doc("code of the verdict", grows=Code)]
    acted: Annotated[bool, Doc("whether moves were begun")]
    obstacle: Annotated[str | None, Doc("code of why nothing was carried out; null: nothing prevented it", grows=Code)]
    plan: Annotated[str | None, Doc("hash of the plan; null: no plan could be made")]
    digest: Annotated[
        str | None, Doc("digest of the picture of the cluster that was planned on; null: no plan could be made")
    ]
    measured_seconds: Annotated[
        float | None, Doc("the longest time between two readings of a broker's counters; null: from a report")
    ]
    planned: Annotated[int, Doc("how many moves were planned")]
    refused: Annotated[dict[str, int], Doc("how many bundles were refused, by code", keys=Code)]
    outcomes: Annotated[dict[str, int], Doc("how many moves ended, by outcome", keys=OUTCOMES)]
    planned_splits: Annotated[int, Doc("how many splits were planned")]
    splits: Annotated[dict[str, int], Doc("how many splits ended, by outcome", keys=SPLIT_OUTCOMES)]
    seconds: Annotated[
        dict[str, float], Doc("how long each part took, in seconds: `plan`, `execute`, `split`, `total`")
    ]
    operations: Annotated[
        dict[str, Json] | None, Doc("only with drains: by broker, how far its drain is, as `DrainView` has it")
    ] = None
    shadow: Annotated[
        Json | None,
        Doc(
            "only with `shadow.strategies`: `cycle`, the one they planned along with, and `strategies`: by name "
            "`strategy`, `moves`, `disagreement` (a ratio of the moves), `agreement`, `regret` (a difference of "
            "max/mean), `plan_hash`"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class MoveRecord(OtherRecord):
    """A move that ended."""

    kind: Annotated[Literal["move"], Doc("what it is about")]
    bundle: Annotated[str, Doc("the bundle")]
    source: Annotated[str, Doc("the broker that owned it")]
    destination: Annotated[str, Doc(_DESTINATION)]
    landed_on: Annotated[str, Doc("the broker that owns it now; empty: none, or not known")]
    outcome: Annotated[
        str,
        Doc(
            "`done`, `landed_elsewhere`, `released` (no broker owns it), `unknown` or `refused` (nothing moved)",
            grows=OUTCOMES,
        ),
    ]
    code: Annotated[str, Doc("code of why it is not `done`; empty: it is", grows=CODE_OR_EMPTY)]
    error: Annotated[str, Doc("what the broker or the store answered; empty: no error")]
    started_ms: Annotated[int, Doc("when it was begun")]
    landed_ms: Annotated[int, Doc("when its new owner was seen; 0: none was")]
    seconds: Annotated[float, Doc("how long it took, with the wait for its turn")]
    hops: Annotated[list[str], Doc("the brokers that the request to unload it went through")]
    topic: Annotated[str, Doc("the topic whose lookup lets the destination take the bundle; empty: none is known")]
    epoch: Annotated[int, Doc(_EPOCH)]
    intent: Annotated[str, Doc("id of its intent, which a new leader settles")]
    cycle: Annotated[str, Doc(_CAUSE)]
    predicted: Annotated[
        dict[str, float],
        Doc(
            "scores of both brokers by the plan, ratios: `source_before`, `source_after`, `target_before` and "
            "`target_after`; empty: not predicted"
        ),
    ]
    effect: Annotated[str | None, Doc("only where it is known: `helped`, `no_benefit` or `worse`", grows=EFFECTS)] = (
        None
    )
    predicted_gain: Annotated[float | None, Doc("only with `effect`: its `predicted`")] = None
    realised_gain: Annotated[float | None, Doc("only with `effect`: its `realised`")] = None


@dataclass(frozen=True, kw_only=True)
class SplitRecord(OtherRecord):
    """A split that ended."""

    kind: Annotated[Literal["split"], Doc("what it is about")]
    bundle: Annotated[str, Doc("the bundle")]
    broker: Annotated[str, Doc("the broker that owned it")]
    rule: Annotated[str, Doc("the rule that chose it")]
    outcome: Annotated[str, Doc("`done`, `unknown` or `refused` (nothing was done)", grows=SPLIT_OUTCOMES)]
    code: Annotated[str, Doc("code of why it is not `done`; empty: it is", grows=CODE_OR_EMPTY)]
    error: Annotated[str, Doc("what the broker or the store answered; empty: no error")]
    positions: Annotated[list[int], Doc("hashes at which it was divided")]
    children: Annotated[list[str], Doc("the bundles that are there instead; empty: not `done`")]
    started_ms: Annotated[int, Doc("when it was begun")]
    seconds: Annotated[float, Doc("how long it took")]
    epoch: Annotated[int, Doc(_EPOCH)]
    intent: Annotated[str, Doc("id of its intent, which a new leader settles")]
    cycle: Annotated[str, Doc(_CAUSE)]


@dataclass(frozen=True, kw_only=True)
class FindingRecord(OtherRecord):
    """Findings of one code of the ownership channel that appeared or are gone."""

    kind: Annotated[Literal["finding"], Doc("what it is about")]
    event: Annotated[str, Doc("`appeared` or `gone`", grows=("appeared", "gone"))]
    code: Annotated[str, Doc("code of the findings, which this record counts together", grows=(*FindingCode, *Code))]
    count: Annotated[int, Doc("how many findings it is about")]
    bundles: Annotated[list[str], Doc("the first bundles they are about")]
    brokers: Annotated[list[str], Doc("the brokers they are about")]
    since_ms: Annotated[int, Doc("since when the oldest of them is known")]
    remedy: Annotated[str, Doc("what to do; empty: nothing, it is gone")]


@dataclass(frozen=True, kw_only=True)
class RequestRecord(OtherRecord):
    """What a person asked for."""

    kind: Annotated[Literal["request"], Doc("what it is about")]
    what: Annotated[
        str, Doc("what was asked for, in words; of a takeover and its end `takeover`, `handback` or `deadman`")
    ]
    reason: Annotated[str, Doc("why, in the words of who asked")]
    by: Annotated[str, Doc("who asked")]
    group: Annotated[str | None, Doc("only of a quota group: its name")] = None
    before: Annotated[Json | None, Doc(f"only of a quota group: before, {_GROUP_FORM}")] = None
    after: Annotated[Json | None, Doc(f"only of a quota group: since, {_GROUP_FORM}")] = None


@dataclass(frozen=True, kw_only=True)
class AuditRecord(OtherRecord):
    """A request to the API that changes something, and how it was answered."""

    kind: Annotated[Literal["audit"], Doc("what it is about")]
    by: Annotated[str, Doc("the authenticated name; on the unix socket the name given; empty: no valid credentials")]
    role: Annotated[str, Doc("role of the credentials; empty: no valid credentials")]
    address: Annotated[str, Doc("IP address of the caller, or `unix socket`")]
    what: Annotated[str, Doc("method and path of the request")]
    reason: Annotated[str, Doc("why, in the words of who asked; empty: the request was refused before it was read")]
    status: Annotated[int, Doc("HTTP status of the answer")]
    attempts: Annotated[
        int | None,
        Doc("only where it was refused before it was read: how many requests like it since the record before"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EffectRecord(OtherRecord):
    """What the moves from one broker to another did."""

    kind: Annotated[Literal["effect"], Doc("what it is about")]
    source: Annotated[str, Doc("the broker that gave the bundles")]
    destination: Annotated[str, Doc("the broker that took them")]
    bundles: Annotated[list[str], Doc("the bundles that were moved")]
    begun_ms: Annotated[int, Doc("when the first of the moves was planned")]
    predicted: Annotated[float, Doc("how much the peak of the two brokers was to go down, a ratio of capacity")]
    realised: Annotated[float, Doc("how much it went down, a ratio of capacity; negative: up")]
    outcome: Annotated[str, Doc("`helped`, `no_benefit` or `worse`", grows=EFFECTS)]


@dataclass(frozen=True, kw_only=True)
class ExternalMoveRecord(OtherRecord):
    """A move that was not ours."""

    kind: Annotated[Literal["external_move"], Doc("what it is about")]
    bundle: Annotated[str, Doc("the bundle")]
    source: Annotated[str, Doc("the broker that owned it")]
    destination: Annotated[str, Doc("the broker that owns it now")]
    undone: Annotated[bool, Doc("whether it took a move of Bundlekeel back")]


@dataclass(frozen=True, kw_only=True)
class AdoptionRecord(OtherRecord):
    """A decision about thresholds."""

    kind: Annotated[Literal["adoption"], Doc("what it is about")]
    what: Annotated[str, Doc("`recommended`, `refused`, `adopted`, `kept` or `reverted`", grows=_ADOPTIONS)]
    code: Annotated[
        str, Doc("`Thresholds` and that word", grows=[f"Thresholds{word.capitalize()}" for word in _ADOPTIONS])
    ]
    version: Annotated[str, Doc("digest of the thresholds")]
    reverted: Annotated[bool, Doc("whether they were taken back")]
    codes: Annotated[list[CodeName], Doc("codes of what speaks against them")]
    by: Annotated[str, Doc("who decided: a person, or Bundlekeel itself")]
    reason: Annotated[str, Doc("why, in the words of who asked; empty: nobody asked")]


@dataclass(frozen=True, kw_only=True)
class QuotaRecord(OtherRecord):
    """What the quotas wrote, or could not."""

    kind: Annotated[Literal["quota"], Doc("what it is about")]
    what: Annotated[
        str,
        Doc(
            "`rates` or `resource_groups` (these were written), or `problems` (others than before)",
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
            "not of `problems`: the first writes that were done. Of `rates`: `topic`, `side` (`publish` or "
            f"`dispatch`), `group`, `before` and `rate` {_RATE}, `restores` (whether it was given back). Of "
            "`resource_groups`: `namespace`, `before` and `group` (names), or `group`, `before` and `limits` (a second "
            "and broker). null is none"
        ),
    ] = None
    errors: Annotated[
        list[Json] | None, Doc("not of `problems`: the first writes that failed, in the same form, each with `error`")
    ] = None
    problems: Annotated[
        list[str] | None, Doc("only of `problems`: what is wrong, as sentences; empty: nothing any more")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SettingsRecord(OtherRecord):
    """The settings file was read anew."""

    kind: Annotated[Literal["settings"], Doc("what it is about")]
    outcome: Annotated[
        str,
        Doc("`applied`, `unchanged` or `refused` (what ran before goes on)", grows=("applied", "unchanged", "refused")),
    ]
    applied: Annotated[list[str] | None, Doc("not where refused: keys that come into force with the next cycle")] = None
    restart_needed: Annotated[list[str] | None, Doc("not where refused: keys that need a restart")] = None
    problems: Annotated[list[str] | None, Doc("only where refused: what is wrong, line by line")] = None


class JournalRecord(RootModel[Any], defer_build=True):
    """A line of the journal: by its `kind` one of these, of a kind that is not among them the last."""

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
