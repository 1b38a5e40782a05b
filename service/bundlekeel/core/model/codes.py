"""Every code that a verdict, a refusal or a decoding fault can carry: one table, three uses.

A member is the word in plans and API answers, the metric label, and a row of docs/reference/codes.md.
Pulsar's own reason words come first, then ours in the same spelling.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """A typed reason. Members keep Pulsar's spelling (`UnloadDecision.Reason`, PIP-192) where it has one."""

    # verdicts, Pulsar's words
    OVERLOADED = "Overloaded"
    UNDERLOADED = "Underloaded"
    BALANCED = "Balanced"
    HIT_COUNT = "HitCount"
    COOL_DOWN = "CoolDown"
    NO_LOAD_DATA = "NoLoadData"
    OUT_DATED_DATA = "OutDatedData"
    NO_BUNDLES = "NoBundles"
    NO_BROKERS = "NoBrokers"
    ADMIN = "Admin"
    UNKNOWN = "Unknown"
    # verdicts, ours
    SOLE_BROKER = "SoleBroker"
    ZERO_AVERAGE = "ZeroAverage"
    BELOW_MINIMUM = "BelowMinimum"
    UNSETTLED = "Unsettled"
    UNSPLITTABLE = "Unsplittable"
    FROZEN_REPORTS = "FrozenReports"
    UNSUPPORTED_LOAD_MANAGER = "UnsupportedLoadManager"
    MIXED_LOAD_MANAGERS = "MixedLoadManagers"
    BROKERS_SHED_THEMSELVES = "BrokersShedThemselves"
    CHANNEL_NOT_FOLLOWED = "ChannelNotFollowed"
    LOAD_AWAITED = "LoadAwaited"
    SETTLING_AFTER_OUTAGE = "SettlingAfterOutage"
    PUT_ASIDE = "PutAside"
    SECOND_BALANCER = "SecondBalancer"
    PAUSED = "Paused"
    NOT_LEADER = "NotLeader"
    STORE_UNAVAILABLE = "StoreUnavailable"
    OBSERVE_ONLY = "ObserveOnly"
    RECOMMEND_ONLY = "RecommendOnly"
    INCOMPLETE_PICTURE = "IncompletePicture"
    INTERNAL_ERROR = "InternalError"
    # refusals of a candidate
    SAME_BROKER = "SameBroker"
    NO_LEGAL_TARGET = "NoLegalTarget"
    NO_GAIN = "NoGain"
    TOO_BIG = "TooBig"
    IDLE = "Idle"
    SYSTEM_BUNDLE = "SystemBundle"
    SOLE_BUNDLE = "SoleBundle"
    IN_TRANSIT = "InTransit"
    FROZEN_INTENT = "FrozenIntent"
    EXCLUDED = "Excluded"
    PINNED = "Pinned"
    TARGET_OVERLOADED = "TargetOverloaded"
    HAS_POLICY = "HasPolicy"
    POLICY_FORBIDS = "PolicyForbids"
    POLICY_UNREADABLE = "PolicyUnreadable"
    ANTI_AFFINITY = "AntiAffinity"
    BUDGET_PER_CYCLE = "BudgetPerCycle"
    BUDGET_PER_SOURCE = "BudgetPerSource"
    BUDGET_PER_TARGET = "BudgetPerTarget"
    BUDGET_PER_NAMESPACE = "BudgetPerNamespace"
    BUDGET_PER_TENANT = "BudgetPerTenant"
    BUDGET_PER_HOUR = "BudgetPerHour"
    BUDGET_OF_TRAFFIC = "BudgetOfTraffic"
    ADAPTIVE_RATE = "AdaptiveRate"
    NO_RETURN = "NoReturn"
    CORDONED = "Cordoned"
    QUARANTINED = "Quarantined"
    ROLLOUT_HOLD = "RolloutHold"
    BLAST_RADIUS = "BlastRadius"
    OUTSIDE_WINDOW = "OutsideWindow"
    BUDGET_OF_DRAIN = "BudgetOfDrain"
    STOPPED = "Stopped"
    NOT_REVIEWED = "NotReviewed"
    # moves that were not begun, or did not end where they were asked to
    OWNER_CHANGED = "OwnerChanged"
    UNOWNED = "Unowned"
    STOPPING = "Stopping"
    NOT_PERMITTED = "NotPermitted"
    ADMIN_REFUSED = "AdminRefused"
    ADMIN_UNAUTHORIZED = "AdminUnauthorized"
    ADMIN_UNREACHABLE = "AdminUnreachable"
    NO_ANSWER = "NoAnswer"
    LANDED_ELSEWHERE = "LandedElsewhere"
    RELEASED = "Released"
    STILL_AT_SOURCE = "StillAtSource"
    NOBODY_OWNS = "NobodyOwns"
    STILL_IN_FLIGHT = "StillInFlight"
    ALIKE_BROKERS = "AlikeBrokers"
    LEFT_BY_EARLIER_LEADER = "LeftByEarlierLeader"
    # why a step of the assignment pipeline drops a broker
    NOT_IN_POLICY = "NotInPolicy"
    SECONDARY_NOT_NEEDED = "SecondaryNotNeeded"
    PRIMARY_OF_OTHERS = "PrimaryOfOthers"
    PERSISTENT_DISABLED = "PersistentDisabled"
    NON_PERSISTENT_DISABLED = "NonPersistentDisabled"
    MAX_TOPICS = "MaxTopics"
    FULLER_DOMAIN = "FullerDomain"
    MORE_OF_GROUP = "MoreOfGroup"
    MORE_OF_NAMESPACE = "MoreOfNamespace"
    OTHER_LOAD_MANAGER = "OtherLoadManager"
    OLDER_VERSION = "OlderVersion"
    # splits that are not made
    SPLITTING = "Splitting"
    SPLIT_HIT_COUNT = "SplitHitCount"
    SINGLE_TOPIC = "SingleTopic"
    SAME_HASH = "SameHash"
    DOMINANT_TOPIC = "DominantTopic"
    NARROW_RANGE = "NarrowRange"
    NAMESPACE_MAXIMUM = "NamespaceMaximum"
    BUDGET_OF_SPLITS = "BudgetOfSplits"
    QUIET_HOURS = "QuietHours"
    BROKERS_SPLIT_THEMSELVES = "BrokersSplitThemselves"
    SPLIT_FAILED = "SplitFailed"
    NOTHING_SPLIT = "NothingSplit"
    NO_BOUNDARY = "NoBoundary"
    NOT_SUPPORTED = "NotSupported"
    NO_SUCH_BUNDLE = "NoSuchBundle"
    SPLIT_UNFINISHED = "SplitUnfinished"
    # calibrated thresholds that do not come into force
    OUT_OF_RANGE = "OutOfRange"
    STEP_TOO_LARGE = "StepTooLarge"
    TOO_OLD = "TooOld"
    TOO_LITTLE_HISTORY = "TooLittleHistory"
    POOR_COVERAGE = "PoorCoverage"
    OTHER_STRATEGY = "OtherStrategy"
    OTHER_VALUES = "OtherValues"
    OTHER_CLUSTER = "OtherCluster"
    NOT_BETTER = "NotBetter"
    WORSE_UNBROKEN = "WorseUnbroken"
    NOTHING_NEW = "NothingNew"
    REVERTED = "Reverted"
    ON_PROBATION = "OnProbation"
    IMPLAUSIBLE = "Implausible"
    FUTURE_FORMAT = "FutureFormat"
    UNKNOWN_PARAMETER = "UnknownParameter"
    # rates of topics in a quota group that are not written, and what is wrong with resource groups
    TOPIC_POLICIES_OFF = "TopicPoliciesOff"
    STRICTER_RATE_IN_FORCE = "StricterRateInForce"
    RELATIVE_DISPATCH_RATE = "RelativeDispatchRate"
    BUDGET_OF_RATES = "BudgetOfRates"
    RATE_NOT_REACHED = "RateNotReached"
    RATE_NOT_READ = "RateNotRead"
    TOPIC_ABSENT = "TopicAbsent"
    QUOTAS_OFF = "QuotasOff"
    USAGE_NOT_EXCHANGED = "UsageNotExchanged"
    DISPATCH_NOT_ENFORCED = "DispatchNotEnforced"
    DEAD_BROKER_COUNTED = "DeadBrokerCounted"
    STARVED_AFTER_MOVE = "StarvedAfterMove"
    # records that could not be read as they stand
    EMPTY_REPORT = "EmptyReport"
    NOT_JSON = "NotJson"
    REPORT_TOO_LARGE = "ReportTooLarge"
    WRONG_TYPE = "WrongType"
    NOT_A_NUMBER = "NotANumber"
    NEGATIVE_VALUE = "NegativeValue"
    IMPUTED = "Imputed"
    IMPUTED_SCORE = "ImputedScore"
    STALE_SCORE = "StaleScore"
    TOP_BUNDLES_ONLY = "TopBundlesOnly"


EXPLANATIONS: dict[Code, str] = {
    Code.OVERLOADED: "the broker's load is above its threshold; bundles are to leave it",
    Code.UNDERLOADED: "the broker's load is below its threshold; bundles are to come to it",
    Code.BALANCED: "no broker differs enough from the others to be worth a move",
    Code.HIT_COUNT: "the difference is there, but has not been seen in enough fresh reports yet",
    Code.COOL_DOWN: "the bundle moved recently and is left alone until its cool-down is over",
    Code.NO_LOAD_DATA: "no broker has reported its load yet",
    Code.OUT_DATED_DATA: "the broker's report is older than the limit",
    Code.NO_BUNDLES: "there is no bundle that could be moved",
    Code.NO_BROKERS: "there is no live broker",
    Code.ADMIN: "a person asked for it",
    Code.UNKNOWN: "the outcome could not be determined; ownership is re-read, nothing is repeated",
    Code.SOLE_BROKER: "only one broker is alive: there is nowhere to move to",
    Code.ZERO_AVERAGE: "the average load is zero: brokers may report no resource limits (see `bundlekeel doctor`)",
    Code.BELOW_MINIMUM: "the difference is real but too small to be worth a client's reconnect",
    Code.UNSETTLED: "earlier moves are not yet visible in the reports of the brokers concerned",
    Code.UNSPLITTABLE: "one bundle carries more than may be moved; splitting it would help",
    Code.FROZEN_REPORTS: "the brokers run with loadBalancerEnabled=false: their reports never change",
    Code.UNSUPPORTED_LOAD_MANAGER: "the brokers run a load manager that Bundlekeel only observes",
    Code.MIXED_LOAD_MANAGERS: "brokers run different load managers: observed, not acted on without `force_mixed`",
    Code.BROKERS_SHED_THEMSELVES: "the brokers' own shedding is on; run `bundlekeel takeover` first",
    Code.CHANNEL_NOT_FOLLOWED: "the owners of bundles are unknown: see `bundlekeel channel`",
    Code.LOAD_AWAITED: "the first load reports of some brokers are awaited",
    Code.SETTLING_AFTER_OUTAGE: "after an outage nothing moves until all brokers are back and the registry is quiet",
    Code.PUT_ASIDE: "the failsafe job gave shedding back to the brokers; run `bundlekeel takeover` to act again",
    Code.SECOND_BALANCER: "another balancer keeps undoing our moves; find it (see `bundlekeel journal --kind foreign`)",
    Code.PAUSED: "a person paused the balancer; `bundlekeel resume` ends that",
    Code.NOT_LEADER: "another sidecar leads",
    Code.STORE_UNAVAILABLE: "the metadata store does not answer",
    Code.OBSERVE_ONLY: "mode is `observe`: nothing is planned for execution",
    Code.RECOMMEND_ONLY: "mode is `recommend`: the plan is shown, not carried out",
    Code.INCOMPLETE_PICTURE: "too many brokers have no usable report",
    Code.INTERNAL_ERROR: "the cycle failed unexpectedly; the log has the traceback",
    Code.SAME_BROKER: "the only target would be the broker that owns the bundle already",
    Code.NO_LEGAL_TARGET: "no other broker may take the bundle",
    Code.NO_GAIN: "the move would not make the most loaded broker better",
    Code.TOO_BIG: "the bundle carries more than the difference between the two brokers",
    Code.IDLE: "the bundle carries no traffic: moving it would help nobody",
    Code.SYSTEM_BUNDLE: "heartbeat, SLA and pulsar/system bundles never move",
    Code.SOLE_BUNDLE: "it is the only bundle of its broker",
    Code.IN_TRANSIT: "the bundle is being moved already",
    Code.FROZEN_INTENT: "an earlier leader left a move of this bundle open; it is settled first",
    Code.EXCLUDED: "settings or people exclude it",
    Code.PINNED: "a person pinned it to its broker",
    Code.TARGET_OVERLOADED: "the target would be above the overload threshold",
    Code.HAS_POLICY: "its namespace has an isolation policy or anti-affinity group, and the setting leaves those alone",
    Code.POLICY_FORBIDS: "isolation policies, anti-affinity or failure domains leave it no other broker",
    Code.POLICY_UNREADABLE: "a policy that may concern its namespace could not be read, so it stays where it is",
    Code.ANTI_AFFINITY: "another move of its anti-affinity group comes first; it is planned again on the next picture",
    Code.BUDGET_PER_CYCLE: "this cycle's budget of moves is used up",
    Code.BUDGET_PER_SOURCE: "the source's budget of moves for this cycle is used up",
    Code.BUDGET_PER_TARGET: "the target's budget of moves for this cycle is used up",
    Code.BUDGET_PER_NAMESPACE: "the namespace's budget of moves for this cycle is used up",
    Code.BUDGET_PER_TENANT: "the tenant's budget of moves for this cycle is used up",
    Code.BUDGET_PER_HOUR: "the budget of moves for an hour is used up",
    Code.BUDGET_OF_TRAFFIC: "the part of the source's traffic that may move in one cycle is used up",
    Code.ADAPTIVE_RATE: "fewer moves for now: latency or errors of the brokers' clients rose after the last ones",
    Code.NO_RETURN: "the bundle left that broker lately and does not go straight back",
    Code.CORDONED: "the broker is cordoned or being drained: it takes no bundle",
    Code.QUARANTINED: "moves from that source to that target did not help lately",
    Code.ROLLOUT_HOLD: "brokers are restarting: only overload is relieved until that is over",
    Code.BLAST_RADIUS: "too many brokers came, went or restarted at once",
    Code.OUTSIDE_WINDOW: "no maintenance window is open",
    Code.BUDGET_OF_DRAIN: "this cycle's budget of moves for drains is used up",
    Code.STOPPED: "a person stopped the task, drain or warm-up that asked for this move before it was begun",
    Code.NOT_REVIEWED: "the leader's settings say `review: required`: a second person has to approve it first",
    Code.OWNER_CHANGED: "the bundle is owned by another broker than planned; it is planned anew",
    Code.UNOWNED: "no broker owns the bundle: the next lookup places it, there is nothing to unload",
    Code.STOPPING: "the sidecar is stopping; the move was not begun",
    Code.NOT_PERMITTED: "acting is not allowed right now",
    Code.ADMIN_REFUSED: "the broker refused the unload",
    Code.ADMIN_UNAUTHORIZED: "the broker did not accept our credentials",
    Code.ADMIN_UNREACHABLE: "the broker could not be reached; the request never left",
    Code.NO_ANSWER: "the unload got no usable answer and who owns the bundle does not settle it",
    Code.LANDED_ELSEWHERE: "another broker took the bundle first",
    Code.RELEASED: "the bundle has no topics: its broker gave it up, and no broker owns it until a client asks",
    Code.STILL_AT_SOURCE: "the broker it was to leave owns the bundle again",
    Code.NOBODY_OWNS: "no broker took the bundle in time; the next lookup places it",
    Code.STILL_IN_FLIGHT: "the bundle is still on its way past the deadline; the brokers' leader ends that later",
    Code.ALIKE_BROKERS: "the broker's id ends with the target's, which brokers take for the same broker",
    Code.LEFT_BY_EARLIER_LEADER: "an earlier leader left the move open; settled by reading who owns the bundle",
    Code.NOT_IN_POLICY: "the namespace's isolation policy names the broker neither as primary nor as secondary",
    Code.SECONDARY_NOT_NEEDED: "the broker is secondary of the isolation policy, and enough primaries are available",
    Code.PRIMARY_OF_OTHERS: "the broker is primary of an isolation policy, and the namespace has none",
    Code.PERSISTENT_DISABLED: "the broker does not serve persistent topics",
    Code.NON_PERSISTENT_DISABLED: "the broker does not serve non-persistent topics",
    Code.MAX_TOPICS: "the broker has more topics than `max_topics_per_broker` (an extensible one: as many)",
    Code.FULLER_DOMAIN: "another failure domain has fewer namespaces of the anti-affinity group (extensible: bundles)",
    Code.MORE_OF_GROUP: "another broker has fewer namespaces of the anti-affinity group (extensible: bundles)",
    Code.MORE_OF_NAMESPACE: "another broker holds fewer bundles of the namespace, which are to be spread evenly",
    Code.OTHER_LOAD_MANAGER: "the broker runs another load manager class than is configured",
    Code.OLDER_VERSION: "another broker runs a later version (preferLaterVersions)",
    Code.SPLITTING: "the bundle is about to be split; its children may move then",
    Code.SPLIT_HIT_COUNT: "the bundle is above a split limit, but not often enough in a row yet",
    Code.SINGLE_TOPIC: "the bundle holds fewer than two topics, and a split parts topics; add partitions",
    Code.SAME_HASH: "all topics of the bundle hash together: no boundary can part them; add partitions",
    Code.DOMINANT_TOPIC: "one topic carries nearly all of the bundle and stays as hot after a split; add partitions",
    Code.NARROW_RANGE: "the bundle's hash range is too narrow for another boundary",
    Code.NAMESPACE_MAXIMUM: "the namespace has as many bundles as it may have",
    Code.BUDGET_OF_SPLITS: "this cycle's budget of splits is used up",
    Code.QUIET_HOURS: "splits are kept to quiet hours, and the bundle is not far above its limit",
    Code.BROKERS_SPLIT_THEMSELVES: "the brokers split by this limit themselves (loadBalancerAutoBundleSplitEnabled)",
    Code.SPLIT_FAILED: "the last attempt to split the bundle came to nothing; it is tried again after the cool-down",
    Code.NOTHING_SPLIT: "the broker answered, and the bundle is as it was",
    Code.NO_BOUNDARY: "the chosen split algorithm finds no boundary in the bundle",
    Code.NOT_SUPPORTED: "the bundle's broker does not support that split, by its release, settings or load manager",
    Code.NO_SUCH_BUNDLE: "the namespace has no such bundle any more",
    Code.SPLIT_UNFINISHED: "the boundaries are there, but the ownership channel does not show all children owned yet",
    Code.OUT_OF_RANGE: "a proposed value is outside of what may be calibrated",
    Code.STEP_TOO_LARGE: "a proposed value is further from the one in force than one night may take it",
    Code.TOO_OLD: "the thresholds, or the history they rest on, are older than allowed",
    Code.TOO_LITTLE_HISTORY: "fewer days of usable history than asked for",
    Code.POOR_COVERAGE: "too much of the time is missing from the history",
    Code.OTHER_STRATEGY: "the thresholds, or one of them, are about another strategy than the one in force",
    Code.OTHER_VALUES: "the values in force are no longer those that the proposal was compared with",
    Code.OTHER_CLUSTER: "the history that the proposal rests on was recorded by another cluster",
    Code.NOT_BETTER: "on held-out days the proposed values were not better for certain, or worse",
    Code.WORSE_UNBROKEN: "in an unbroken run over the held-out days the proposed values lost balance, or none was made",
    Code.NOTHING_NEW: "the proposed values are in force already",
    Code.REVERTED: "these very thresholds were adopted and reverted; they are not adopted again",
    Code.ON_PROBATION: "the thresholds adopted last are still being watched",
    Code.IMPLAUSIBLE: "the document contradicts itself or the clock",
    Code.FUTURE_FORMAT: "a newer release wrote the document",
    Code.UNKNOWN_PARAMETER: "the document names a parameter that is not calibrated",
    Code.TOPIC_POLICIES_OFF: "the brokers have topic policies off (topicLevelPoliciesEnabled, systemTopicEnabled)",
    Code.STRICTER_RATE_IN_FORCE: "a stricter rate of the topic, namespace or broker is in force already",
    Code.RELATIVE_DISPATCH_RATE: "the dispatch rate in force is relative to the publish rate and cannot be compared",
    Code.BUDGET_OF_RATES: "as many rates as one cycle may have were written; this one comes later",
    Code.RATE_NOT_REACHED: "the time that one cycle has for brokers was over; this one comes first in the next",
    Code.RATE_NOT_READ: "what is in force for the topic has not been read",
    Code.TOPIC_ABSENT: "no broker serves the topic now; its rate stays as it is",
    Code.QUOTAS_OFF: "quotas.enforcer is off: groups are only shown",
    Code.USAGE_NOT_EXCHANGED: "brokers do not exchange usage (resourceUsageTransportClassName): each of them "
    "passes the whole limit",
    Code.DISPATCH_NOT_ENFORCED: "Pulsar computes dispatch quotas of resource groups and does not enforce them",
    Code.DEAD_BROKER_COUNTED: "the usage of a broker that is gone still counts, at each other one until it restarts",
    Code.STARVED_AFTER_MOVE: "a broker was limited to 1 msg/s and 1 byte/s: its usage was not known for its share",
    Code.EMPTY_REPORT: "the record is empty",
    Code.NOT_JSON: "the record is not JSON, or is nested too deeply, or has numbers that are too large",
    Code.REPORT_TOO_LARGE: "the record is larger than the limit, or holds more values",
    Code.WRONG_TYPE: "a field of the record has the wrong type",
    Code.NOT_A_NUMBER: "a number in the report was NaN or infinite; it counts as zero",
    Code.NEGATIVE_VALUE: "a number in the report was negative; it counts as zero",
    Code.IMPUTED: "a field was missing or unusable and was filled in",
    Code.IMPUTED_SCORE: "the broker has not published its load yet; its score is estimated from its traffic",
    Code.STALE_SCORE: "the load topics cannot be followed at present; the broker's last score stands in",
    Code.TOP_BUNDLES_ONLY: "the broker's statistics cannot be fetched; only the largest bundles it publishes are known",
}
