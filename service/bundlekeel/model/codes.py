"""Every code of a verdict, a refusal or a decoding fault, with its explanation.

The word of a code is used in plans, API responses and metric labels, and has a row in docs/reference/codes.md. Pulsar's
own reasons come first, then Bundlekeel's in the same spelling.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final, Literal, Self, get_args

# Results of a move, and its effects on the higher score of its two brokers.
OutcomeWord = Literal["done", "landed_elsewhere", "released", "unknown", "refused"]
OUTCOMES: Final[tuple[str, ...]] = get_args(OutcomeWord)
EFFECTS: Final = ("helped", "no_benefit", "worse")


class ExplainedCode(StrEnum):
    """A code: the word of a reason, with its explanation."""

    explanation: str

    def __new__(cls, word: str, explanation: str = "") -> Self:
        """Create a member. `explanation`: "" only if a member is looked up by its word."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.explanation = explanation
        return member


class Code(ExplainedCode):
    """Why something was decided or refused. Words of Pulsar keep its spelling (`UnloadDecision.Reason`, PIP-192)."""

    # verdicts, in Pulsar's words
    OVERLOADED = (
        "Overloaded",
        "the broker's load is above its threshold or far above that of others; bundles should leave",
    )
    UNDERLOADED = (
        "Underloaded",
        "the broker's load is below its threshold or far below that of others; bundles should come",
    )
    BALANCED = "Balanced", "no broker differs enough from the others to be worth a move"
    HIT_COUNT = (
        "HitCount",
        "the imbalance has cost less so far than the moves that would end it, or earlier imbalances ended "
        "without moves",
    )
    COOL_DOWN = "CoolDown", "the bundle moved recently and is not moved again before its cool-down ends"
    NO_LOAD_DATA = "NoLoadData", "no broker has reported its load yet"
    OUT_DATED_DATA = "OutDatedData", "the broker's load is older than the limit"
    NO_BUNDLES = "NoBundles", "there is no bundle that could be moved"
    NO_BROKERS = "NoBrokers", "there is no live broker"
    REPAIR = "Repair", "bundles move back to the primary brokers of their isolation policies (`placement.repair`)"
    ADMIN = "Admin", "an operator requested it"
    UNKNOWN = "Unknown", "the outcome could not be determined; ownership is read again, the request is not repeated"
    # verdicts that only Bundlekeel has
    SOLE_BROKER = "SoleBroker", "only one broker is alive: there is nowhere to move to"
    ZERO_AVERAGE = "ZeroAverage", "the average load is zero: reports may lack resource limits (see `bundlekeel doctor`)"
    WRONG_LIMIT = (
        "WrongLimit",
        "the broker uses over 110 % of a resource's limit, from its load report or `capacity`; this limit is ignored",
    )
    BELOW_MINIMUM = "BelowMinimum", "the moves would relieve too little load to justify that clients reconnect"
    UNSETTLED = (
        "Unsettled",
        "the load of a broker is not known yet: its reports do not show earlier moves, or its CPU use is not known",
    )
    BASE_LOAD = (
        "BaseLoad",
        "the broker uses more CPU than others on something that no bundle causes: moving bundles does not help",
    )
    UNSPLITTABLE = "Unsplittable", "one bundle carries more than may be moved; splitting it would help"
    FROZEN_REPORTS = "FrozenReports", "the brokers run with loadBalancerEnabled=false: their reports never change"
    UNSUPPORTED_LOAD_MANAGER = (
        "UnsupportedLoadManager",
        "Bundlekeel does not move bundles under the brokers' load manager; it only observes",
    )
    MIXED_LOAD_MANAGERS = "MixedLoadManagers", "brokers run different load managers, and `force_mixed` is false"
    BROKERS_SHED_THEMSELVES = "BrokersShedThemselves", "the brokers shed load themselves; run `bundlekeel takeover`"
    BROKER_SETTINGS_UNKNOWN = (
        "BrokerSettingsUnknown",
        "the settings of some brokers cannot be read, so it is not known whether they shed: see `bundlekeel doctor`",
    )
    CHANNEL_NOT_FOLLOWED = "ChannelNotFollowed", "the owners of bundles are unknown: see `bundlekeel channel`"
    LOAD_AWAITED = "LoadAwaited", "the first load reports of some brokers have not arrived yet"
    SETTLING_AFTER_OUTAGE = "SettlingAfterOutage", "after an outage nothing moves until all brokers are back and stable"
    PUT_ASIDE = (
        "PutAside",
        "the failsafe job turned the brokers' own shedding on again, so Bundlekeel stopped; "
        "`bundlekeel takeover` with `--again` restarts it",
    )
    SECOND_BALANCER = (
        "SecondBalancer",
        "another tool or balancer undoes Bundlekeel's moves: see `bundlekeel journal --kind external_move`",
    )
    PAUSED = (
        "Paused",
        "an operator paused all moves or those of this scope; `bundlekeel resume` (with `--scope`) ends the pause",
    )
    NOT_LEADER = "NotLeader", "another sidecar leads"
    STORE_UNAVAILABLE = "StoreUnavailable", "the metadata store does not answer"
    STORE_MIGRATING = (
        "StoreMigrating",
        "the brokers move their metadata to another store: the present store may be stale, so nothing is changed",
    )
    STORE_MIGRATED = (
        "StoreMigrated",
        "the brokers moved their metadata to another store: the previous store is stale and no longer used",
    )
    OBSERVE_ONLY = "ObserveOnly", "mode is `observe`: nothing is planned for execution"
    RECOMMEND_ONLY = "RecommendOnly", "mode is `recommend`: the plan is shown, but not executed"
    INCOMPLETE_PICTURE = "IncompletePicture", "too many brokers have no usable report"
    INTERNAL_ERROR = "InternalError", "the cycle failed unexpectedly; the log has the traceback"
    # reasons why a bundle or broker is refused
    SAME_BROKER = "SameBroker", "the target is the broker that owns the bundle already"
    NO_LEGAL_TARGET = "NoLegalTarget", "no other broker may take the bundle"
    NO_GAIN = "NoGain", "the move would not lower the load of the most loaded broker"
    TOO_BIG = "TooBig", "the bundle carries more than the difference between the two brokers"
    IDLE = "Idle", "the bundle carries no traffic: moving it changes no load"
    SYSTEM_BUNDLE = "SystemBundle", "heartbeat, SLA and pulsar/system bundles never move"
    SOLE_BUNDLE = "SoleBundle", "the bundle is the only one of its broker"
    IN_TRANSIT = "InTransit", "the bundle is being moved already"
    FROZEN_INTENT = (
        "FrozenIntent",
        "an earlier leader left a move of this bundle unfinished; the bundle stays until its owner is known",
    )
    SEGMENT_ABOVE_LIMIT = (
        "SegmentAboveLimit",
        "a segment of a scalable topic in the bundle is above Pulsar's split thresholds: Pulsar is about to split it",
    )
    SEGMENTS_CHANGED = (
        "SegmentsChanged",
        "Pulsar split or merged a segment of a scalable topic in the bundle less than a minute ago",
    )
    SERVED_TWICE = (
        "ServedTwice",
        "two brokers serve topics of the bundle at the same time, so messages can be lost; it does not move",
    )
    EXCLUDED = "Excluded", "the settings or an operator exclude the bundle, or its broker, from moves"
    NOT_TAKEN_OVER = (
        "NotTakenOver",
        "Bundlekeel has taken over only some namespaces, not the bundle's; `takeover` with `--namespace` adds it",
    )
    V1_NAMESPACE = (
        "V1Namespace",
        "the bundle's namespace has a v1 name (property/cluster/namespace): its bundles are neither moved nor split",
    )
    PINNED = "Pinned", "an operator pinned the bundle to its broker"
    TARGET_OVERLOADED = "TargetOverloaded", "the target would be above the overload threshold"
    HAS_POLICY = (
        "HasPolicy",
        "the bundle's namespace has an isolation policy or anti-affinity group, and `bundles_with_policies` is false",
    )
    POLICY_FORBIDS = "PolicyForbids", "isolation policies, anti-affinity groups or domains forbid the move"
    POLICY_WITHOUT_BROKERS = (
        "PolicyWithoutBrokers",
        "the isolation policy of the bundle's namespace matches no broker: its patterns must match host "
        "names, without ports",
    )
    POLICY_UNREADABLE = (
        "PolicyUnreadable",
        "a policy that perhaps applies to the bundle could not be read; the bundle stays",
    )
    ANTI_AFFINITY = (
        "AntiAffinity",
        "another bundle of the same anti-affinity group moves first; this bundle is planned again afterwards",
    )
    BUDGET_PER_CYCLE = "BudgetPerCycle", "this cycle's budget of moves is used up"
    BUDGET_PER_SOURCE = "BudgetPerSource", "the source's budget of moves for this cycle is used up"
    BUDGET_PER_TARGET = "BudgetPerTarget", "the target's budget of moves for this cycle is used up"
    BUDGET_PER_NAMESPACE = "BudgetPerNamespace", "the namespace's budget of moves for this cycle is used up"
    BUDGET_PER_TENANT = "BudgetPerTenant", "the tenant's budget of moves for this cycle is used up"
    BUDGET_PER_HOUR = "BudgetPerHour", "the budget of moves for an hour is used up"
    BUDGET_OF_TRAFFIC = "BudgetOfTraffic", "the part of the source's traffic that may move in one cycle is used up"
    ADAPTIVE_RATE = "AdaptiveRate", "fewer moves for now: latency or errors of clients rose after the last moves"
    NO_RETURN = "NoReturn", "the bundle left that broker recently and does not go straight back"
    CORDONED = "Cordoned", "the broker is cordoned or being drained: it takes no bundle"
    QUARANTINED = "Quarantined", "moves from that source to that target did not help recently"
    ROLLOUT_HOLD = "RolloutHold", "brokers are restarting: until they are ready, bundles leave only overloaded brokers"
    BLAST_RADIUS = "BlastRadius", "too many brokers started, stopped or restarted at the same time"
    OUTSIDE_WINDOW = "OutsideWindow", "no maintenance window is open"
    BUDGET_OF_DRAIN = "BudgetOfDrain", "this cycle's budget of moves for drains is used up"
    BUDGET_OF_REPAIR = "BudgetOfRepair", "this cycle's budget of moves back to primary brokers is used up"
    STOPPED = "Stopped", "an operator stopped the task, drain or warm-up before this move was started"
    NOT_REVIEWED = "NotReviewed", "a second operator must approve the change first (`review: required` in the settings)"
    # moves that did not start, or did not end at the requested broker
    OWNER_CHANGED = (
        "OwnerChanged",
        "the bundle's owner changed after the plan was made; the next cycle plans the bundle again",
    )
    UNOWNED = "Unowned", "no broker owns the bundle: the next lookup assigns it, there is nothing to unload"
    STOPPING = "Stopping", "the sidecar is stopping; the move was not started"
    NOT_PERMITTED = "NotPermitted", "Bundlekeel is not allowed to change anything now"
    ADMIN_REFUSED = "AdminRefused", "the broker refused the unload"
    ADMIN_UNAUTHORIZED = "AdminUnauthorized", "the broker did not accept Bundlekeel's credentials"
    ADMIN_UNREACHABLE = "AdminUnreachable", "the broker could not be reached; the request was not sent"
    NO_ANSWER = (
        "NoAnswer",
        "the broker did not confirm the unload or split, and the bundle's present state does not show if it happened",
    )
    LANDED_ELSEWHERE = "LandedElsewhere", "another broker took the bundle first"
    RELEASED = "Released", "the bundle has no topics: its broker released it, and no broker owns it until a client asks"
    STILL_AT_SOURCE = "StillAtSource", "the broker that the bundle should leave owns it again"
    NOBODY_OWNS = "NobodyOwns", "no broker took the bundle in time; the next lookup assigns it"
    STILL_IN_FLIGHT = "StillInFlight", "the transfer has not ended at the deadline; the brokers' leader ends it later"
    ALIKE_BROKERS = (
        "AlikeBrokers",
        "the id of the bundle's broker ends with the target's id, and brokers confuse such ids",
    )
    LEFT_BY_EARLIER_LEADER = (
        "LeftByEarlierLeader",
        "an earlier leader left the move unfinished; the bundle's owner showed the outcome",
    )
    # why a step of the assignment pipeline drops a broker
    NOT_IN_POLICY = "NotInPolicy", "the isolation policy of the namespace does not name the broker"
    SECONDARY_NOT_NEEDED = (
        "SecondaryNotNeeded",
        "the isolation policy has enough primary brokers without this secondary broker",
    )
    PRIMARY_OF_OTHERS = (
        "PrimaryOfOthers",
        "the broker is a primary broker of an isolation policy, and the namespace has no isolation policy",
    )
    PERSISTENT_DISABLED = "PersistentDisabled", "the broker does not serve persistent topics"
    NON_PERSISTENT_DISABLED = "NonPersistentDisabled", "the broker does not serve non-persistent topics"
    MAX_TOPICS = (
        "MaxTopics",
        "the broker has more topics than `max_topics_per_broker` (with the extensible load manager: as many or more)",
    )
    FULLER_DOMAIN = (
        "FullerDomain",
        "another failure domain has fewer namespaces (extensible load manager: bundles) of the anti-affinity group",
    )
    MORE_OF_GROUP = (
        "MoreOfGroup",
        "another broker has fewer namespaces (extensible load manager: bundles) of the anti-affinity group",
    )
    MORE_OF_NAMESPACE = (
        "MoreOfNamespace",
        "another broker has fewer bundles of the namespace, and Pulsar spreads them evenly",
    )
    OTHER_LOAD_MANAGER = (
        "OtherLoadManager",
        "the broker runs another load manager class than the brokers' settings name",
    )
    OLDER_VERSION = "OlderVersion", "another broker runs a later version (preferLaterVersions)"
    # reasons why a bundle is not split
    SPLITTING = "Splitting", "the bundle is being split; its children may move afterwards"
    SPLIT_HIT_COUNT = "SplitHitCount", "the bundle is above a split limit, but not often enough in a row yet"
    SINGLE_TOPIC = "SingleTopic", "the bundle has fewer than two topics, and a split separates topics"
    SAME_HASH = "SameHash", "all topics of the bundle have the same hash, so no boundary separates them; add partitions"
    DOMINANT_TOPIC = "DominantTopic", "one topic carries nearly all of the bundle's load; add partitions to it"
    NARROW_RANGE = "NarrowRange", "the bundle's hash range is too narrow for another boundary"
    NAMESPACE_MAXIMUM = "NamespaceMaximum", "the namespace has the maximum number of bundles"
    BUDGET_OF_SPLITS = "BudgetOfSplits", "this cycle's budget of splits is used up"
    QUIET_HOURS = "QuietHours", "splits are limited to quiet hours, and the bundle is not far above its limit"
    BROKERS_SPLIT_THEMSELVES = (
        "BrokersSplitThemselves",
        "the brokers split bundles above this limit themselves (loadBalancerAutoBundleSplitEnabled)",
    )
    SPLIT_FAILED = "SplitFailed", "the last split of the bundle failed; it is tried again after the cool-down"
    NOTHING_SPLIT = "NothingSplit", "the broker accepted the request, but did not split the bundle"
    NO_BOUNDARY = "NoBoundary", "the chosen split algorithm finds no boundary in the bundle"
    NOT_SUPPORTED = "NotSupported", "the broker does not support that split (release, settings or load manager)"
    NO_SUCH_BUNDLE = "NoSuchBundle", "the namespace does not have this bundle any more"
    SPLIT_UNFINISHED = (
        "SplitUnfinished",
        "the bundle is split, but the ownership channel does not show an owner of each child yet",
    )
    # reasons why calibrated thresholds are not used
    OUT_OF_RANGE = "OutOfRange", "a proposed value is outside of the range that may be calibrated"
    STEP_TOO_LARGE = "StepTooLarge", "a proposed value differs from the present one by more than one night may change"
    TOO_OLD = "TooOld", "the thresholds, or the history they are based on, are older than allowed"
    TOO_LITTLE_HISTORY = "TooLittleHistory", "the history has fewer usable days than required"
    POOR_COVERAGE = "PoorCoverage", "too much time is missing from the history"
    OTHER_STRATEGY = "OtherStrategy", "at least one of the thresholds is for a strategy that is not in use"
    OTHER_VALUES = "OtherValues", "the values in effect changed since the proposal was compared with them"
    OTHER_CLUSTER = "OtherCluster", "the history that the proposal is based on was recorded by another cluster"
    NOT_BETTER = "NotBetter", "on held-out days the proposed values were not significantly better, or were worse"
    NOTHING_NEW = "NothingNew", "the proposed values are in force already"
    REVERTED = "Reverted", "these thresholds were adopted and reverted before; they are not adopted again"
    ON_PROBATION = (
        "OnProbation",
        "an adoption is on trial, or the last adoption or revert was not long ago",
    )
    IMPLAUSIBLE = "Implausible", "the document of thresholds contradicts itself or the clock"
    FUTURE_FORMAT = "FutureFormat", "a newer release of Bundlekeel wrote the document"
    UNKNOWN_PARAMETER = "UnknownParameter", "the document names a parameter that is not calibrated"
    # reasons why rates of topics in a quota group are not written, and faults of resource groups
    TOPIC_POLICIES_OFF = "TopicPoliciesOff", "topic policies are off (topicLevelPoliciesEnabled, systemTopicEnabled)"
    STRICTER_RATE_IN_FORCE = "StricterRateInForce", "the topic, namespace or broker has a stricter rate limit already"
    RELATIVE_DISPATCH_RATE = "RelativeDispatchRate", "the dispatch rate in force is relative to the publish rate"
    BUDGET_OF_RATES = (
        "BudgetOfRates",
        "this cycle wrote the maximum number of rate limits; this one follows in a later cycle",
    )
    RATE_NOT_REACHED = (
        "RateNotReached",
        "the cycle had no time left for this rate limit; it comes first in the next cycle",
    )
    RATE_NOT_READ = "RateNotRead", "the present rate limit of the topic has not been read"
    RATE_NOT_WRITTEN = "RateNotWritten", "a broker rejected the new rate limit, or did not respond; it is tried again"
    TOPIC_ABSENT = "TopicAbsent", "no broker serves the topic now; its rate limit does not change"
    QUOTAS_OFF = "QuotasOff", "the setting quotas.enforcer is off: quota groups are shown, but not enforced"
    USAGE_NOT_EXCHANGED = (
        "UsageNotExchanged",
        "`resourceUsageTransportClassName` is off: each broker alone allows the whole limit",
    )
    DISPATCH_NOT_ENFORCED = "DispatchNotEnforced", "Pulsar does not enforce the dispatch quotas of resource groups"
    DEAD_BROKER_COUNTED = (
        "DeadBrokerCounted",
        "until they restart, brokers count the usage of a broker that no longer exists",
    )
    STARVED_AFTER_MOVE = (
        "StarvedAfterMove",
        "Pulsar limited the resource group to 1 msg/s and 1 byte/s at a broker: its usage there was not known yet",
    )
    # reasons why loads from counters are not used
    COUNTERS_DISAGREE = "CountersDisagree", "the broker's report shows more traffic of some bundles than its counters"
    # records that could not be read, or only with corrections
    EMPTY_REPORT = "EmptyReport", "the record, such as a broker's load report, is empty"
    NOT_JSON = "NotJson", "the record is not JSON, is nested too deeply, or has numbers that are too large"
    REPORT_TOO_LARGE = "ReportTooLarge", "the record is larger than the limit, or has too many values"
    WRONG_TYPE = "WrongType", "a field of the record has the wrong type"
    NOT_A_NUMBER = "NotANumber", "a number in the report was NaN or infinite; it counts as zero"
    NEGATIVE_VALUE = "NegativeValue", "a number in the report was negative; it counts as zero"
    IMPUTED = "Imputed", "a field was missing or unusable and was filled in"
    IMPUTED_SCORE = "ImputedScore", "the broker has not published its load yet; its score is estimated from its traffic"
    STALE_SCORE = "StaleScore", "the load topics cannot be read at present; the last score of the broker is used"
    SEVERAL_TARGETS = "SeveralTargets", "Prometheus scrapes several brokers, or one broker twice, with the same labels"
    TOP_BUNDLES_ONLY = (
        "TopBundlesOnly",
        "the broker's statistics cannot be read; only its largest bundles, which it publishes, are known",
    )


EXPLANATIONS = {code: code.explanation for code in Code}


def explain(code: str) -> str:
    """Return the explanation of a code; "" if this release does not have the code."""
    return EXPLANATIONS[Code(code)] if code in EXPLANATIONS else ""


# Obstacles that stop all moves and can last: an operator or another balancer caused them, or brokers or the channel
# cannot be read.
LASTING = frozenset(
    {
        *(Code.OBSERVE_ONLY, Code.RECOMMEND_ONLY, Code.PAUSED, Code.PUT_ASIDE, Code.SECOND_BALANCER),
        *(Code.BROKER_SETTINGS_UNKNOWN, Code.CHANNEL_NOT_FOLLOWED, Code.STORE_MIGRATING, Code.STORE_MIGRATED),
        *(Code.MIXED_LOAD_MANAGERS, Code.UNSUPPORTED_LOAD_MANAGER, Code.FROZEN_REPORTS, Code.BROKERS_SHED_THEMSELVES),
    }
)

# Commands that end an operator's request.
END_OF_REQUEST: Final = {
    Code.PINNED: "end the pin: `bundlekeel unpin`",
    Code.CORDONED: "end the cordon or drain: `bundlekeel uncordon`",
}
# Field of the API for manual moves.
OVERRIDE: Final = "override_cool_down: true"
_COOLING = frozenset({Code.COOL_DOWN, Code.NO_RETURN, Code.UNSETTLED})


def reason_of(codes: Collection[str]) -> str:
    """Return the `code` of the HTTP 409 response to a refused request, from the codes of its refusals.

    If all are equal, it is that code, else `refused` (a word of `errors.REASONS`).
    """
    return next(iter(codes)) if len(set(codes)) == 1 else "refused"


def way_out(verb: str, codes: Collection[str], override: str = OVERRIDE) -> str:
    """Return the end of a message that refuses a manual move or split: how the operator can remove the obstacle.

    This is the command that ends a pin, cordon or drain, or else `override`, the option that ignores a recent move. It
    is "" if neither helps. `verb`: name of the request; `override` does not help a `split`.
    """
    remedy = next((END_OF_REQUEST[Code(code)] for code in codes if code in END_OF_REQUEST), "")
    if remedy and len(set(codes)) == 1:
        return f"; {remedy}; `bundlekeel operations` shows who requested it, and why"
    return f"; `{override}` ignores this obstacle" if codes and _COOLING.issuperset(codes) and verb != "split" else ""
