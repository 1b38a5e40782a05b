"""Records of the journal: their kinds, and what each field of a kind holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from bundlekeel.daemon.answers.doc import By, Doc, Reason, Sentence, WallMs

JournalKind = Literal[
    "cycle", "move", "split", "finding", "request", "audit", "effect", "external_move", "adoption", "quota", "settings"
]

_EPOCH = "number of the leader's term that began it; -1: not known"
_CAUSE = "number of the cycle that began it, as a text, or the id of the task"
_DESTINATION = "the broker it was sent to"
_RATE = "(`messages` in msg/s, `bytes` in bytes/s; -1: no limit)"
_GROUP_FORM = "`origin`, `members` and `limits` (a second, over all brokers; null: no limit); null: it was not there"
# Beside `kind`, `wall_ms` and `sentence`, which every record has.
FIELDS: Final[Mapping[JournalKind, Mapping[str, str]]] = {
    "cycle": {
        "cycle": "number of the cycle",
        "epoch": "number of the leader's term; null: this sidecar did not lead",
        "code": "code of the verdict",
        "acted": "whether moves were begun",
        "obstacle": "code of why nothing was carried out; null: nothing prevented it",
        "plan": "hash of the plan; null: no plan could be made",
        "digest": "digest of the picture of the cluster that was planned on; null: no plan could be made",
        "measured_seconds": "the longest time between two readings of a broker's counters; null: from a report",
        "planned": "how many moves were planned",
        "refused": "how many bundles were refused, by code",
        "outcomes": "how many moves ended, by outcome",
        "planned_splits": "how many splits were planned",
        "splits": "how many splits ended, by outcome",
        "seconds": "how long each part took, in seconds: `plan`, `execute`, `split`, `total`",
        "operations": "only with drains: by broker, how far its drain is, as `DrainView` has it",
        "shadow": "only with `shadow.strategies`: `cycle`, the one they planned along with, and `strategies`: by name "
        "`strategy`, `moves`, `disagreement` (a ratio of the moves), `agreement`, `regret` (a difference of max/mean), "
        "`plan_hash`",
    },
    "move": {
        "bundle": "the bundle",
        "source": "the broker that owned it",
        "destination": _DESTINATION,
        "landed_on": "the broker that owns it now; empty: none, or not known",
        "outcome": "`done`, `landed_elsewhere`, `released` (no broker owns it), `unknown` or `refused` (nothing moved)",
        "code": "code of why it is not `done`; empty: it is",
        "error": "what the broker or the store answered; empty: no error",
        "started_ms": "when it was begun",
        "landed_ms": "when its new owner was seen; 0: none was",
        "seconds": "how long it took, with the wait for its turn",
        "hops": "the brokers that the request to unload it went through",
        "topic": "the topic whose lookup lets the destination take the bundle; empty: none is known",
        "epoch": _EPOCH,
        "intent": "id of its intent, which a new leader settles",
        "cycle": _CAUSE,
        "predicted": "scores of both brokers by the plan, ratios: `source_before`, `source_after`, `target_before` and "
        "`target_after`; empty: not predicted",
        "effect": "only where it is known: `helped`, `no_benefit` or `worse`",
        "predicted_gain": "only with `effect`: its `predicted`",
        "realised_gain": "only with `effect`: its `realised`",
    },
    "split": {
        "bundle": "the bundle",
        "broker": "the broker that owned it",
        "rule": "the rule that chose it",
        "outcome": "`done`, `unknown` or `refused` (nothing was done)",
        "code": "code of why it is not `done`; empty: it is",
        "error": "what the broker or the store answered; empty: no error",
        "positions": "hashes at which it was divided",
        "children": "the bundles that are there instead; empty: not `done`",
        "started_ms": "when it was begun",
        "seconds": "how long it took",
        "epoch": _EPOCH,
        "intent": "id of its intent, which a new leader settles",
        "cycle": _CAUSE,
    },
    "finding": {
        "event": "`appeared` or `gone`",
        "code": "code of the findings, which this record counts together",
        "count": "how many findings it is about",
        "bundles": "the first bundles they are about",
        "brokers": "the brokers they are about",
        "since_ms": "since when the oldest of them is known",
        "remedy": "what to do; empty: nothing, it is gone",
    },
    "request": {
        "what": "what was asked for, in words; of a takeover and its end `takeover`, `handback` or `deadman`",
        "reason": "why, in the words of who asked",
        "by": "who asked",
        "group": "only of a quota group: its name",
        "before": f"only of a quota group: before, {_GROUP_FORM}",
        "after": f"only of a quota group: since, {_GROUP_FORM}",
    },
    "audit": {
        "by": "the authenticated name; on the unix socket the name given; empty: no valid credentials",
        "role": "role of the credentials; empty: no valid credentials",
        "address": "IP address of the caller, or `unix socket`",
        "what": "method and path of the request",
        "reason": "why, in the words of who asked; empty: the request was refused before it was read",
        "status": "HTTP status of the answer",
        "attempts": "only where it was refused before it was read: how many requests like it since the record before",
    },
    "effect": {
        "source": "the broker that gave the bundles",
        "destination": "the broker that took them",
        "bundles": "the bundles that were moved",
        "begun_ms": "when the first of the moves was planned",
        "predicted": "how much the peak of the two brokers was to go down, a ratio of capacity",
        "realised": "how much it went down, a ratio of capacity; negative: up",
        "outcome": "`helped`, `no_benefit` or `worse`",
    },
    "external_move": {
        "bundle": "the bundle",
        "source": "the broker that owned it",
        "destination": "the broker that owns it now",
        "undone": "whether it took a move of ours back",
    },
    "adoption": {
        "what": "`recommended`, `refused`, `adopted`, `kept` or `reverted`",
        "code": "`Thresholds` and that word",
        "version": "digest of the thresholds",
        "reverted": "whether they were taken back",
        "codes": "codes of what speaks against them",
        "by": "who decided: a person, or Bundlekeel itself",
        "reason": "why, in the words of who asked; empty: nobody asked",
    },
    "quota": {
        "what": "`rates` or `resource_groups` (these were written), or `problems` (others than before)",
        "code": "`RatesWritten`, `ResourceGroupsWritten` or `QuotaProblems`",
        "changes": "not of `problems`: the first writes that were done. Of `rates`: `topic`, `side` (`publish` or "
        f"`dispatch`), `group`, `before` and `rate` {_RATE}, `restores` (whether it was given back). Of "
        "`resource_groups`: `namespace`, `before` and `group` (names), or `group`, `before` and `limits` (a second and "
        "broker). null is none",
        "errors": "not of `problems`: the first writes that failed, in the same form, each with `error`",
        "problems": "only of `problems`: what is wrong, as sentences; empty: nothing any more",
    },
    "settings": {
        "outcome": "`applied`, `unchanged` or `refused` (what ran before goes on)",
        "applied": "not where refused: keys that come into force with the next cycle",
        "restart_needed": "not where refused: keys that need a restart",
        "problems": "only where refused: what is wrong, line by line",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord:
    """A line of the journal. Each kind has some of these fields, and further ones of its own: docs/reference/api.md has
    all."""

    # As no `Answer`, also inside of one.
    __pydantic_config__: ClassVar = {"json_schema_serialization_defaults_required": False}

    kind: Annotated[str, Doc("what it is about", grows=get_args(JournalKind))]
    wall_ms: WallMs
    sentence: Sentence = ""
    reason: Reason = ""
    by: By = ""
    code: Annotated[str | None, Doc("a code of docs/reference/codes.md")] = None
    bundle: Annotated[str, Doc("of a move, split or external move")] = ""
    source: Annotated[str, Doc("of a move, external move or effect: the broker that gave")] = ""
    destination: Annotated[str, Doc("of a move, external move or effect: the broker that takes")] = ""
    landed_on: Annotated[str, Doc("of a move: the broker it came to")] = ""
    outcome: Annotated[str, Doc("of a move, split or effect: how it ended; of settings: what became of the file")] = ""
    started_ms: Annotated[int | None, Doc("of a move or split: when it began")] = None
    planned: Annotated[int, Doc("of a cycle: how many moves it planned")] = 0
    remedy: Annotated[str, Doc("of a finding: how to fix it")] = ""
    effect: Annotated[str, Doc("of a move: helped, no_benefit or worse, once judged")] = ""
    predicted: Annotated[Any, Doc("what was predicted: of a move by figure, of an effect the gain")] = None
    realised: Annotated[float | None, Doc("of an effect: the gain, a ratio")] = None
    predicted_gain: Annotated[float | None, Doc("of a move, once judged: a ratio")] = None
    realised_gain: Annotated[float | None, Doc("of a move, once judged: a ratio")] = None
