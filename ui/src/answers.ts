// Made from config/openapi.json by `python -m dev.ui build`; do not edit.

/** Thresholds that lie over the settings. */
export interface AdoptedView {
  /** who asked */
  by: string;
  /** digest of the proposal */
  digest: string;
  /** by parameter, the value that the settings (or the brokers' settings, where they are adopted) had at the adoption, not that of an earlier adoption; an adopted value is in force while it is still this one */
  instead_of: Record<string, number>;
  /** why, in the words of who asked */
  reason: string;
  /** since when it holds */
  since_ms: number;
  /** trial: they are observed */
  state: "trial" | "kept";
  /** whose parameters they are */
  strategy: string;
  /** how they do; null when the trial is over */
  trial: TrialView | null;
  /** those in force, by parameter */
  values: Record<string, number>;
}

/** A decision about thresholds. */
export interface AdoptionRecord {
  /** who decided: a person, or Bundlekeel itself */
  by: string;
  /** `Thresholds` and that word */
  code: string;
  /** codes of what speaks against them */
  codes: (string)[];
  /** what it is about */
  kind: "adoption";
  /** why, in the words of who asked; empty: nobody asked */
  reason: string;
  /** whether they were taken back */
  reverted: boolean;
  /** the same as a sentence */
  sentence: string;
  /** digest of the thresholds */
  version: string;
  /** when it happened */
  wall_ms: number;
  /** `recommended`, `refused`, `adopted`, `kept` or `reverted` */
  what: string;
}

/** What came into force. */
export interface AdoptionView {
  /** what it changed */
  changes: (ThresholdChange)[];
  /** digest of the proposal */
  digest: string;
  /** the same as a sentence */
  sentence: string;
}

/** Where a bundle would be placed if no broker owned it. */
export interface AssignmentView {
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** brokers that were left to choose from */
  candidates: (string)[];
  /** where it would be placed; null: any of the candidates (`round_robin`), or none (`code`) */
  chosen: string | null;
  /** the code of why no broker is chosen; null: one is, or any */
  code: string | null;
  /** of the topic, which decides on its bundle; null for a bundle */
  hash: string | null;
  /** brokers, `chosen` among them, of which Pulsar takes one at random or in turn; empty: no choice */
  one_of: (string)[];
  /** the broker that owns it now */
  owner: string | null;
  /** the brokers' placement, which decides */
  placement: string;
  /** the broker it is on its way to */
  preallocated: string | null;
  /** the same as a sentence */
  sentence: string;
  /** whether a broker owns it now */
  state: "owned" | "unowned" | "unloading";
  /** the pipeline, in its order */
  steps: (StepView)[];
  /** the topic that was asked for */
  topic: string | null;
}

/** A request to the API that changes something, and how it was answered. */
export interface AuditRecord {
  /** IP address of the caller, or `unix socket` */
  address: string;
  /** only where it was refused before it was read: how many requests like it since the record before */
  attempts: number | null;
  /** the authenticated name; on the unix socket the name given; empty: no valid credentials */
  by: string;
  /** what it is about */
  kind: "audit";
  /** why, in the words of who asked; empty: the request was refused before it was read */
  reason: string;
  /** role of the credentials; empty: no valid credentials */
  role: string;
  /** the same as a sentence */
  sentence: string;
  /** HTTP status of the answer */
  status: number;
  /** when it happened */
  wall_ms: number;
  /** method and path of the request */
  what: string;
}

/** A mean over held-out time and its bootstrap interval; of one run both ends are the mean. */
export interface BootstrapInterval {
  /** upper end of the interval */
  high: number;
  /** lower end of the interval */
  low: number;
  /** the mean, in the unit of its measure */
  mean: number;
}

/** A broker's load before and after. */
export interface BrokerLoad {
  /** a broker id */
  broker: string;
  /** how many bundles it owns after */
  bundles_after: number;
  /** how many bundles it owns before */
  bundles_before: number;
  /** msg/s in and out together, after */
  msg_rate_after: number;
  /** msg/s in and out together, before */
  msg_rate_before: number;
  /** score after, a ratio */
  score_after: number;
  /** score before, a ratio */
  score_before: number;
  /** bytes/s in and out together, after */
  throughput_after: number;
  /** bytes/s in and out together, before */
  throughput_before: number;
}

/** One registered broker: its load as reported and as predicted with the ledger, and why it is left or chosen. What is null cannot be told, since its report cannot be used. */
export interface BrokerView {
  /** whether it is registered */
  alive: boolean;
  /** a broker id */
  broker: string;
  /** how many, with the moves of the ledger */
  bundles: number | null;
  /** learned CPU costs; null: unknown, or no CPU limit */
  cpu_costs: CpuCostsView | null;
  /** details; empty: none */
  detail: string;
  /** its load manager's class */
  load_manager: string;
  /** its bundles' long-term averages (1,000 samples) */
  long: TotalsView | null;
  /** the time between the two readings of its counters that its figures come from; null: its own report */
  measured_seconds: number | null;
  /** msg/s published, latest report */
  msg_rate_in: number | null;
  /** msg/s delivered, latest report */
  msg_rate_out: number | null;
  /** bundles on their way to it */
  preallocated: (ComingView)[] | null;
  /** bytes/s both ways, with the moves of the ledger */
  predicted_throughput: number | null;
  /** age of its figures */
  report_age_seconds: number | null;
  /** its load score as reported */
  reported_score_ratio: number | null;
  /** what people asked of it; empty: nothing */
  requested: "" | "drain" | "cordon" | "warm";
  /** usage and limit of `cpu` (percent of a core), `direct_memory` (MiB), `bandwidth_in` and `bandwidth_out` (kbit/s), `msg_rate` (msg/s) and `throughput` (bytes/s) */
  resources: Record<string, ResourceView> | null;
  /** its load score, with the moves of the ledger */
  score_ratio: number | null;
  /** whether the mean of max/mean counts it: a usable report, and neither drained, cordoned nor excluded */
  shares_load: boolean;
  /** whether its own shedding is on; null: not known */
  sheds_itself: boolean | null;
  /** its bundles' short-term averages (10 samples) */
  short: TotalsView | null;
  /** whether its own splitting is on; null: not known */
  splits_itself: boolean | null;
  /** ok, or the code of why its report is not used */
  state: string;
  /** bytes/s published, latest report */
  throughput_in: number | null;
  /** bytes/s delivered, latest report */
  throughput_out: number | null;
  /** how many it reports */
  topics: number | null;
  /** whether its report may not show the last moves yet */
  unsettled: boolean;
  /** what the last plan says of it */
  verdict: Verdict | null;
  /** the release of Pulsar it runs */
  version: string;
}

/** One bundle: latest sample, short term (10 samples), long term (1,000), and whether it may move. */
export interface BundleView {
  /** the broker that owns it */
  broker: string | null;
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** the code of what prevents it; null: nothing */
  code: string | null;
  /** how many consumers its topics have */
  consumers: number;
  /** when it moved last */
  last_move_ms: number | null;
  /** traffic of the latest sample */
  latest: TrafficView;
  /** traffic as long-term average */
  long: TrafficView;
  /** samples behind `long` */
  long_samples: number;
  /** whether the guard lets it move */
  may_move: boolean;
  /** since that was decided */
  preallocated_age_seconds: number | null;
  /** the broker it is on its way to */
  preallocated_to: string | null;
  /** how many producers its topics have */
  producers: number;
  /** what it adds to its broker's score */
  score_ratio: number;
  /** traffic as short-term average */
  short: TrafficView;
  /** samples behind `short` */
  short_samples: number;
  /** how many topics it has */
  topics: number;
}

/** A broker a bundle may go to, or why not there. */
export interface CandidateView {
  /** a broker id */
  broker: string;
  /** the code of why not there; null: it may */
  code: string | null;
  /** what the code means */
  explanation: string;
  /** a ratio, with the bundle on it; null: not computed */
  score_after: number | null;
  /** its score now, a ratio */
  score_before: number;
}

/** Something wrong in the ownership channel. It is the same from call to call while it lasts. Before `deadline_ms` the remedy is to wait, afterwards to act. */
export interface ChannelFinding {
  /** the brokers concerned, the one at fault first */
  brokers: (string)[];
  /** the bundle; empty: the channel as a whole */
  bundle: string;
  /** what is wrong */
  code: string;
  /** until when brokers should have repaired it; 0: they never do */
  deadline_ms: number;
  /** what was seen */
  detail: string;
  /** how to fix it */
  remedy: string;
  /** since when it is so */
  since_ms: number;
  /** state of the bundle's entry; null: of no entry */
  state: string | null;
}

/** The ownership channel. */
export interface ChannelSummary {
  /** how many have an entry */
  bundles: number;
  /** how long brokers take at most */
  deadlines: Deadlines;
  /** why it is not followed */
  detail: string;
  /** what is wrong, by code */
  findings: Record<string, number>;
  /** age of the oldest assignment, release or split under way */
  in_flight_oldest_seconds: number;
  /** why nothing may be done on its basis, as a sentence; empty: nothing is in the way */
  obstacle: string;
  /** entries that could not be read */
  rejected: number;
  /** bundles by state */
  states: Record<string, number>;
  /** whether it is followed */
  up: boolean;
  /** where it is kept; null: not known */
  variant: "system_topic" | "metadata_store" | null;
  /** of the newest view */
  wall_ms: number | null;
}

/** One test of `doctor` or of a probe: whether it holds, what is wrong and the fix. */
export interface Check {
  /** what was found */
  detail: string;
  /** what to do; empty: nothing */
  fix: string;
  /** what was tested */
  name: string;
  /** whether it holds */
  ok: boolean;
  /** of what does not hold */
  severity: "error" | "warning";
}

/** What a split makes. */
export interface ChildView {
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** its share of the messages */
  msg_rate_ratio: number;
  /** its share of the bytes */
  throughput_ratio: number;
  /** its share of the topics */
  topics_ratio: number;
}

/** A code and what it means. */
export interface CodeView {
  /** a code of docs/reference/codes.md */
  code: string;
  /** details; empty: none */
  detail: string;
  /** what the code means */
  explanation: string;
}

/** A bundle that is on its way to a broker. */
export interface ComingView {
  /** since its move was decided */
  age_seconds: number;
  /** a bundle: tenant/namespace/range */
  bundle: string;
}

/** A broker that was cordoned. */
export interface CordonedView {
  /** a broker id */
  broker: string;
  /** what it is now */
  state: "cordoned";
}

/** CPU of a broker as learned from its traffic: a base that no bundle causes, and the cost of messages and bytes. */
export interface CpuCostsView {
  /** share of the CPU limit that no bundle causes; moving bundles does not free it */
  base_ratio: number;
  /** CPU seconds per byte, in or out */
  byte_seconds: number;
  /** upper end of the 95 % interval */
  byte_seconds_high: number;
  /** lower end of the 95 % interval */
  byte_seconds_low: number;
  /** msg/s, in and out, at which its present mix of traffic uses up the CPU; null: unknown */
  capacity_msg_rate: number | null;
  /** CPU seconds per message, in or out */
  message_seconds: number;
  /** upper end of the 95 % interval */
  message_seconds_high: number;
  /** lower end of the 95 % interval */
  message_seconds_low: number;
}

/** A cycle: what was planned, and what came of it. */
export interface CycleRecord {
  /** whether moves were begun */
  acted: boolean;
  /** code of the verdict */
  code: string;
  /** number of the cycle */
  cycle: number;
  /** digest of the picture of the cluster that was planned on; null: no plan could be made */
  digest: string | null;
  /** number of the leader's term; null: this sidecar did not lead */
  epoch: number | null;
  /** what it is about */
  kind: "cycle";
  /** the longest time between two readings of a broker's counters; null: from a report */
  measured_seconds: number | null;
  /** code of why nothing was carried out; null: nothing prevented it */
  obstacle: string | null;
  /** only with drains: by broker, how far its drain is, as `DrainView` has it */
  operations: Record<string, Record<string, unknown>> | null;
  /** how many moves ended, by outcome */
  outcomes: Record<string, number>;
  /** hash of the plan; null: no plan could be made */
  plan: string | null;
  /** how many moves were planned */
  planned: number;
  /** how many splits were planned */
  planned_splits: number;
  /** how many bundles were refused, by code */
  refused: Record<string, number>;
  /** how long each part took, in seconds: `plan`, `execute`, `split`, `total` */
  seconds: Record<string, number>;
  /** the same as a sentence */
  sentence: string;
  /** only with `shadow.strategies`: `cycle`, the one they planned along with, and `strategies`: by name `strategy`, `moves`, `disagreement` (a ratio of the moves), `agreement`, `regret` (a difference of max/mean), `plan_hash` */
  shadow: Record<string, unknown> | null;
  /** how many splits ended, by outcome */
  splits: Record<string, number>;
  /** when it happened */
  wall_ms: number;
}

/** One cycle's verdict. */
export interface CycleVerdict {
  /** the number of the cycle */
  cycle: number;
  /** how many it planned */
  moves: number;
  /** candidates that do not move, by code */
  refusals: Record<string, number>;
  /** why it did what it did */
  verdict: Verdict;
  /** time of the picture of the cluster on which it was decided */
  wall_ms: number;
}

/** The leader's last cycle. */
export interface CycleView {
  /** the number of the cycle */
  id: number;
  /** how many it planned */
  moves: number;
  /** the code of why nothing of it was carried out; null: nothing prevented it */
  obstacle: string | null;
  /** what that code means; empty without one */
  obstacle_explanation: string;
  /** how long it took */
  seconds: number | null;
  /** the same as a sentence */
  sentence: string;
  /** the code of its verdict */
  verdict: string;
  /** time of the picture of the cluster on which it was decided */
  wall_ms: number;
}

/** The history that a proposal rests on. Bad days count as nothing in `coverage`. */
export interface Data {
  /** days that were left out, each with the reason */
  bad_days: Record<string, string>;
  /** recorded part of the time between first and last day, a ratio */
  coverage: number;
  /** how many recorded cycles it has */
  cycles: number;
  /** days that were used, in order */
  days: (string)[];
  /** time of its first snapshot */
  from_ms: number;
  /** time of its last snapshot */
  until_ms: number;
}

/** How long brokers take at most. */
export interface Deadlines {
  /** milliseconds that an assignment, release or split takes at most */
  in_flight_ms: number;
  /** milliseconds until load data is too old */
  load_data_ms: number;
  /** milliseconds between two looks of the brokers' own monitor */
  monitor_ms: number;
  /** milliseconds until an ended entry is deleted */
  tombstone_ms: number;
}

/** A drain and how far it is. */
export interface DrainView {
  /** bundles that cannot leave, by code */
  blocked: Record<string, number>;
  /** a broker id */
  broker: string;
  /** bundles times seconds that were still there */
  bundle_seconds: number;
  /** who asked */
  by: string;
  /** details; empty: none */
  detail: string;
  /** when it was empty first; 0: not yet */
  emptied_ms: number;
  /** until it is empty; null: unknown, or it is blocked */
  eta_seconds: number | null;
  /** bundles it still owns; null: the broker does not say */
  left: number | null;
  /** bundles that have left */
  moved: number;
  /** why, in the words of who asked */
  reason: string;
  /** since when it holds */
  since_ms: number;
  /** blocked: nothing that is left may move */
  state: "draining" | "empty" | "blocked" | "unknown";
}

/** A broker that a step dropped. */
export interface DroppedView {
  /** a broker id */
  broker: string;
  /** the code of why it is no candidate */
  code: string;
  /** what the code means */
  explanation: string;
}

/** What the moves from one broker to another did. */
export interface EffectRecord {
  /** when the first of the moves was planned */
  begun_ms: number;
  /** the bundles that were moved */
  bundles: (string)[];
  /** the broker that took them */
  destination: string;
  /** what it is about */
  kind: "effect";
  /** `helped`, `no_benefit` or `worse` */
  outcome: string;
  /** how much the peak of the two brokers was to go down, a ratio of capacity */
  predicted: number;
  /** how much it went down, a ratio of capacity; negative: up */
  realised: number;
  /** the same as a sentence */
  sentence: string;
  /** the broker that gave the bundles */
  source: string;
  /** when it happened */
  wall_ms: number;
}

/** The end of a takeover. */
export interface EndedView {
  /** who asked */
  by: string;
  /** whether the failsafe job ended it */
  deadman: boolean;
  /** why, in the words of who asked */
  reason: string;
  /** when it happened */
  wall_ms: number;
}

/** Results of the back-test, in blocks of hours, each begun at the recorded placement. */
export interface Evidence {
  /** with the proposed values */
  chosen: HeldOutMeasures;
  /** of the intervals, a ratio: 0.95 is 95 % */
  confidence: number;
  /** `chosen` less `previous`, block by block: its intervals are narrower */
  difference: HeldOutMeasures;
  /** days that the search did not see; all of this was measured on them */
  held_out: (string)[];
  /** time between two plans of the back-test, seconds */
  period_seconds: number;
  /** with the values that were in force */
  previous: HeldOutMeasures;
  /** other strategies on the same days, by name, to compare */
  strategies: Record<string, HeldOutMeasures>;
  /** without breaks; null: nothing would change */
  unbroken: Unbroken | null;
}

/** An exclusion that was set. */
export interface ExcludedView {
  /** how many known bundles it matches now; none yet may be meant so */
  bundles: number | null;
  /** who asked */
  by: string;
  /** `t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER`, globs allowed */
  pattern: string;
  /** why, in the words of who asked */
  reason: string;
  /** since when it holds */
  since_ms: number;
  /** its end; 0: a person ends it */
  until_ms: number;
}

/** What is left alone. */
export interface ExclusionView {
  /** who asked */
  by: string;
  /** `t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER`, globs allowed */
  pattern: string;
  /** why, in the words of who asked */
  reason: string;
  /** since when it holds */
  since_ms: number;
  /** its end; 0: a person ends it */
  until_ms: number;
}

/** A move that was not ours. */
export interface ExternalMoveRecord {
  /** the bundle */
  bundle: string;
  /** the broker that owns it now */
  destination: string;
  /** what it is about */
  kind: "external_move";
  /** the same as a sentence */
  sentence: string;
  /** the broker that owned it */
  source: string;
  /** whether it took a move of Bundlekeel back */
  undone: boolean;
  /** when it happened */
  wall_ms: number;
}

/** A field of a request that would not do. */
export interface FieldFault {
  /** what is allowed, where it is known */
  allowed: string | null;
  /** its path in the body (`a.b`), or the name of a parameter; `body`: the body as a whole */
  field: string;
  /** what is wrong with it */
  reason: string;
  /** what was given, where it is known */
  value: unknown;
}

/** Findings of one code of the ownership channel that appeared or are gone. */
export interface FindingRecord {
  /** the brokers they are about */
  brokers: (string)[];
  /** the first bundles they are about */
  bundles: (string)[];
  /** code of the findings, which this record counts together */
  code: string;
  /** how many findings it is about */
  count: number;
  /** `appeared` or `gone` */
  event: string;
  /** what it is about */
  kind: "finding";
  /** what to do; empty: nothing, it is gone */
  remedy: string;
  /** the same as a sentence */
  sentence: string;
  /** since when the oldest of them is known */
  since_ms: number;
  /** when it happened */
  wall_ms: number;
}

/** Result of a what-if after the last of its plans, each executed as predicted. Splits are not counted. */
export interface Finish {
  /** false: more cycles would be needed than were looked at */
  complete: boolean;
  /** how many cycles they take */
  cycles: number;
  /** max/mean then, of the `measure` of the plan's `imbalance`; 1: even, 0: no load */
  max_mean: number;
  /** how many, those of this plan included */
  moves: number;
  /** until the last of them has landed */
  seconds: number;
}

/** A group with its busiest topics. */
export interface GroupDetailView {
  /** usage by broker that serves it; where there are very many groups, of the busiest ones */
  brokers: Record<string, RatesView> | null;
  /** who asked */
  by: string;
  /** what Pulsar does to it that its limits do not ask for */
  defects: (CodeView)[];
  /** by how much shares add up to more than the limit */
  excess: RatesView | null;
  /** topics that are at their limit */
  held_back: number | null;
  /** topics times seconds at their limit */
  held_back_seconds: number | null;
  /** the limits, over all brokers */
  limits: RatesView;
  /** `t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed */
  members: (string)[];
  /** the name of the group */
  name: string;
  /** how many are in it */
  namespaces: number | null;
  /** where it was declared */
  origin: "settings" | "api";
  /** what was, or is to be, written of its ResourceGroup and its namespaces */
  planned: (string)[];
  /** why, in the words of who asked */
  reason: string;
  /** what brokers report to each other; empty where they do not */
  reported: (ReportedUsageView)[];
  /** its busiest topics */
  rows: (TopicView)[];
  /** the shares of its topics, added up */
  shares: RatesView | null;
  /** when it was set; 0: it is of the settings */
  since_ms: number;
  /** shares lost because demand sits in too few partitions */
  skew_loss: RatesView | null;
  /** how many are in it */
  topics: number | null;
  /** what its topics pass */
  usage: RatesView | null;
  /** usage of the limit */
  used_ratio: RatesView | null;
}

/** A group that was taken out of force. */
export interface GroupRemoved {
  /** the name of the group */
  name: string;
  /** where it was declared */
  origin: "settings" | "api";
}

/** A group that was set. */
export interface GroupSetView {
  /** null: the settings do not declare it any more */
  limits: RatesView | null;
  /** `t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed */
  members: (string)[];
  /** the name of the group */
  name: string;
  /** where it was declared */
  origin: "settings" | "api";
}

/** A group. What the leader has not seen yet is null. */
export interface GroupView {
  /** usage by broker that serves it; where there are very many groups, of the busiest ones */
  brokers: Record<string, RatesView> | null;
  /** who asked */
  by: string;
  /** what Pulsar does to it that its limits do not ask for */
  defects: (CodeView)[];
  /** by how much shares add up to more than the limit */
  excess: RatesView | null;
  /** topics that are at their limit */
  held_back: number | null;
  /** topics times seconds at their limit */
  held_back_seconds: number | null;
  /** the limits, over all brokers */
  limits: RatesView;
  /** `t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed */
  members: (string)[];
  /** the name of the group */
  name: string;
  /** how many are in it */
  namespaces: number | null;
  /** where it was declared */
  origin: "settings" | "api";
  /** what was, or is to be, written of its ResourceGroup and its namespaces */
  planned: (string)[];
  /** why, in the words of who asked */
  reason: string;
  /** what brokers report to each other; empty where they do not */
  reported: (ReportedUsageView)[];
  /** the shares of its topics, added up */
  shares: RatesView | null;
  /** when it was set; 0: it is of the settings */
  since_ms: number;
  /** shares lost because demand sits in too few partitions */
  skew_loss: RatesView | null;
  /** how many are in it */
  topics: number | null;
  /** what its topics pass */
  usage: RatesView | null;
  /** usage of the limit */
  used_ratio: RatesView | null;
}

/** Measures of thresholds on held-out days; less is better. In a `difference` below 0: they are better. */
export interface HeldOutMeasures {
  /** max/mean of score less 1 (0: even), over time; of plans and `/state` it is max/mean */
  imbalance: BootstrapInterval;
  /** moves an hour by the balancer, whole cluster */
  moves_per_hour: BootstrapInterval;
  /** minutes a day with any broker above 85 % */
  overloaded_minutes_per_day: BootstrapInterval;
  /** how far a broker's load goes up and down beyond its trend a day, in percent of the mean load */
  thrash_per_day: BootstrapInterval;
}

/** The busiest broker over the mean of those that share the load, as the last plan saw it; 1: even, 0: no load. */
export interface ImbalanceView {
  /** max/mean of scores */
  score_max_mean: number | null;
  /** max/mean of throughput */
  throughput_max_mean: number | null;
}

/** An exclusion that was ended. */
export interface IncludedView {
  /** the pattern, as it was set */
  pattern: string;
}

export type JournalRecord = CycleRecord | MoveRecord | SplitRecord | FindingRecord | RequestRecord | AuditRecord | EffectRecord | ExternalMoveRecord | AdoptionRecord | QuotaRecord | SettingsRecord | OtherRecord;

/** Moves whose load the brokers' reports do not show yet. */
export interface LedgerView {
  /** how many such moves there are */
  entries: number;
  /** brokers whose reports are not settled */
  unsettled: (string)[];
}

/** A move or split that a person asked for. */
export interface ManualMoveView {
  /** of a split: Pulsar's algorithm; null: where load divides */
  algorithm: string | null;
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** every other broker as a target, and why not there */
  candidates: (CandidateView)[];
  /** of a split: what it makes */
  children: (ChildView)[];
  /** whether nothing is carried out */
  dry_run: boolean;
  /** digest of what is to be done: it is carried out only while it would be the same */
  hash: string;
  /** the code of what would refuse it now, or of what keeps the leader from it; empty: nothing */
  held: string;
  /** what that code means; empty without one */
  held_explanation: string;
  /** what was asked for */
  kind: "transfer" | "unload" | "split";
  /** load of each broker before and after */
  loads: (BrokerLoad)[];
  /** the move; null of a split, or when it stays */
  move: MoveView | null;
  /** the bundle or topic that was named */
  name: string;
  /** whether it moves although it moved lately */
  override_cool_down: boolean;
  /** why the bundle or its brokers do not allow it; mode and pauses: `held` */
  refusals: (RefusalView)[];
  /** the review it waits for */
  review: string | null;
  /** the same as a sentence */
  sentence: string;
  /** the broker that owns it */
  source: string;
  /** planned (a dry run), waiting (for the leader) or proposed (to a second person) */
  state: "planned" | "waiting" | "proposed";
  /** the broker it goes to; null of a split, or when it stays */
  target: string | null;
  /** its task; null in a dry run and while it is proposed */
  task: string | null;
  /** of a split: topics that were named */
  topics: (string)[];
  /** of a split: whether the children leave their broker then */
  unload: boolean;
}

/** Marks that differ when something changed; cheap enough for twice a second. */
export interface Marks {
  /** the last cycle: its number, as a text; empty: none yet */
  cycle: string;
  /** who leads, in which term */
  leader: string;
  /** time of the last move, in ms */
  moves: number;
  /** time of the picture, in ms */
  picture: number;
  /** digest of what people asked for */
  requests: string;
  /** whether the metadata store is connected */
  store: boolean;
  /** digest of the tasks */
  tasks: string;
}

/** A sidecar as it describes itself in its seat node and, while it leads, in the leader node. */
export interface Member {
  /** of its term as leader; -1: it does not lead */
  epoch: number;
  /** the name of the sidecar */
  id: string;
  /** its seat; -1: none */
  seat: number;
  /** digest of its settings without what is of its host alone; the same at all sidecars; empty: unknown */
  settings: string;
  /** when its process began */
  started_ms: number;
  /** the address of its API; empty: unknown */
  url: string;
  /** the release it runs */
  version: string;
}

/** A mode that was set. */
export interface ModeView {
  /** who asked */
  by: string;
  /** the mode asked for */
  mode: "observe" | "recommend" | "act";
  /** why, in the words of who asked */
  reason: string;
}

/** A move that ended. */
export interface MoveRecord {
  /** the bundle */
  bundle: string;
  /** code of why it is not `done`; empty: it is */
  code: string;
  /** number of the cycle that began it, as a text, or the id of the task */
  cycle: string;
  /** the broker it was sent to */
  destination: string;
  /** only where it is known: `helped`, `no_benefit` or `worse` */
  effect: string | null;
  /** number of the leader's term that began it; -1: not known */
  epoch: number;
  /** what the broker or the store answered; empty: no error */
  error: string;
  /** the brokers that the request to unload it went through */
  hops: (string)[];
  /** id of its intent, which a new leader settles */
  intent: string;
  /** what it is about */
  kind: "move";
  /** when its new owner was seen; 0: none was */
  landed_ms: number;
  /** the broker that owns it now; empty: none, or not known */
  landed_on: string;
  /** `done`, `landed_elsewhere`, `released` (no broker owns it), `unknown` or `refused` (nothing moved) */
  outcome: string;
  /** scores of both brokers by the plan, ratios: `source_before`, `source_after`, `target_before` and `target_after`; empty: not predicted */
  predicted: Record<string, number>;
  /** only with `effect`: its `predicted` */
  predicted_gain: number | null;
  /** only with `effect`: its `realised` */
  realised_gain: number | null;
  /** how long it took, with the wait for its turn */
  seconds: number;
  /** the same as a sentence */
  sentence: string;
  /** the broker that owned it */
  source: string;
  /** when it was begun */
  started_ms: number;
  /** the topic whose lookup lets the destination take the bundle; empty: none is known */
  topic: string;
  /** when it happened */
  wall_ms: number;
}

/** What a bundle uses of its broker. */
export interface MoveUsageView {
  /** kbit/s */
  bandwidth_in: number;
  /** kbit/s */
  bandwidth_out: number;
  /** percent of a core */
  cpu: number;
  /** MiB */
  direct_memory: number;
  /** msg/s, published and delivered */
  msg_rate: number;
  /** bytes/s, published and delivered */
  throughput: number;
}

/** One bundle from one broker to another. Scores are ratios, predicted for the moment before and after this move. */
export interface MoveView {
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** six figures of what it uses: CPU (percent of a core), direct memory (MiB), bandwidth in (kbit/s), bandwidth out (kbit/s), messages (msg/s) and throughput (bytes/s), in this order */
  pressure: (number)[];
  /** `traffic` by name */
  rates: TrafficView;
  /** the rule that chose it */
  rule: string;
  /** the next best target; empty: none */
  runner_up: string;
  /** the same as a sentence */
  sentence: string;
  /** the broker it leaves */
  source: string;
  /** score of the source after, a ratio */
  source_after: number;
  /** score of the source before, a ratio */
  source_before: number;
  /** the broker it goes to */
  target: string;
  /** score of the target after, a ratio */
  target_after: number;
  /** score of the target before, a ratio */
  target_before: number;
  /** the limit that was exceeded, a ratio */
  threshold: number;
  /** four rates: msg/s published, msg/s delivered, bytes/s published, bytes/s delivered, in this order */
  traffic: (number)[];
  /** `pressure` by name */
  usage: MoveUsageView;
}

/** The unload of a namespace. */
export interface NamespaceUnloadView {
  /** how many the namespace has */
  bundles: number;
  /** whether nothing is carried out */
  dry_run: boolean;
  /** what the moves alone take; null: none may move */
  eta_seconds: number | null;
  /** digest of what is to be done: it is carried out only while it would be the same */
  hash: string;
  /** the code of what would refuse it now, or of what keeps the leader from it; empty: nothing */
  held: string;
  /** what that code means; empty without one */
  held_explanation: string;
  /** what was asked for */
  kind: "unload";
  /** as of now; each bundle goes where there is most room when it goes */
  moves: (MoveView)[];
  /** tenant/namespace */
  namespace: string;
  /** whether bundles move although they moved lately */
  override_cool_down: boolean;
  /** how many stay, by code */
  refusal_counts: Record<string, number>;
  /** what stays, and why */
  refusals: (RefusalView)[];
  /** the review it waits for */
  review: string | null;
  /** the same as a sentence */
  sentence: string;
  /** planned (a dry run), waiting (for the leader) or proposed (to a second person) */
  state: "planned" | "waiting" | "proposed";
  /** its task; null in a dry run and while it is proposed */
  task: string | null;
  /** why bundles do not leave in the next cycle yet */
  waiting: (RefusalView)[];
}

/** Why the newest proposal does not come into force. */
export interface ObjectionView {
  /** the code of the objection */
  code: string;
  /** details; empty: none */
  detail: string;
  /** what the code means */
  explanation: string;
  /** what of the proposal; empty: all of it */
  field: string;
  /** whether a person can adopt nevertheless: force: with `force`; yes: without; no: never; empty: not known */
  person: "" | "no" | "force" | "yes";
}

/** All that people have asked for. */
export interface OperationsView {
  /** brokers that no bundle is moved to */
  cordons: (RequestView)[];
  /** brokers that are to be empty */
  drains: (DrainView)[];
  /** what is left alone */
  exclusions: (ExclusionView)[];
  /** the code of what keeps the leader from moving anything until somebody ends it; empty: nothing */
  held: string;
  /** what that code means; empty without one */
  held_explanation: string;
  /** pauses in force */
  pauses: (ScopePauseView)[];
  /** bundles that stay */
  pins: (PinView)[];
  /** brokers that are filled gently */
  warms: (RequestView)[];
}

/** What every record has; one of a kind that a later release adds has fields of its own beside it. */
export interface OtherRecord {
  /** what it is about */
  kind: string;
  /** the same as a sentence */
  sentence: string;
  /** when it happened */
  wall_ms: number;
}

/** What became of a move of a task. */
export interface OutcomeView {
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** the code of why it was refused, or ended otherwise; null: none */
  code: string | null;
  /** the broker it came to; empty: none, or not known */
  landed_on: string;
  /** how it ended */
  outcome: "done" | "landed_elsewhere" | "released" | "unknown" | "refused";
}

/** A broker's largest bundles, and the sum of all others. */
export interface OverviewBroker {
  /** a broker id */
  broker: string;
  /** the largest ones, by throughput */
  bundles: (OverviewBundle)[];
  /** how many bundles it has beside those */
  other_bundles: number;
  /** bytes/s of the others */
  other_throughput: number;
}

/** A bundle by short-term throughput. */
export interface OverviewBundle {
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** its place in the list of namespaces */
  namespace: number;
  /** bytes/s, both ways, short term */
  throughput: number;
}

/** A namespace and its throughput. */
export interface OverviewNamespace {
  /** tenant/namespace */
  namespace: string;
  /** bytes/s, both ways, short term */
  throughput: number;
}

/** The cluster in few rows. */
export interface OverviewView {
  /** all brokers */
  brokers: (OverviewBroker)[];
  /** by throughput, largest first */
  namespaces: (OverviewNamespace)[];
  /** of the picture; null: none yet */
  wall_ms: number | null;
}

/** A pause. */
export interface PauseView {
  /** who asked */
  by: string;
  /** why, in the words of who asked */
  reason: string;
  /** since when it holds */
  since_ms: number;
  /** its end; null: until resumed */
  until_ms: number | null;
}

/** A pause of one scope that was set. */
export interface PausedScopeView {
  /** how many known bundles it matches now; none yet may be meant so */
  bundles: number | null;
  /** who asked */
  by: string;
  /** why, in the words of who asked */
  reason: string;
  /** `tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID` */
  scope: string;
  /** since when it holds */
  since_ms: number;
  /** its end; null: until resumed */
  until_ms: number | null;
}

/** Something that a person did. */
export interface PersonView {
  /** who asked */
  by: string;
  /** why, in the words of who asked */
  reason: string;
  /** when it happened */
  wall_ms: number;
  /** what was asked for */
  what: string;
}

/** A bundle that stays where it is. */
export interface PinView {
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** who asked */
  by: string;
  /** why, in the words of who asked */
  reason: string;
  /** since when it holds */
  since_ms: number;
  /** its end; 0: a person ends it */
  until_ms: number;
}

/** A pin that was set. */
export interface PinnedView {
  /** the bundle's owner */
  broker: string | null;
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** who asked */
  by: string;
  /** why, in the words of who asked */
  reason: string;
  /** since when it holds */
  since_ms: number;
  /** its end; 0: a person ends it */
  until_ms: number;
}

/** Where a topic or bundle is; asking never assigns it. */
export interface Place {
  /** the broker that owns it; null: none does */
  broker: string | null;
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** its entry in the ownership channel */
  channel: UnitView | null;
  /** the topic's, 0x and eight digits */
  hash: string | null;
  /** the advertised listener that was asked for */
  listener: string | null;
  /** the broker it is on its way to */
  preallocated_to: string | null;
  /** the owner's address for clients, of the listener if one is named */
  service_url: string;
  /** whether somebody owns it */
  state: "owned" | "unowned" | "unloading";
  /** the topic, or the partition; null: a bundle was asked for */
  topic: string | null;
  /** false: nothing is stored of the topic, a client makes it by using it; null: as `topic` */
  topic_exists: boolean | null;
  /** the owner's admin address */
  web_url: string;
}

/** max/mean: the busiest broker over the mean of those that share the load; 1: even, 0: no load. */
export interface PlanImbalance {
  /** max/mean after the moves */
  after: number;
  /** max/mean before the moves */
  before: number;
  /** what of `loads`, which the strategy evens out */
  measure: "score" | "throughput";
}

/** A plan made lately, without its moves. */
export interface PlanSummary {
  /** when it is forgotten */
  expires_ms: number;
  /** digest of what is to be done: it is carried out only while it would be the same */
  hash: string;
  /** how many moves it has */
  moves: number;
  /** the placement, which decided where to */
  placement: string;
  /** the strategy, which decided what moves */
  strategy: string;
  /** why it moves something, or nothing */
  verdict: Verdict;
  /** time of the picture of the cluster on which it was decided */
  wall_ms: number;
  /** brokers or traffic in it are not as they are: never carried out */
  what_if: boolean;
}

/** A dry run: moves and splits with their reason, refusals with code and explanation, load per broker before and after. */
export interface PlanView {
  /** of a what-if: what it assumes, and how loaded the busiest broker is now and then, as a sentence */
  assumption: string;
  /** why each broker is, or is not, relieved */
  brokers: (Verdict)[];
  /** whether the leader made it */
  by_leader: boolean;
  /** when it is forgotten */
  expires_ms: number;
  /** of a what-if: what comes of it in the end */
  finished: Finish | null;
  /** digest of what is to be done: it is carried out only while it would be the same */
  hash: string;
  /** max/mean (1: even) before and after; of thresholds `imbalance` is max/mean less 1 */
  imbalance: PlanImbalance;
  /** load of each broker before and after */
  loads: (BrokerLoad)[];
  /** what would move, in this order */
  moves: (MoveView)[];
  /** the placement, which decided where to */
  placement: string;
  /** how many, by code */
  refusal_counts: Record<string, number>;
  /** what would not, and why */
  refusals: (RefusalView)[];
  /** what was asked for, as in the body of POST /plans */
  request: Record<string, unknown>;
  /** of the picture it is made on */
  snapshot_digest: string;
  /** what would not be divided although it is above a limit */
  split_refusals: (RefusalView)[];
  /** what would be divided, after the moves */
  splits: (SplitView)[];
  /** the strategy, which decided what moves */
  strategy: string;
  /** why it moves something, or nothing */
  verdict: Verdict;
  /** time of the picture of the cluster on which it was decided */
  wall_ms: number;
  /** brokers or traffic in it are not as they are: never carried out */
  what_if: boolean;
}

/** An error, as RFC 9457 has it. */
export interface Problem {
  /** with a wrong value: `allowed` of the first of `errors` */
  allowed: string | null;
  /** with a conflict (409) or `forbidden` (403): the reason, a code of docs/reference/codes.md or a word of docs/reference/api.md */
  code: string | null;
  /** what is wrong, in words */
  detail: string;
  /** with a conflict: the reasons, as text */
  difference: (string)[] | null;
  /** with a wrong value (422): every fault */
  errors: (FieldFault)[] | null;
  /** with a wrong value: `field` of the first of `errors` */
  field: string | null;
  /** as in the header `X-Request-ID`; log lines of the request name it */
  request_id: string | null;
  /** the HTTP status */
  status: number;
  /** the status in words */
  title: string;
  /** the kind of error, as a URI */
  type: string;
  /** with a wrong value: `value` of the first of `errors` */
  value: unknown;
}

/** A proposal: its `thresholds.json` without `parameters`, of which `values` and `previous` are shown. */
export interface ProposalView {
  /** for people: what is no parameter, such as another strategy or cycle */
  advice: (string)[];
  /** the cluster whose history it rests on; empty: the history does not say */
  cluster: string;
  /** when the job made it */
  created_ms: number;
  /** the history it rests on */
  data: Data;
  /** what it is known by: `digest` of `thresholds/adopt` */
  digest: string;
  /** what was measured with both */
  evidence: Evidence;
  /** version of the document */
  format: number;
  /** its file, below `calibration.uri` */
  path: string;
  /** the values they were compared with, by parameter */
  previous: Record<string, number>;
  /** releases of the job that made it and of what it used */
  software: string;
  /** whose parameters they are */
  strategy: string;
  /** the proposed value of every parameter that was searched */
  values: Record<string, number>;
}

/** What the quotas wrote, or could not. */
export interface QuotaRecord {
  /** not of `problems`: the first writes that were done. Of `rates`: `topic`, `side` (`publish` or `dispatch`), `group`, `before` and `rate` (`messages` in msg/s, `bytes` in bytes/s; -1: no limit), `restores` (whether it was given back). Of `resource_groups`: `namespace`, `before` and `group` (names), or `group`, `before` and `limits` (a second and broker). null is none */
  changes: (Record<string, unknown>)[] | null;
  /** `RatesWritten`, `ResourceGroupsWritten` or `QuotaProblems` */
  code: string;
  /** not of `problems`: the first writes that failed, in the same form, each with `error` */
  errors: (Record<string, unknown>)[] | null;
  /** what it is about */
  kind: "quota";
  /** only of `problems`: what is wrong, as sentences; empty: nothing any more */
  problems: (string)[] | null;
  /** the same as a sentence */
  sentence: string;
  /** when it happened */
  wall_ms: number;
  /** `rates` or `resource_groups` (these were written), or `problems` (others than before) */
  what: string;
}

/** Why a group or topic passes what it passes. */
export interface QuotaWhyView {
  /** the codes in those sentences */
  codes: (CodeView)[];
  /** the group it is in */
  group: string;
  /** what was asked about */
  kind: "group" | "topic";
  /** what was asked about */
  name: string;
  /** why it passes that much */
  sentences: (string)[];
}

/** All groups, and how they are enforced. */
export interface QuotasView {
  /** whether rates are written */
  acting: boolean;
  /** how often it looks */
  cycle_seconds: number;
  /** `quotas.enforcer` of the settings */
  enforcer: "off" | "native" | "policies";
  /** what the codes of obstacle and left mean */
  explanations: Record<string, string>;
  /** in the order of their declaration */
  groups: (GroupView)[];
  /** rates of topics that are not written, by code */
  left: Record<string, number>;
  /** the mode in force */
  mode: "observe" | "recommend" | "act";
  /** the code of why not; null: nothing prevents it */
  obstacle: string | null;
  /** what is wrong with groups */
  problems: (string)[];
  /** the same as a sentence */
  sentence: string;
  /** whether the leader receives what brokers report to each other */
  transport: TransportView;
  /** when the leader looked last */
  wall_ms: number | null;
  /** changes of rates of the last cycle */
  writes: WritesView;
}

/** Rates a second; null: no limit, or nothing to tell. */
export interface RatesView {
  /** bytes delivered a second */
  dispatch_bytes: number | null;
  /** messages delivered a second */
  dispatch_messages: number | null;
  /** bytes published a second */
  publish_bytes: number | null;
  /** messages published a second */
  publish_messages: number | null;
}

/** A code that kept bundles from moving, or a cycle from being carried out. */
export interface RefusalSummary {
  /** a code of docs/reference/codes.md */
  code: string;
  /** cycles in which it was met */
  cycles: number;
  /** bundles at most in one cycle; 0: it is about the whole cycle */
  most: number;
}

/** A candidate that does not move, and why. */
export interface RefusalView {
  /** a broker id */
  broker: string;
  /** the bundle; empty: the broker as a whole */
  bundle: string;
  /** a code of docs/reference/codes.md */
  code: string;
  /** details; empty: none */
  detail: string;
  /** what the code means */
  explanation: string;
  /** when that ends; 0: with the next cycle, or not known */
  frees_ms: number;
  /** of a budget: moves, or a share of traffic */
  limit: number | null;
  /** of a budget: what is used of it */
  used: number | null;
}

/** What a drain or a warm moves. */
export interface RelocationView {
  /** a broker id */
  broker: string;
  /** how many it owns, or how many come to it */
  bundles: number;
  /** details; empty: none */
  detail: string;
  /** whether nothing is carried out */
  dry_run: boolean;
  /** what these moves take; null: none may move */
  eta_seconds: number | null;
  /** the code of what would refuse it now, or of what keeps the leader from it; empty: nothing */
  held: string;
  /** what that code means; empty without one */
  held_explanation: string;
  /** what moves, in this order */
  moves: (MoveView)[];
  /** how many, by code */
  refusal_counts: Record<string, number>;
  /** what stays for now, and why */
  refusals: (RefusalView)[];
  /** the same as a sentence */
  sentence: string;
}

/** What a broker last reported to the others about a group; Pulsar's figures are per period, these per second. */
export interface ReportedUsageView {
  /** its service URL if no broker of that address was seen */
  broker: string;
  /** since it reported what is delivered; null: never */
  dispatch_age_seconds: number | null;
  /** what its topics of the group pass; null: none was seen there */
  measured: RatesView | null;
  /** since it reported what is published; null: never */
  publish_age_seconds: number | null;
  /** false: it is gone, and its last report may still count */
  registered: boolean;
  /** what it reported; null: nothing yet */
  reported: RatesView;
}

/** What a person asked for. */
export interface RequestRecord {
  /** only of a quota group: since, `origin`, `members` and `limits` (a second, over all brokers; null: no limit); null: it was not there */
  after: Record<string, unknown> | null;
  /** only of a quota group: before, `origin`, `members` and `limits` (a second, over all brokers; null: no limit); null: it was not there */
  before: Record<string, unknown> | null;
  /** who asked */
  by: string;
  /** only of a quota group: its name */
  group: string | null;
  /** what it is about */
  kind: "request";
  /** why, in the words of who asked */
  reason: string;
  /** the same as a sentence */
  sentence: string;
  /** when it happened */
  wall_ms: number;
  /** what was asked for, in words; of a takeover and its end `takeover`, `handback` or `deadman` */
  what: string;
}

/** A broker that is cordoned or warmed. */
export interface RequestView {
  /** a broker id */
  broker: string;
  /** who asked */
  by: string;
  /** why, in the words of who asked */
  reason: string;
  /** since when it holds */
  since_ms: number;
}

/** One resource of a broker. */
export interface ResourceView {
  /** in the unit of the resource; 0: unknown */
  limit: number;
  /** whether the limit is from our settings (capacity) */
  overridden: boolean;
  /** usage of the limit, in percent */
  percent: number;
  /** in the unit of the resource */
  usage: number;
}

/** A pause that was ended. */
export interface Resumed {
  /** who asked */
  by: string;
  /** why, in the words of who asked */
  reason: string;
}

/** A pause of one scope that was ended. */
export interface ResumedScopeView {
  /** who asked */
  by: string;
  /** why, in the words of who asked */
  reason: string;
  /** the scope */
  scope: string;
}

/** What was taken back. */
export interface ReversionView {
  /** digest of the proposal */
  digest: string;
  /** the same as a sentence */
  sentence: string;
}

/** Thresholds that were taken back, and are not adopted again by themselves. */
export interface RevertedView {
  /** who asked */
  by: string;
  /** digest of the proposal */
  digest: string;
  /** why, in the words of who asked */
  reason: string;
  /** since when it holds */
  since_ms: number;
}

/** What one person proposes and another one has to approve. */
export interface ReviewView {
  /** what may be done with it now: approve, discard, stop */
  actions: (string)[];
  /** when it was proposed */
  at_ms: number;
  /** who proposed it */
  by: string;
  /** when; 0: not yet */
  decided_ms: number;
  /** the `hash` of what is proposed */
  id: string;
  /** what is carried out */
  kind: "plan" | "transfer" | "unload" | "split";
  /** why, in the words of who asked */
  reason: string;
  /** the reviewer's reason */
  remark: string;
  /** who approved or discarded it; empty: nobody yet */
  reviewer: string;
  /** how far it is */
  state: "proposed" | "approved" | "executing" | "done" | "aborted" | "discarded" | "expired";
  /** its task; empty: none yet */
  task: string;
  /** what is to be done */
  title: string;
}

/** A pause of everything or of one scope. */
export interface ScopePauseView {
  /** who asked */
  by: string;
  /** why, in the words of who asked */
  reason: string;
  /** `tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID`; empty: everything */
  scope: string;
  /** since when it holds */
  since_ms: number;
  /** its end; 0: a person ends it */
  until_ms: number;
}

/** One effective setting and where it came from. */
export interface Setting {
  /** as in the settings file */
  key: string;
  /** where it came from */
  origin: string;
  /** Pulsar's names for it */
  pulsar_keys: (string)[];
  /** the unit of the value */
  unit: string;
  /** the value in effect; secrets are hidden */
  value: unknown;
  /** what it is for */
  why: string;
}

/** The settings file was read anew. */
export interface SettingsRecord {
  /** not where refused: keys that come into force with the next cycle */
  applied: (string)[] | null;
  /** what it is about */
  kind: "settings";
  /** `applied`, `unchanged` or `refused` (what ran before goes on) */
  outcome: string;
  /** only where refused: what is wrong, line by line */
  problems: (string)[] | null;
  /** not where refused: keys that need a restart */
  restart_needed: (string)[] | null;
  /** the same as a sentence */
  sentence: string;
  /** when it happened */
  wall_ms: number;
}

/** The wait after an outage, in which nothing moves. */
export interface SettlingView {
  /** whether it is still not available */
  away: boolean;
  /** brokers that were there before */
  missing: (string)[];
  /** how long it has been quiet */
  quiet_seconds: number;
  /** the same as a sentence */
  sentence: string;
  /** when moves begin again; 0: not known yet */
  until_ms: number;
  /** what was not available */
  why: string;
}

/** Cycles in a row with the same verdict. */
export interface SpellView {
  /** how many cycles it has */
  cycles: number;
  /** the same as a sentence */
  sentence: string;
  /** when its first cycle was */
  since_ms: number;
  /** when its last cycle was */
  until_ms: number;
}

export type SplitAlgorithm = "range_equally_divide" | "topic_count_equally_divide" | "specified_positions_divide" | "flow_or_qps_equally_divide";

/** A split that ended. */
export interface SplitRecord {
  /** the broker that owned it */
  broker: string;
  /** the bundle */
  bundle: string;
  /** the bundles that are there instead; empty: not `done` */
  children: (string)[];
  /** code of why it is not `done`; empty: it is */
  code: string;
  /** number of the cycle that began it, as a text, or the id of the task */
  cycle: string;
  /** number of the leader's term that began it; -1: not known */
  epoch: number;
  /** what the broker or the store answered; empty: no error */
  error: string;
  /** id of its intent, which a new leader settles */
  intent: string;
  /** what it is about */
  kind: "split";
  /** `done`, `unknown` or `refused` (nothing was done) */
  outcome: string;
  /** hashes at which it was divided */
  positions: (number)[];
  /** the rule that chose it */
  rule: string;
  /** how long it took */
  seconds: number;
  /** the same as a sentence */
  sentence: string;
  /** when it was begun */
  started_ms: number;
  /** when it happened */
  wall_ms: number;
}

/** One bundle to divide. */
export interface SplitView {
  /** positions that were asked for; empty: where load divides */
  at: (number)[];
  /** the broker that owns it */
  broker: string;
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** whether it is cut in the middle */
  halves: boolean;
  /** how often in a row it was above */
  hits: number;
  /** in the units of `value` */
  limit: number;
  /** the limit it is above: topics, sessions, msg_rate, bandwidth, hot, or `by hand` */
  rule: string;
  /** the same as a sentence */
  sentence: string;
  /** topics, sessions, msg/s, MiB/s, or shares of the mean broker load */
  value: number;
}

/** Who leads, what mode, how the last cycle went, how even the load is. */
export interface State {
  /** whether this sidecar carries out what it plans */
  acting: boolean;
  /** what exactly: which brokers, or who and why; empty: the code says it all */
  acting_detail: string;
  /** the code of why not; null: nothing prevents it */
  acting_obstacle: string | null;
  /** the cluster's name, by the settings */
  cluster: string;
  /** the brokers' load manager */
  cluster_mode: "modular" | "extensible" | "other" | "mixed" | "unknown";
  /** the last cycle; null: none yet */
  cycle: CycleView | null;
  /** of the leader's term; null: no leader is known */
  epoch: number | null;
  /** how even the load is, as max/mean (1: even); of thresholds `imbalance` is max/mean less 1 */
  imbalance: ImbalanceView;
  /** bundles whose move or split an earlier leader began, not settled yet */
  intents: (string)[];
  /** who leads; null: not known */
  leader: Member | null;
  /** moves under way or not visible in the reports yet */
  ledger: LedgerView;
  /** the sidecar that answers */
  member: string;
  /** all sidecars with a seat */
  members: (Member)[];
  /** the mode in force */
  mode: "observe" | "recommend" | "act";
  /** the mode of the settings file */
  mode_ceiling: "observe" | "recommend" | "act";
  /** the overload threshold: a broker with a higher score is overloaded */
  overloaded_ratio: number;
  /** the pause in force; null: none */
  paused: PauseView | null;
  /** the placement, which decides where to */
  placement: string;
  /** what it is now; bench: it waits for a seat */
  role: "leader" | "follower" | "bench";
  /** its seat; null on the bench */
  seat: number | null;
  /** after an outage: what is waited for; null: nothing */
  settling: SettlingView | null;
  /** the metadata store */
  store: StoreView;
  /** the strategy, which decides what moves */
  strategy: string;
  /** the last takeover; null: there was none, if `takeover_known` */
  takeover: TakeoverView | null;
  /** whether this sidecar could read the record of the last takeover */
  takeover_known: boolean;
  /** since this process began */
  uptime_seconds: number;
  /** this sidecar's release */
  version: string;
}

/** One step of the assignment pipeline. */
export interface StepView {
  /** brokers that are left after it */
  candidates: (string)[];
  /** brokers that are not, and why */
  dropped: (DroppedView)[];
  /** the name of the step */
  name: string;
  /** what else it did */
  note: string;
}

/** A task that begins no further move. */
export interface Stopping {
  /** no further move begins */
  state: "stopping";
  /** the id of the task */
  task: string;
}

/** The connection to the metadata store. */
export interface StoreView {
  /** whether there is a session */
  connected: boolean;
  /** the session's timeout */
  session_seconds: number;
}

/** A plan that was left for the leader, or proposed. */
export interface Submitted {
  /** digest of what is to be done: it is carried out only while it would be the same */
  hash: string;
  /** how many moves it has */
  moves: number;
  /** the review it waits for */
  review: string | null;
  /** how many splits it has */
  splits: number;
  /** waiting (for the leader) or proposed (to a second person) */
  state: "waiting" | "proposed";
  /** its task; empty (not null) while it is proposed */
  task: string;
}

/** What happened in a span of time. Moves and effects are those of all sidecars, the rest is of this one. */
export interface SummaryView {
  /** cycles of this sidecar */
  cycles: number;
  /** moves by what they did: helped, no_benefit, worse */
  effects: Record<string, number>;
  /** of these, those in which another sidecar led; its own summary has their reasons */
  followed: number;
  /** how much the more loaded broker went down by these on average, a ratio */
  gain: number | null;
  /** the oldest record in it: nothing is known before; null: none at all */
  known_since_ms: number | null;
  /** how many moves, by outcome */
  moves: Record<string, number>;
  /** why plans were not carried out, the most frequent first */
  obstacles: (RefusalSummary)[];
  /** times in which a broker had too much load, the longest first */
  overloads: (SpellView)[];
  /** what people asked of this sidecar, and takeovers, oldest first */
  people: (PersonView)[];
  /** cycles whose plan moves something, and that were not carried out */
  recommended: number;
  /** moves at most in one of these */
  recommended_moves: number;
  /** why bundles did not move, the most frequent first */
  refusals: (RefusalSummary)[];
  /** requests to this sidecar that were refused */
  refused_requests: number;
  /** the same as a sentence */
  sentence: string;
  /** the first millisecond of the time */
  since_ms: number;
  /** the last millisecond of the time */
  until_ms: number;
}

/** The last takeover of the brokers' own load shedding. */
export interface TakeoverView {
  /** whether it lasts */
  active: boolean;
  /** who asked */
  by: string;
  /** how it ended; null: it did not */
  ended: EndedView | null;
  /** the only ones taken over; empty: all */
  namespaces: (string)[];
  /** why, in the words of who asked */
  reason: string;
  /** when it happened */
  wall_ms: number;
}

/** A request and its progress. Tasks are stored in this form, too. */
export interface TaskView {
  /** who asked */
  by: string;
  /** details; empty: none */
  detail: string;
  /** what changed since, when it failed for that */
  difference: (string)[];
  /** digest of what is to be done: it is carried out only while it would be the same */
  hash: string;
  /** what is carried out */
  kind: "plan" | "transfer" | "unload" | "split";
  /** when it was asked for and left for the leader, a time and not what is left of one; 0: unknown */
  left_ms: number;
  /** what became of its moves */
  moves: (OutcomeView)[];
  /** why, in the words of who asked */
  reason: string;
  /** waiting: for the leader; done: carried out, the `outcome` of each of `moves` says whether it landed; failed: nothing landed where asked, or not all was begun; bundles may have moved, see `moves` */
  state: "waiting" | "running" | "done" | "failed" | "stopped";
  /** the id of the task */
  task: string;
}

/** A parameter that would change. */
export interface ThresholdChange {
  /** the value in force */
  current: number;
  /** what the proposal rests on */
  evidence: string;
  /** the name of the parameter */
  parameter: string;
  /** the value proposed */
  proposed: number;
  /** how many of its range's steps away; null: no number of them leads there */
  steps: number | null;
}

/** How things stand with calibrated thresholds. */
export interface ThresholdsView {
  /** what is adopted; null: nothing */
  adopted: AdoptedView | null;
  /** its difference to what is in force */
  changes: (ThresholdChange)[];
  /** the newest proposal; null: there is none that can be read */
  document: ProposalView | null;
  /** why no proposal could be read; empty: none */
  error: string;
  /** `calibration.mode` of the settings */
  mode: "off" | "recommend" | "adopt";
  /** what speaks against it */
  objections: (ObjectionView)[];
  /** when proposals were read last */
  read_ms: number;
  /** what was taken back, oldest first */
  reverted: (RevertedView)[];
  /** the same as a sentence */
  sentence: string;
}

/** A topic of a group. */
export interface TopicView {
  /** those that serve it */
  brokers: (string)[];
  /** what was, or would be, written, by side; null: taken away */
  change: Record<string, WrittenRate | null>;
  /** why nothing is written, as codes */
  codes: (string)[];
  /** what it is known to want, as a share: its busiest partition times their number */
  demand: RatesView;
  /** kinds of rate at their limit */
  held_back: (string)[];
  /** what of the share is not used, since demand sits in too few partitions */
  loss: RatesView;
  /** what each partition may pass now */
  partition_rate: RatesView;
  /** how many partitions it has */
  partitions: number;
  /** what it may pass */
  share: RatesView;
  /** the name of the topic */
  topic: string;
  /** what it passes now */
  usage: RatesView;
}

/** An average of all traffic of a broker, in and out together. */
export interface TotalsView {
  /** msg/s */
  msg_rate: number;
  /** bytes/s */
  throughput: number;
}

/** Traffic of a bundle. */
export interface TrafficView {
  /** msg/s published */
  msg_rate_in: number;
  /** msg/s delivered */
  msg_rate_out: number;
  /** bytes/s published */
  throughput_in: number;
  /** bytes/s delivered */
  throughput_out: number;
}

/** Whether the leader receives what brokers report to each other about groups. */
export interface TransportView {
  /** details; empty: none */
  detail: string;
  /** of the newest message that could not be used, why not */
  fault: string;
  /** listening without a gap since then */
  since_ms: number;
  /** off: they do not, or there are no groups */
  state: "off" | "connecting" | "ok" | "stuck" | "down";
}

/** How adopted thresholds perform so far. */
export interface TrialView {
  /** max/mean of score less 1 (0: even), with them, by the weights from before; null: nothing measured yet */
  imbalance: number | null;
  /** max/mean of score less 1, before them; null: not known */
  imbalance_before: number | null;
  /** max/mean of score less 1, at most, by the proposal */
  imbalance_promised: number;
  /** moves an hour before them; null: not known */
  moves_before: number | null;
  /** moves an hour with the adopted thresholds; null: nothing measured yet */
  moves_per_hour: number | null;
  /** moves an hour at most, by the proposal */
  moves_promised: number;
  /** how long they have to be */
  needed_seconds: number;
  /** the code of why the leader's last cycle carried nothing out, so its time does not count; empty: none */
  obstacle: string;
  /** how long they have been observed: the time in which the leader balanced */
  seconds: number;
}

/** One run each over all held-out days, as a cluster runs. */
export interface Unbroken {
  /** with the proposed values */
  chosen: HeldOutMeasures;
  /** with the values that were in force */
  previous: HeldOutMeasures;
}

/** A broker that bundles are moved to again. */
export interface UncordonedView {
  /** a broker id */
  broker: string;
  /** what was ended: cordon, drain, warm */
  ended: (string)[];
}

export type UnitState = "Init" | "Free" | "Owned" | "Assigning" | "Releasing" | "Splitting" | "Deleted";

/** One entry of the ownership channel. */
export interface UnitView {
  /** since it was seen here first */
  age_seconds: number;
  /** a bundle: tenant/namespace/range */
  bundle: string;
  /** ranges of a split, with their brokers */
  children: Record<string, string>;
  /** the broker it is assigned to */
  destination: string;
  /** whether the entry overrides the order of versions */
  force: boolean;
  /** the broker that serves the bundle now; null: none */
  owner: string | null;
  /** when the entry was written, by its writer's clock */
  since_ms: number;
  /** the broker it leaves */
  source: string;
  /** its state in the channel */
  state: UnitState;
  /** the version of the entry, which grows with each change */
  version: number;
}

/** A pin that was ended. */
export interface UnpinnedView {
  /** a bundle: tenant/namespace/range */
  bundle: string;
}

/** Why the cycle, or one broker in it, did what it did. */
export interface Verdict {
  /** the broker it is about; empty: the whole cycle */
  broker: string;
  /** a code of docs/reference/codes.md */
  code: string;
  /** cost of the imbalance so far, in seconds of twice the tolerated difference */
  cost: number;
  /** with compat: calls in a row with a large difference */
  hits_high: number;
  /** with compat: calls in a row with a small difference */
  hits_low: number;
  /** price of the moves that would end the imbalance, in the same unit */
  price: number;
  /** the same as a sentence */
  sentence: string;
}

/** Which sidecar answers, and what it would let you do here. */
export interface WhoAmI {
  /** the name of the sidecar that answers */
  member: string;
  /** the mode in force */
  mode: "observe" | "recommend" | "act";
  /** whether you may change something here */
  mutations: boolean;
  /** the role of the sidecar; `your_role` is that of the caller */
  role: "leader" | "follower" | "bench";
  /** the release it runs */
  version: string;
  /** the authenticated name; empty without credentials */
  you: string;
  /** a higher role may do what a lower one may */
  your_role: "viewer" | "operator" | "admin";
}

/** Why a broker or bundle is where it is, and what would change it. */
export interface WhyView {
  /** the broker, or the bundle's owner */
  broker: string | null;
  /** the bundle; null for a broker */
  bundle: string | null;
  /** the bundle's entry in the ownership channel */
  channel: UnitView | null;
  /** what prevents a move, and until when */
  codes: (CodeView)[];
  /** what is wrong with that entry */
  findings: (ChannelFinding)[];
  /** records of its last 20 moves, oldest first */
  history: (JournalRecord)[];
  /** what was asked about */
  kind: "broker" | "bundle" | "topic";
  /** what was asked about */
  name: string;
  /** of a broker: the moves of the last plan that touch it */
  planned: (string)[];
  /** the same as a sentence */
  sentence: string;
  /** the one action, or why there is nothing to do */
  what_would_change_it: string;
}

/** Changes of rates of the last cycle. */
export interface WritesView {
  /** how many could not be written */
  failed: number;
  /** places with a rate that Bundlekeel set */
  held: number;
  /** how many there were */
  planned: number;
  /** how many were written */
  written: number;
}

/** A rate as it is written to a topic; -1: no limit. */
export interface WrittenRate {
  /** bytes a second */
  bytes: number;
  /** messages a second */
  messages: number;
}
