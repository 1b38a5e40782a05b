// Made from config/openapi.json by `python -m dev.ui build`; do not edit.

/** Adopted thresholds, which override the settings. */
export interface AdoptedView {
  /** operator or component that made the request */
  by: string;
  /** digest of the proposal */
  digest: string;
  /** by parameter, the value of the settings (or of the brokers' settings, if those are used) at the adoption; an adopted value is in effect until this setting changes */
  instead_of: Record<string, number>;
  /** first stage: only these namespaces use the values; empty: all use them */
  namespaces: (string)[];
  /** reason that the requester entered */
  reason: string;
  /** time of the request or change */
  since_ms: number;
  /** trial: the adoption is still observed */
  state: "trial" | "kept";
  /** strategy of the parameters */
  strategy: string;
  /** results of the trial; null: the trial is over */
  trial: TrialView | null;
  /** values in effect, by parameter */
  values: Record<string, number>;
}

/** A decision to adopt, keep or revert thresholds that a recalibration proposed. */
export interface AdoptionRecord {
  /** operator who decided, or `bundlekeel` */
  by: string;
  /** `Thresholds` followed by the value of `what` */
  code: string;
  /** codes of the objections */
  codes: (string)[];
  /** kind of the record */
  kind: "adoption";
  /** reason that the operator entered; empty: automatic decision */
  reason: string;
  /** whether the thresholds were reverted */
  reverted: boolean;
  /** summary as a sentence */
  sentence: string;
  /** digest of the thresholds */
  version: string;
  /** time of the event */
  wall_ms: number;
  /** `recommended`, `refused`, `adopted`, `widened`, `kept` or `reverted` */
  what: string;
}

/** Response to the adoption of proposed thresholds. */
export interface AdoptionView {
  /** changed parameters */
  changes: (ThresholdChange)[];
  /** digest of the proposal */
  digest: string;
  /** summary as a sentence */
  sentence: string;
}

/** One step of the assignment of a bundle to a broker. */
export interface AssignmentStep {
  /** remaining brokers after the step */
  candidates: (string)[];
  /** dropped brokers with their codes */
  dropped: (DroppedBroker)[];
  /** name of the step */
  name: string;
  /** remark for operators, such as the name of the policy */
  note: string;
}

/** The broker that would receive a bundle if no broker owned it. */
export interface AssignmentView {
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** remaining brokers after the last step */
  candidates: (string)[];
  /** broker that would receive the bundle; null: any of the candidates (`round_robin`), or none (`code`) */
  chosen: string | null;
  /** code of why no broker would receive the bundle; null: a broker would */
  code: string | null;
  /** hash of the topic, which determines the bundle; null: the request named a bundle */
  hash: string | null;
  /** brokers, including `chosen`, from which Pulsar selects at random or in turn; empty: no choice */
  one_of: (string)[];
  /** broker that owns the bundle now; null: none */
  owner: string | null;
  /** placement of the brokers, which selects the target */
  placement: string;
  /** broker that the bundle is in transit to; null: none */
  preallocated: string | null;
  /** summary as a sentence */
  sentence: string;
  /** whether a broker owns the bundle now */
  state: "owned" | "unowned" | "unloading";
  /** steps of the assignment, in order */
  steps: (AssignmentStep)[];
  /** requested topic; null: the request named a bundle */
  topic: string | null;
}

/** A mutating request to the API, and its response status. */
export interface AuditRecord {
  /** IP address of the caller, or `unix socket` */
  address: string;
  /** only if refused before it was read: number of similar requests since the previous record */
  attempts: number | null;
  /** authenticated name; on the unix socket the name that the caller sent; empty: no valid credentials */
  by: string;
  /** kind of the record */
  kind: "audit";
  /** reason that the caller entered; empty: the request was refused before it was read */
  reason: string;
  /** role of the credentials; empty: no valid credentials */
  role: string;
  /** summary as a sentence */
  sentence: string;
  /** HTTP status of the response */
  status: number;
  /** time of the event */
  wall_ms: number;
  /** method and path of the request */
  what: string;
}

/** A mean over held-out time and its bootstrap interval over days. For a single day both ends are the mean. */
export interface BootstrapInterval {
  /** upper end of the interval */
  high: number;
  /** lower end of the interval */
  low: number;
  /** the mean, in the unit of its measure */
  mean: number;
}

/** A broker's load before the moves of a plan, and its predicted load after them. */
export interface BrokerLoad {
  /** a broker id */
  broker: string;
  /** number of its bundles after the moves */
  bundles_after: number;
  /** number of its bundles before the moves */
  bundles_before: number;
  /** msg/s in and out together, after the moves */
  msg_rate_after: number;
  /** msg/s in and out together, before the moves */
  msg_rate_before: number;
  /** predicted score after the moves, a ratio */
  score_after: number;
  /** score before the moves, a ratio */
  score_before: number;
  /** bytes/s in and out together, after the moves */
  throughput_after: number;
  /** bytes/s in and out together, before the moves */
  throughput_before: number;
}

/** One registered broker: its reported load, its predicted load after the moves in transit, and the last plan's verdict. Fields are null if the broker's report is unusable. */
export interface BrokerView {
  /** whether the broker is registered */
  alive: boolean;
  /** a broker id */
  broker: string;
  /** number of bundles, including the moves of the ledger */
  bundles: number | null;
  /** learned CPU costs; null: unknown, or no CPU limit */
  cpu_costs: CpuCostsView | null;
  /** details; empty: none */
  detail: string;
  /** class of the load manager */
  load_manager: string;
  /** long-term average of its bundles (1,000 samples) */
  long: TotalsView | null;
  /** time between the two counter readings behind the values; null: values are from its load report */
  measured_seconds: number | null;
  /** msg/s published, latest report */
  msg_rate_in: number | null;
  /** msg/s delivered, latest report */
  msg_rate_out: number | null;
  /** bundles in transit to the broker */
  preallocated: (ComingView)[] | null;
  /** bytes/s in and out, including the moves of the ledger */
  predicted_throughput: number | null;
  /** age of the reported values */
  report_age_seconds: number | null;
  /** reported load score */
  reported_score_ratio: number | null;
  /** operators' request for the broker; empty: none */
  requested: "" | "drain" | "cordon" | "warm";
  /** usage and limit of `cpu` (percent of a core), `direct_memory` (MiB), `bandwidth_in` and `bandwidth_out` (kbit/s), `msg_rate` (msg/s) and `throughput` (bytes/s) */
  resources: Record<string, ResourceView> | null;
  /** load score, including the moves of the ledger */
  score_ratio: number | null;
  /** whether the mean includes it: its report is usable, and it is not drained, cordoned or excluded */
  shares_load: boolean;
  /** whether the broker's own shedding is on; null: unknown */
  sheds_itself: boolean | null;
  /** short-term average of its bundles (10 samples) */
  short: TotalsView | null;
  /** whether the broker's own splitting is on; null: unknown */
  splits_itself: boolean | null;
  /** ok, or the code of why the report is not used */
  state: string;
  /** bytes/s published, latest report */
  throughput_in: number | null;
  /** bytes/s delivered, latest report */
  throughput_out: number | null;
  /** number of topics in the report */
  topics: number | null;
  /** whether the report may not include the last moves yet */
  unsettled: boolean;
  /** verdict of the last plan on the broker */
  verdict: Verdict | null;
  /** Pulsar release of the broker */
  version: string;
}

/** One bundle: traffic (latest sample, means of the last 10 and 1,000), and whether it may move. */
export interface BundleView {
  /** the broker that owns it */
  broker: string | null;
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** code of the obstacle; null: none */
  code: string | null;
  /** number of consumers of its topics */
  consumers: number;
  /** time of the last move; null: unknown */
  last_move_ms: number | null;
  /** traffic of the latest sample */
  latest: TrafficView;
  /** traffic as long-term average */
  long: TrafficView;
  /** samples behind `long` */
  long_samples: number;
  /** whether the guard allows a move */
  may_move: boolean;
  /** time since the move was decided */
  preallocated_age_seconds: number | null;
  /** broker that the bundle is in transit to; null: none */
  preallocated_to: string | null;
  /** number of producers of its topics */
  producers: number;
  /** part of the broker's score that the bundle causes */
  score_ratio: number;
  /** traffic as short-term average */
  short: TrafficView;
  /** samples behind `short` */
  short_samples: number;
  /** number of topics */
  topics: number;
}

/** A broker as a possible target of a bundle, or the reason against this broker. */
export interface CandidateView {
  /** a broker id */
  broker: string;
  /** code of the reason against this broker; null: none */
  code: string | null;
  /** meaning of the code */
  explanation: string;
  /** score of the broker with the bundle, a ratio; null: not computed */
  score_after: number | null;
  /** current score of the broker, a ratio */
  score_before: number;
}

/** One fault in the ownership channel. Before `deadline_ms` the remedy is to wait for the brokers, afterwards to act. */
export interface ChannelFinding {
  /** the brokers concerned, the one at fault first */
  brokers: (string)[];
  /** the bundle; empty: the fault concerns a broker or the whole channel */
  bundle: string;
  /** kind of the fault */
  code: string;
  /** time by which brokers should have repaired the fault; 0: brokers do not repair it */
  deadline_ms: number;
  /** description of the fault */
  detail: string;
  /** how to fix it */
  remedy: string;
  /** start of the fault */
  since_ms: number;
  /** state of the bundle's entry; null: no entry */
  state: string | null;
}

/** Summary of the ownership channel. */
export interface ChannelSummary {
  /** number of bundles with an entry */
  bundles: number;
  /** times after which brokers repair the channel */
  deadlines: Deadlines;
  /** why the channel is not followed; empty: it is */
  detail: string;
  /** number of findings by code */
  findings: Record<string, number>;
  /** age of the oldest assignment, release or split in progress */
  in_flight_oldest_seconds: number;
  /** why Bundlekeel must not act on the channel, as a sentence; empty: it may */
  obstacle: string;
  /** recent messages that lost against a bundle's current entry, at most 100 */
  rejected: number;
  /** number of bundles by state */
  states: Record<string, number>;
  /** whether this sidecar follows the channel */
  up: boolean;
  /** where the brokers store the channel; null: unknown */
  variant: "system_topic" | "metadata_store" | null;
  /** time of the newest view of the channel; null: none yet */
  wall_ms: number | null;
}

/** Result of one check of `bundlekeel doctor` or of a Kubernetes probe, with details and the fix. */
export interface Check {
  /** result of the check */
  detail: string;
  /** what to do; empty: nothing to do */
  fix: string;
  /** name of the check */
  name: string;
  /** whether the check passed */
  ok: boolean;
  /** severity of a failed check */
  severity: "error" | "warning";
}

/** A bundle that a split creates. */
export interface ChildView {
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** share of the original bundle's messages that this new bundle gets */
  msg_rate_ratio: number;
  /** share of the original bundle's bytes that this new bundle gets */
  throughput_ratio: number;
  /** share of the original bundle's topics that this new bundle gets */
  topics_ratio: number;
}

/** A code and its meaning. */
export interface CodeView {
  /** code, listed in docs/reference/codes.md */
  code: string;
  /** details; empty: none */
  detail: string;
  /** meaning of the code */
  explanation: string;
}

/** A bundle in transit to a broker. */
export interface ComingView {
  /** time since the move was decided */
  age_seconds: number;
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
}

/** Response to a cordon: no bundle moves to this broker. */
export interface CordonedView {
  /** a broker id */
  broker: string;
  /** new state of the broker */
  state: "cordoned";
}

/** CPU use of a broker, learned from its traffic: without traffic, and per message and byte. */
export interface CpuCostsView {
  /** share of the CPU limit that does not depend on bundles; moves do not reduce it */
  base_ratio: number;
  /** CPU seconds per byte, in or out */
  byte_seconds: number;
  /** upper end of the 95 % interval */
  byte_seconds_high: number;
  /** lower end of the 95 % interval */
  byte_seconds_low: number;
  /** msg/s, in and out, at which the current mix of traffic uses the whole CPU; null: unknown */
  capacity_msg_rate: number | null;
  /** CPU seconds per message, in or out */
  message_seconds: number;
  /** upper end of the 95 % interval */
  message_seconds_high: number;
  /** lower end of the 95 % interval */
  message_seconds_low: number;
}

/** A cycle: its plan and the results. */
export interface CycleRecord {
  /** whether moves were started */
  acted: boolean;
  /** code of the verdict */
  code: string;
  /** number of the cycle */
  cycle: number;
  /** digest of the snapshot that the plan is based on; null: no plan was possible */
  digest: string | null;
  /** epoch of the leader's term; null: this sidecar did not lead */
  epoch: number | null;
  /** kind of the record */
  kind: "cycle";
  /** longest time between two readings of a broker's counters; null: values are from load reports */
  measured_seconds: number | null;
  /** code of the obstacle to executing the plan; null: none */
  obstacle: string | null;
  /** only with drains: progress of each drain by broker, in the form of `DrainView` */
  operations: Record<string, Record<string, unknown>> | null;
  /** number of finished moves by outcome */
  outcomes: Record<string, number>;
  /** hash of the plan; null: no plan was possible */
  plan: string | null;
  /** number of planned moves */
  planned: number;
  /** number of planned splits */
  planned_splits: number;
  /** number of refused bundles by code */
  refused: Record<string, number>;
  /** duration of each part in seconds: `plan`, `execute`, `split`, `total` */
  seconds: Record<string, number>;
  /** summary as a sentence */
  sentence: string;
  /** only with `shadow.strategies`: `cycle`, the number of the planned cycle, and `strategies`: by name `strategy`, `moves`, `disagreement` (a ratio of the moves), `agreement`, `regret` (a difference of max/mean), `plan_hash` */
  shadow: Record<string, unknown> | null;
  /** number of finished splits by outcome */
  splits: Record<string, number>;
  /** time of the event */
  wall_ms: number;
}

/** The result of planning in one cycle. */
export interface CycleVerdict {
  /** number of the cycle */
  cycle: number;
  /** number of planned moves */
  moves: number;
  /** number of candidates that do not move, by code */
  refusals: Record<string, number>;
  /** verdict on the plan */
  verdict: Verdict;
  /** time of the snapshot on which the decision is based */
  wall_ms: number;
}

/** The leader's last cycle. */
export interface CycleView {
  /** number of the cycle */
  id: number;
  /** number of planned moves */
  moves: number;
  /** code of the obstacle to executing the plan; null: none */
  obstacle: string | null;
  /** meaning of the code; empty: no code */
  obstacle_explanation: string;
  /** duration of the cycle */
  seconds: number | null;
  /** summary as a sentence */
  sentence: string;
  /** code of the verdict */
  verdict: string;
  /** time of the snapshot on which the decision is based */
  wall_ms: number;
}

/** The history that a proposal is based on. Bad days do not count in `coverage`. */
export interface Data {
  /** days that were left out, each with the reason */
  bad_days: Record<string, string>;
  /** recorded part of the time between first and last day, a ratio */
  coverage: number;
  /** number of recorded cycles */
  cycles: number;
  /** days that were used, in order */
  days: (string)[];
  /** time of its first snapshot */
  from_ms: number;
  /** time of its last snapshot */
  until_ms: number;
}

/** Times after which brokers repair the ownership channel, from their settings. */
export interface Deadlines {
  /** milliseconds that an assignment, release or split takes at most */
  in_flight_ms: number;
  /** milliseconds until the load data of a broker is too old */
  load_data_ms: number;
  /** milliseconds between two checks by the leader broker's monitor */
  monitor_ms: number;
  /** milliseconds until the entry of a bundle without owner is deleted */
  tombstone_ms: number;
}

/** A drain (request to empty a broker) and its progress. */
export interface DrainView {
  /** number of bundles that cannot leave, by code */
  blocked: Record<string, number>;
  /** a broker id */
  broker: string;
  /** sum over all bundles of the broker: seconds from the start of the drain until the bundle left */
  bundle_seconds: number;
  /** operator or component that made the request */
  by: string;
  /** details; empty: none */
  detail: string;
  /** time at which the broker was first empty; 0: not yet */
  emptied_ms: number;
  /** estimated time until the broker is empty; null: unknown, or blocked */
  eta_seconds: number | null;
  /** number of bundles that the broker still owns; null: unknown */
  left: number | null;
  /** number of bundles that have left the broker */
  moved: number;
  /** reason that the requester entered */
  reason: string;
  /** time of the request or change */
  since_ms: number;
  /** blocked: none of the remaining bundles may move */
  state: "draining" | "empty" | "blocked" | "unknown";
}

/** A broker that a step of the assignment dropped. */
export interface DroppedBroker {
  /** a broker id */
  broker: string;
  /** code of why the broker is not a candidate */
  code: string;
  /** meaning of the code */
  explanation: string;
}

/** Measured effect of the moves from one broker to another. */
export interface EffectRecord {
  /** time at which the first move was planned */
  begun_ms: number;
  /** moved bundles */
  bundles: (string)[];
  /** broker that received the bundles */
  destination: string;
  /** kind of the record */
  kind: "effect";
  /** `helped`, `no_benefit` or `worse` */
  outcome: string;
  /** planned decrease of the higher load of the two brokers, as a ratio of capacity */
  predicted: number;
  /** measured decrease, as a ratio of capacity; negative: an increase */
  realised: number;
  /** summary as a sentence */
  sentence: string;
  /** broker that the bundles left */
  source: string;
  /** time of the event */
  wall_ms: number;
}

/** The end of a takeover of the brokers' load shedding. */
export interface EndedView {
  /** operator or component that made the request */
  by: string;
  /** whether the failsafe job ended it */
  deadman: boolean;
  /** reason that the requester entered */
  reason: string;
  /** time of the event */
  wall_ms: number;
}

/** Results of the back-test: unbroken runs through all days, from several initial owners of bundles. */
export interface Evidence {
  /** measurements with the proposed values */
  chosen: HeldOutMeasures;
  /** confidence of the intervals, a ratio: 0.95 is 95 % */
  confidence: number;
  /** `chosen` minus `previous`, computed per day: its intervals are narrower */
  difference: HeldOutMeasures;
  /** days that the search did not use; all measurements are from these days */
  held_out: (string)[];
  /** number of initial placements of bundles: the recorded one, then random ones */
  placements: number;
  /** `calibration.prefer` of the job */
  prefer: "balance" | "calm";
  /** measurements with the values that were in effect */
  previous: HeldOutMeasures;
  /** measurements of Pulsar's own classes with their defaults, by class */
  strategies: Record<string, HeldOutMeasures>;
}

/** Response to a new exclusion of bundles or brokers from moves. */
export interface ExcludedView {
  /** number of known bundles that match now; null: unknown. 0 can be intended */
  bundles: number | null;
  /** operator or component that made the request */
  by: string;
  /** `t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER`, globs allowed */
  pattern: string;
  /** reason that the requester entered */
  reason: string;
  /** time of the request or change */
  since_ms: number;
  /** end time; 0: it lasts until an operator ends it */
  until_ms: number;
}

/** An exclusion of bundles or brokers from moves. */
export interface ExclusionView {
  /** operator or component that made the request */
  by: string;
  /** `t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER`, globs allowed */
  pattern: string;
  /** reason that the requester entered */
  reason: string;
  /** time of the request or change */
  since_ms: number;
  /** end time; 0: it lasts until an operator ends it */
  until_ms: number;
}

/** A move that Bundlekeel did not start. */
export interface ExternalMoveRecord {
  /** the bundle */
  bundle: string;
  /** broker that owns the bundle now */
  destination: string;
  /** kind of the record */
  kind: "external_move";
  /** summary as a sentence */
  sentence: string;
  /** broker that owned the bundle */
  source: string;
  /** whether the move reverted a move of Bundlekeel */
  undone: boolean;
  /** time of the event */
  wall_ms: number;
}

/** A fault in a field of a request. */
export interface FieldFault {
  /** allowed values, if known */
  allowed: string | null;
  /** path in the body (`a.b`), or name of a parameter; `body`: the whole body */
  field: string;
  /** the fault */
  reason: string;
  /** received value, if known */
  value: unknown;
}

/** Problems of bundles, the ownership channel or brokers' settings that appeared or disappeared, all of one code. */
export interface FindingRecord {
  /** brokers with this finding */
  brokers: (string)[];
  /** first bundles with this finding */
  bundles: (string)[];
  /** code of the findings */
  code: string;
  /** number of findings */
  count: number;
  /** `appeared` or `gone` */
  event: string;
  /** kind of the record */
  kind: "finding";
  /** what to do; empty: the findings are gone */
  remedy: string;
  /** summary as a sentence */
  sentence: string;
  /** time at which the oldest finding was detected */
  since_ms: number;
  /** time of the event */
  wall_ms: number;
}

/** Predicted result of a what-if: the cluster after its plan and all following plans. Splits are not counted. */
export interface Finish {
  /** false: more cycles would be needed than were simulated */
  complete: boolean;
  /** number of cycles for these moves */
  cycles: number;
  /** max/mean after the last plan, of the `measure` of the plan's `imbalance`; 1: even, 0: no load */
  max_mean: number;
  /** number of moves, including those of this plan */
  moves: number;
  /** seconds until the last bundle has arrived at its new broker */
  seconds: number;
}

/** A group with its busiest topics. */
export interface GroupDetailView {
  /** usage by broker; with very many groups, of the most loaded brokers only */
  brokers: Record<string, RatesView> | null;
  /** operator or component that made the request */
  by: string;
  /** faults of Pulsar's enforcement in this group */
  defects: (CodeView)[];
  /** by how much the sum of shares exceeds the limit */
  excess: RatesView | null;
  /** number of topics at their limit */
  held_back: number | null;
  /** sum over all topics of the seconds at their limit */
  held_back_seconds: number | null;
  /** limits over all brokers */
  limits: RatesView;
  /** `t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed */
  members: (string)[];
  /** name of the group */
  name: string;
  /** number of namespaces in the group */
  namespaces: number | null;
  /** source of the group's declaration */
  origin: "settings" | "api";
  /** written or planned changes of its ResourceGroup and namespaces */
  planned: (string)[];
  /** reason that the requester entered */
  reason: string;
  /** reports between brokers; empty: none */
  reported: (ReportedUsageView)[];
  /** most loaded topics */
  rows: (TopicView)[];
  /** sum of the shares of its topics */
  shares: RatesView | null;
  /** time at which the group was set; 0: declared in the settings */
  since_ms: number;
  /** unused shares, because the demand is in too few partitions */
  skew_loss: RatesView | null;
  /** number of topics in the group */
  topics: number | null;
  /** throughput of its topics */
  usage: RatesView | null;
  /** usage divided by the limit */
  used_ratio: RatesView | null;
}

/** Response to the removal of a quota group. */
export interface GroupRemoved {
  /** name of the group */
  name: string;
  /** source of the group's declaration */
  origin: "settings" | "api";
}

/** Response to the creation, change or reset of a quota group. */
export interface GroupSetView {
  /** limits over all brokers; null: the settings no longer declare the group */
  limits: RatesView | null;
  /** `t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed */
  members: (string)[];
  /** name of the group */
  name: string;
  /** source of the group's declaration */
  origin: "settings" | "api";
}

/** A quota group. Fields are null until the leader has measured them. */
export interface GroupView {
  /** usage by broker; with very many groups, of the most loaded brokers only */
  brokers: Record<string, RatesView> | null;
  /** operator or component that made the request */
  by: string;
  /** faults of Pulsar's enforcement in this group */
  defects: (CodeView)[];
  /** by how much the sum of shares exceeds the limit */
  excess: RatesView | null;
  /** number of topics at their limit */
  held_back: number | null;
  /** sum over all topics of the seconds at their limit */
  held_back_seconds: number | null;
  /** limits over all brokers */
  limits: RatesView;
  /** `t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed */
  members: (string)[];
  /** name of the group */
  name: string;
  /** number of namespaces in the group */
  namespaces: number | null;
  /** source of the group's declaration */
  origin: "settings" | "api";
  /** written or planned changes of its ResourceGroup and namespaces */
  planned: (string)[];
  /** reason that the requester entered */
  reason: string;
  /** reports between brokers; empty: none */
  reported: (ReportedUsageView)[];
  /** sum of the shares of its topics */
  shares: RatesView | null;
  /** time at which the group was set; 0: declared in the settings */
  since_ms: number;
  /** unused shares, because the demand is in too few partitions */
  skew_loss: RatesView | null;
  /** number of topics in the group */
  topics: number | null;
  /** throughput of its topics */
  usage: RatesView | null;
  /** usage divided by the limit */
  used_ratio: RatesView | null;
}

/** Measures of a back-test on held-out days; less is better. Negative values of a `difference` are an improvement. */
export interface HeldOutMeasures {
  /** producers and consumers that moves disconnected, times their seconds without service, per hour */
  client_seconds_per_hour: BootstrapInterval;
  /** max/mean of score minus 1 (0: balanced), averaged over time; plans and `/state` contain max/mean */
  imbalance: BootstrapInterval;
  /** moves per hour by the balancer, in the whole cluster */
  moves_per_hour: BootstrapInterval;
  /** minutes per day with any broker above 85 % */
  overloaded_minutes_per_day: BootstrapInterval;
}

/** max/mean in the last plan: most loaded broker, divided by the mean of brokers that share load; 1: balanced, 0: idle. */
export interface ImbalanceView {
  /** max/mean of scores */
  score_max_mean: number | null;
  /** max/mean of throughput */
  throughput_max_mean: number | null;
}

/** Response to the end of an exclusion. */
export interface IncludedView {
  /** pattern of the exclusion */
  pattern: string;
}

export type JournalRecord = CycleRecord | MoveRecord | SplitRecord | FindingRecord | RequestRecord | AuditRecord | EffectRecord | ExternalMoveRecord | AdoptionRecord | QuotaRecord | SettingsRecord | OtherRecord;

/** Moves whose load the brokers' reports do not include yet. */
export interface LedgerView {
  /** number of these moves */
  entries: number;
  /** brokers whose reports may not include the last moves */
  unsettled: (string)[];
}

/** A move or split that an operator requested. */
export interface ManualMoveView {
  /** for a split: Pulsar's algorithm; null: divide the load evenly */
  algorithm: string | null;
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** all other brokers as targets, with reasons against them */
  candidates: (CandidateView)[];
  /** for a split: the new bundles */
  children: (ChildView)[];
  /** whether this is a dry run, which executes nothing */
  dry_run: boolean;
  /** digest of the plan; it is executed only if planning again gives the same digest */
  hash: string;
  /** code of the obstacle that blocks the request or the leader now; empty: none */
  held: string;
  /** meaning of the code; empty: no code */
  held_explanation: string;
  /** kind of the request */
  kind: "transfer" | "unload" | "split";
  /** load of each broker before and after */
  loads: (BrokerLoad)[];
  /** planned move; null if the request is a split or the bundle stays */
  move: MoveView | null;
  /** requested bundle or topic */
  name: string;
  /** whether the bundle moves despite its cool-down */
  override_cool_down: boolean;
  /** obstacles of the bundle or its brokers; see `held` for mode and pauses */
  refusals: (RefusalView)[];
  /** id of the review that the request waits for; null: none */
  review: string | null;
  /** summary as a sentence */
  sentence: string;
  /** broker that owns the bundle */
  source: string;
  /** planned (a dry run), waiting (for the leader) or proposed (to a second operator) */
  state: "planned" | "waiting" | "proposed";
  /** broker that receives the bundle; null if the request is a split or the bundle stays */
  target: string | null;
  /** id of the task; null: a dry run, or not approved yet */
  task: string | null;
  /** for a split: requested topics */
  topics: (string)[];
  /** for a split: whether the new bundles are unloaded afterwards */
  unload: boolean;
}

/** Values of which at least one differs after a change in the cluster; cheap enough to poll twice per second. */
export interface Marks {
  /** number of the last cycle, as a string; empty: none yet */
  cycle: string;
  /** leader and epoch */
  leader: string;
  /** time of the last move, in ms */
  moves: number;
  /** time of the snapshot, in ms */
  picture: number;
  /** digest of the operators' requests */
  requests: string;
  /** whether the metadata store is connected */
  store: boolean;
  /** digest of the tasks */
  tasks: string;
}

/** What a sidecar publishes about itself in ZooKeeper. It is stored in the node of its seat (the right to read the cluster and to lead) and, while the sidecar leads, in the node of the leader. */
export interface Member {
  /** number of its term as leader; -1: it does not lead */
  epoch: number;
  /** name of the sidecar */
  id: string;
  /** number of its seat, the right to read the cluster and to lead; -1: none */
  seat: number;
  /** digest of its settings without those of its host; equal at all sidecars; empty: unknown */
  settings: string;
  /** start of the sidecar's process */
  started_ms: number;
  /** address of the sidecar's API; empty: unknown */
  url: string;
  /** Bundlekeel release of the sidecar */
  version: string;
}

/** Response to a change of the mode. */
export interface ModeView {
  /** operator or component that made the request */
  by: string;
  /** requested mode */
  mode: "observe" | "recommend" | "act";
  /** reason that the requester entered */
  reason: string;
}

/** A move of a bundle that has ended. */
export interface MoveRecord {
  /** the bundle */
  bundle: string;
  /** code of the reason if the outcome is not `done`; empty: none */
  code: string;
  /** number of the cycle that started it, as a string, or the id of the task */
  cycle: string;
  /** broker that the bundle was sent to */
  destination: string;
  /** effect on the load, if known: `helped`, `no_benefit` or `worse` */
  effect: string | null;
  /** epoch of the leader that started it; -1: unknown */
  epoch: number;
  /** error from the broker or the metadata store; empty: none */
  error: string;
  /** brokers that redirected the unload request */
  hops: (string)[];
  /** id of the stored intent, with which a new leader finishes it */
  intent: string;
  /** kind of the record */
  kind: "move";
  /** time at which the new owner was first observed; 0: no owner observed */
  landed_ms: number;
  /** broker that owns the bundle now; empty: none, or unknown */
  landed_on: string;
  /** `done`, `landed_elsewhere`, `released` (no broker owns it), `unknown` or `refused` (nothing moved) */
  outcome: string;
  /** planned scores of both brokers, as ratios: `source_before`, `source_after`, `target_before` and `target_after`; empty: not predicted */
  predicted: Record<string, number>;
  /** only with `effect`: `predicted` of the effect record */
  predicted_gain: number | null;
  /** only with `effect`: `realised` of the effect record */
  realised_gain: number | null;
  /** duration, including the wait in the queue */
  seconds: number;
  /** summary as a sentence */
  sentence: string;
  /** broker that owned the bundle */
  source: string;
  /** start time */
  started_ms: number;
  /** topic whose lookup makes the destination load the bundle; empty: none is known */
  topic: string;
  /** time of the event */
  wall_ms: number;
}

/** Resources that a bundle uses at its broker. */
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

/** A move of a bundle between two brokers. Scores are ratios, predicted for right before and after the move. */
export interface MoveView {
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** six resources that the bundle uses: CPU (percent of a core), direct memory (MiB), bandwidth in (kbit/s), bandwidth out (kbit/s), messages (msg/s) and throughput (bytes/s), in this order */
  pressure: (number)[];
  /** `traffic` by name */
  rates: TrafficView;
  /** rule that selected the bundle */
  rule: string;
  /** second-best target; empty: none */
  runner_up: string;
  /** summary as a sentence */
  sentence: string;
  /** broker that the bundle leaves */
  source: string;
  /** score of the source after the move, a ratio */
  source_after: number;
  /** score of the source before the move, a ratio */
  source_before: number;
  /** broker that receives the bundle */
  target: string;
  /** score of the target after the move, a ratio */
  target_after: number;
  /** score of the target before the move, a ratio */
  target_before: number;
  /** exceeded limit, a ratio */
  threshold: number;
  /** four rates: msg/s published, msg/s delivered, bytes/s published, bytes/s delivered, in this order */
  traffic: (number)[];
  /** `pressure` by name */
  usage: MoveUsageView;
}

/** The unload of all bundles of a namespace. */
export interface NamespaceUnloadView {
  /** number of bundles in the namespace */
  bundles: number;
  /** whether this is a dry run, which executes nothing */
  dry_run: boolean;
  /** estimated duration of the moves alone; null: none may move */
  eta_seconds: number | null;
  /** digest of the plan; it is executed only if planning again gives the same digest */
  hash: string;
  /** code of the obstacle that blocks the request or the leader now; empty: none */
  held: string;
  /** meaning of the code; empty: no code */
  held_explanation: string;
  /** kind of the request */
  kind: "unload";
  /** moves as planned now; the target of each bundle is selected again when it moves */
  moves: (MoveView)[];
  /** tenant/namespace */
  namespace: string;
  /** whether bundles move despite their cool-down */
  override_cool_down: boolean;
  /** number of bundles that stay, by code */
  refusal_counts: Record<string, number>;
  /** bundles that stay, with reasons */
  refusals: (RefusalView)[];
  /** id of the review that the request waits for; null: none */
  review: string | null;
  /** summary as a sentence */
  sentence: string;
  /** planned (a dry run), waiting (for the leader) or proposed (to a second operator) */
  state: "planned" | "waiting" | "proposed";
  /** id of the task; null: a dry run, or not approved yet */
  task: string | null;
  /** bundles that do not leave in the next cycle, with reasons */
  waiting: (RefusalView)[];
}

/** A reason why the newest proposed thresholds are not adopted. */
export interface ObjectionView {
  /** code of the objection */
  code: string;
  /** details; empty: none */
  detail: string;
  /** meaning of the code */
  explanation: string;
  /** field of the proposal; empty: the whole proposal */
  field: string;
  /** whether an operator can adopt the proposal despite this objection. force: with `force`; yes: without `force`; no: never; empty: unknown */
  person: "" | "no" | "force" | "yes";
}

/** All active requests of operators. */
export interface OperationsView {
  /** brokers that receive no bundles */
  cordons: (RequestView)[];
  /** brokers that are drained and kept empty */
  drains: (DrainView)[];
  /** bundles and brokers that are excluded from moves */
  exclusions: (ExclusionView)[];
  /** code of the obstacle to all moves, which an operator must remove; empty: none */
  held: string;
  /** meaning of the code; empty: no code */
  held_explanation: string;
  /** active pauses */
  pauses: (ScopePauseView)[];
  /** pinned bundles */
  pins: (PinView)[];
  /** brokers that receive bundles gradually */
  warms: (RequestView)[];
}

/** Fields of every journal record. A record of a kind that a later release adds has further fields. */
export interface OtherRecord {
  /** kind of the record */
  kind: string;
  /** summary as a sentence */
  sentence: string;
  /** time of the event */
  wall_ms: number;
}

/** The result of a move of a task. */
export interface OutcomeView {
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** code of why the move was refused or failed; null: none */
  code: string | null;
  /** broker that owns the bundle afterwards; empty: none, or unknown */
  landed_on: string;
  /** outcome of the move */
  outcome: "done" | "landed_elsewhere" | "released" | "unknown" | "refused";
}

/** A broker's largest bundles, and the sum of its other bundles. */
export interface OverviewBroker {
  /** a broker id */
  broker: string;
  /** largest bundles by throughput */
  bundles: (OverviewBundle)[];
  /** number of other bundles */
  other_bundles: number;
  /** bytes/s of the other bundles */
  other_throughput: number;
}

/** A bundle with its short-term throughput. */
export interface OverviewBundle {
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** index in the list of namespaces */
  namespace: number;
  /** bytes/s, in and out, short-term average */
  throughput: number;
}

/** A namespace and its throughput. */
export interface OverviewNamespace {
  /** tenant/namespace */
  namespace: string;
  /** bytes/s, in and out, short-term average */
  throughput: number;
}

/** Summary of the cluster: namespaces and brokers by throughput. */
export interface OverviewView {
  /** all brokers */
  brokers: (OverviewBroker)[];
  /** namespaces by throughput, largest first */
  namespaces: (OverviewNamespace)[];
  /** time of the snapshot; null: none yet */
  wall_ms: number | null;
}

/** A pause: until it ends, nothing moves. */
export interface PauseView {
  /** operator or component that made the request */
  by: string;
  /** reason that the requester entered */
  reason: string;
  /** time of the request or change */
  since_ms: number;
  /** end time; null: until resumed */
  until_ms: number | null;
}

/** Response to a pause of one tenant, namespace or broker (the scope). */
export interface PausedScopeView {
  /** number of known bundles that match now; null: unknown. 0 can be intended */
  bundles: number | null;
  /** operator or component that made the request */
  by: string;
  /** reason that the requester entered */
  reason: string;
  /** `tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID` */
  scope: string;
  /** time of the request or change */
  since_ms: number;
  /** end time; null: until resumed */
  until_ms: number | null;
}

/** A request of an operator. */
export interface PersonView {
  /** operator or component that made the request */
  by: string;
  /** reason that the requester entered */
  reason: string;
  /** time of the event */
  wall_ms: number;
  /** request as text */
  what: string;
}

/** A pin: a bundle that stays at its broker. */
export interface PinView {
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** operator or component that made the request */
  by: string;
  /** reason that the requester entered */
  reason: string;
  /** time of the request or change */
  since_ms: number;
  /** end time; 0: it lasts until an operator ends it */
  until_ms: number;
}

/** Response to the creation of a pin (a bundle stays at its broker). */
export interface PinnedView {
  /** broker that owns the bundle; null: none */
  broker: string | null;
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** operator or component that made the request */
  by: string;
  /** reason that the requester entered */
  reason: string;
  /** time of the request or change */
  since_ms: number;
  /** end time; 0: it lasts until an operator ends it */
  until_ms: number;
}

/** The owner of a topic or bundle. */
export interface Place {
  /** broker that owns the bundle; null: none */
  broker: string | null;
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** entry in the ownership channel */
  channel: UnitView | null;
  /** hash of the topic: 0x and eight hex digits; null: the request named a bundle */
  hash: string | null;
  /** requested advertised listener; null: none */
  listener: string | null;
  /** broker that the bundle is in transit to; null: none */
  preallocated_to: string | null;
  /** client address of the owner, for the requested listener */
  service_url: string;
  /** whether a broker owns the bundle */
  state: "owned" | "unowned" | "unloading";
  /** the topic or partition; null: the request named a bundle */
  topic: string | null;
  /** false: the topic is not stored, and a client creates it by using it; null: the request named a bundle */
  topic_exists: boolean | null;
  /** admin address of the owner */
  web_url: string;
}

/** max/mean: most loaded broker divided by the mean of the brokers that share the load; 1: balanced, 0: idle. */
export interface PlanImbalance {
  /** max/mean after the moves */
  after: number;
  /** max/mean before the moves */
  before: number;
  /** kind of load that the strategy balances */
  measure: "score" | "throughput";
}

/** A recent plan, without its moves. */
export interface PlanSummary {
  /** time at which the plan is deleted */
  expires_ms: number;
  /** digest of the plan; it is executed only if planning again gives the same digest */
  hash: string;
  /** number of moves */
  moves: number;
  /** placement, which selected the targets */
  placement: string;
  /** strategy, which selected the bundles to move */
  strategy: string;
  /** verdict: why bundles move or stay */
  verdict: Verdict;
  /** time of the snapshot on which the decision is based */
  wall_ms: number;
  /** whether the plan assumes other brokers or traffic than at present; such a plan is never executed */
  what_if: boolean;
}

/** A dry run: moves and splits with reasons, refusals with codes and explanations, load of each broker before and after. */
export interface PlanView {
  /** for a what-if: a sentence with its assumptions, and the highest load of a broker now and in the what-if */
  assumption: string;
  /** verdict on each broker: why it is relieved, or why not */
  brokers: (Verdict)[];
  /** whether the leader computed the plan */
  by_leader: boolean;
  /** time at which the plan is deleted */
  expires_ms: number;
  /** for a what-if: result after repeated cycles */
  finished: Finish | null;
  /** digest of the plan; it is executed only if planning again gives the same digest */
  hash: string;
  /** max/mean (1: balanced) before and after; in thresholds, `imbalance` is max/mean minus 1 */
  imbalance: PlanImbalance;
  /** load of each broker before and after */
  loads: (BrokerLoad)[];
  /** planned moves, in order */
  moves: (MoveView)[];
  /** placement, which selected the targets */
  placement: string;
  /** number of refusals by code */
  refusal_counts: Record<string, number>;
  /** candidates that do not move, with reasons */
  refusals: (RefusalView)[];
  /** request, in the form of the body of POST /plans */
  request: Record<string, unknown>;
  /** digest of the snapshot that the plan is based on */
  snapshot_digest: string;
  /** bundles above a limit that are not split, with reasons */
  split_refusals: (RefusalView)[];
  /** planned splits, after the moves */
  splits: (SplitView)[];
  /** strategy, which selected the bundles to move */
  strategy: string;
  /** verdict: why bundles move or stay */
  verdict: Verdict;
  /** time of the snapshot on which the decision is based */
  wall_ms: number;
  /** whether it assumes other brokers or traffic; such a plan is never executed */
  what_if: boolean;
}

/** An error (RFC 9457). */
export interface Problem {
  /** for an invalid value (422): the allowed values of the first fault, see `errors` */
  allowed: string | null;
  /** for a conflict (409) or `forbidden` (403): the reason, a code in docs/reference/codes.md or docs/reference/api.md */
  code: string | null;
  /** description of the error */
  detail: string;
  /** for a conflict: the reasons as text */
  difference: (string)[] | null;
  /** for an invalid value (422): all faults */
  errors: (FieldFault)[] | null;
  /** for an invalid value (422): the field of the first fault, see `errors` */
  field: string | null;
  /** id in the header `X-Request-ID`; log lines of the request contain it */
  request_id: string | null;
  /** HTTP status */
  status: number;
  /** name of the status */
  title: string;
  /** kind of error, as a URI */
  type: string;
  /** for an invalid value (422): the value of the first fault, see `errors` */
  value: unknown;
}

/** Proposed thresholds: the content of a file `thresholds.json`, with `values` and `previous` instead of `parameters`. */
export interface ProposalView {
  /** why the gain is not larger, and what else may help */
  advice: (string)[];
  /** cluster of the history; empty: the history does not contain its name */
  cluster: string;
  /** time at which the job wrote it */
  created_ms: number;
  /** history that the proposal is based on */
  data: Data;
  /** what to change, and what it gains on held-out days; or why nothing changes */
  decision: string;
  /** digest of the proposal, which `thresholds/adopt` expects */
  digest: string;
  /** measurements with proposed and previous values */
  evidence: Evidence;
  /** version of the document */
  format: number;
  /** path of the file below `calibration.uri` */
  path: string;
  /** previous value of each searched parameter */
  previous: Record<string, number>;
  /** releases of the job and of the libraries that it used */
  software: string;
  /** strategy of the parameters */
  strategy: string;
  /** proposed value of each searched parameter */
  values: Record<string, number>;
}

/** Rates and resource groups that quotas wrote in one cycle, or problems of quotas. */
export interface QuotaRecord {
  /** not for `problems`: the first successful writes. For `rates`: `topic`, `side` (`publish` or `dispatch`), `group`, `before` and `rate` (`messages` in msg/s, `bytes` in bytes/s; -1: no limit), `restores` (whether it is the original rate). For `resource_groups`: `namespace`, `before` and `group` (names), or `group`, `before` and `limits` (per second and broker). null: none */
  changes: (Record<string, unknown>)[] | null;
  /** `RatesWritten`, `ResourceGroupsWritten` or `QuotaProblems` */
  code: string;
  /** not for `problems`: the first failed writes, in the same form, each with `error` */
  errors: (Record<string, unknown>)[] | null;
  /** kind of the record */
  kind: "quota";
  /** only for `problems`: the problems as sentences; empty: all are solved */
  problems: (string)[] | null;
  /** summary as a sentence */
  sentence: string;
  /** time of the event */
  wall_ms: number;
  /** `rates` or `resource_groups` (written), or `problems` (a change of the problems) */
  what: string;
}

/** Reasons for the current throughput of a group or topic. */
export interface QuotaWhyView {
  /** codes in those sentences */
  codes: (CodeView)[];
  /** group of the topic, or the group itself */
  group: string;
  /** kind of the requested object */
  kind: "group" | "topic";
  /** name of the requested object */
  name: string;
  /** reasons as sentences */
  sentences: (string)[];
}

/** All quota groups and their enforcement. */
export interface QuotasView {
  /** whether rates are written */
  acting: boolean;
  /** time between two quota cycles */
  cycle_seconds: number;
  /** `quotas.enforcer` of the settings */
  enforcer: "off" | "native" | "policies";
  /** meanings of the codes in `obstacle` and `left` */
  explanations: Record<string, string>;
  /** groups in the order of their declaration */
  groups: (GroupView)[];
  /** number of topic rates that are not written, by code */
  left: Record<string, number>;
  /** mode in effect */
  mode: "observe" | "recommend" | "act";
  /** code of the obstacle to writing; null: none */
  obstacle: string | null;
  /** problems of the groups */
  problems: (string)[];
  /** summary as a sentence */
  sentence: string;
  /** subscription to the reports between brokers */
  transport: TransportView;
  /** start of the leader's last quota cycle; null: none yet */
  wall_ms: number | null;
  /** changes of rates in the last quota cycle */
  writes: WritesView;
}

/** Rates per second; null: no limit, or unknown. */
export interface RatesView {
  /** delivered bytes per second */
  dispatch_bytes: number | null;
  /** delivered messages per second */
  dispatch_messages: number | null;
  /** published bytes per second */
  publish_bytes: number | null;
  /** published messages per second */
  publish_messages: number | null;
}

/** A reason (code) that prevented moves of bundles or the execution of a plan. */
export interface RefusalSummary {
  /** code, listed in docs/reference/codes.md */
  code: string;
  /** number of cycles in which it occurred */
  cycles: number;
  /** highest number of bundles in one cycle; 0: it is about the whole cycle */
  most: number;
}

/** A bundle, or all bundles of a broker, that a plan does not move, and the reason. */
export interface RefusalView {
  /** a broker id */
  broker: string;
  /** the bundle; empty: the whole broker */
  bundle: string;
  /** code, listed in docs/reference/codes.md */
  code: string;
  /** details; empty: none */
  detail: string;
  /** meaning of the code */
  explanation: string;
  /** time at which the obstacle ends; 0: in the next cycle, or unknown */
  frees_ms: number;
  /** for a budget: its limit, in moves or as a share of the traffic */
  limit: number | null;
  /** for a budget: its used part, in the unit of `limit` */
  used: number | null;
}

/** Response to a drain (empty a broker) or warm-up (fill a broker), with its moves. */
export interface RelocationView {
  /** a broker id */
  broker: string;
  /** number of bundles that the broker owns (drain), or that it receives (warm-up) */
  bundles: number;
  /** details; empty: none */
  detail: string;
  /** whether this is a dry run, which executes nothing */
  dry_run: boolean;
  /** estimated duration of these moves; null: none may move */
  eta_seconds: number | null;
  /** code of the obstacle that blocks the request or the leader now; empty: none */
  held: string;
  /** meaning of the code; empty: no code */
  held_explanation: string;
  /** moves, in order */
  moves: (MoveView)[];
  /** number of refusals by code */
  refusal_counts: Record<string, number>;
  /** bundles that do not move for now, with reasons */
  refusals: (RefusalView)[];
  /** summary as a sentence */
  sentence: string;
}

/** The usage of a group that a broker last reported to other brokers, converted to rates per second. */
export interface ReportedUsageView {
  /** broker ID, or the service URL if no known broker has that address */
  broker: string;
  /** age of the broker's last report on delivery; null: none */
  dispatch_age_seconds: number | null;
  /** measured throughput of the group's topics on the broker; null: it has no topics of the group */
  measured: RatesView | null;
  /** age of the broker's last report on publishing; null: none */
  publish_age_seconds: number | null;
  /** whether the broker is registered; the reports of a broker that left can still count */
  registered: boolean;
  /** reported usage; null: none yet */
  reported: RatesView;
}

/** A request of an operator. */
export interface RequestRecord {
  /** only for a quota group: the group after the request, `origin`, `members` and `limits` (per second over all brokers; null: no limit); null: the group did not exist */
  after: Record<string, unknown> | null;
  /** only for a quota group: the group before the request, `origin`, `members` and `limits` (per second over all brokers; null: no limit); null: the group did not exist */
  before: Record<string, unknown> | null;
  /** operator who made the request */
  by: string;
  /** only for a quota group: name of the group */
  group: string | null;
  /** kind of the record */
  kind: "request";
  /** reason that the operator entered */
  reason: string;
  /** summary as a sentence */
  sentence: string;
  /** time of the event */
  wall_ms: number;
  /** the request as text; a takeover and its end have `takeover`, `handback` or `deadman` */
  what: string;
}

/** A cordon (no bundle moves to the broker) or warm-up (the broker is filled) of a broker. */
export interface RequestView {
  /** a broker id */
  broker: string;
  /** operator or component that made the request */
  by: string;
  /** reason that the requester entered */
  reason: string;
  /** time of the request or change */
  since_ms: number;
}

/** Usage and limit of one resource of a broker. */
export interface ResourceView {
  /** limit in the unit of the resource; 0: unknown */
  limit: number;
  /** whether the limit comes from the setting `capacity` */
  overridden: boolean;
  /** usage in percent of the limit */
  percent: number;
  /** usage in the unit of the resource */
  usage: number;
}

/** Plan and progress of a rolling restart. */
export interface RestartPlan {
  /** brokers in the order in which they restart; finished ones are first */
  brokers: (RestartStep)[];
  /** estimated duration of these moves, without the starts of the brokers */
  eta_seconds: number;
  /** what to do about `refused`; empty: nothing */
  fix: string;
  /** code of the obstacle that blocks the request or the leader now; empty: none */
  held: string;
  /** meaning of the code; empty: no code */
  held_explanation: string;
  /** estimated number of moves until all brokers have restarted and the last one is filled */
  moves: number;
  /** overload threshold: a drain moves no bundle that lifts a broker above it */
  overloaded_ratio: number;
  /** reason why the next broker must not restart now; empty: it may */
  refused: string;
  /** summary as a sentence */
  sentence: string;
}

/** One broker of a rolling restart. */
export interface RestartStep {
  /** a broker id */
  broker: string;
  /** number of bundles that it reports; null: no usable report */
  bundles: number | null;
  /** estimated duration of its drain; 0: done */
  eta_seconds: number;
  /** overload threshold minus `highest_ratio`: the free capacity without the broker; null: unknown */
  free_ratio: number | null;
  /** highest score of another broker after its drain; null: done or unknown */
  highest_ratio: number | null;
  /** number of bundles that no other broker can receive now */
  homeless: number;
  /** number of bundles that its drain moves now; 0 if it is done */
  moves: number;
  /** done: it restarted in the last 24 h; restarting: drained, and stopped or not uncordoned yet */
  state: "done" | "restarting" | "draining" | "waiting";
}

/** Response to the end of the pause of everything. */
export interface Resumed {
  /** operator or component that made the request */
  by: string;
  /** reason that the requester entered */
  reason: string;
}

/** Response to the end of the pause of one tenant, namespace or broker (the scope). */
export interface ResumedScopeView {
  /** operator or component that made the request */
  by: string;
  /** reason that the requester entered */
  reason: string;
  /** scope whose pause was ended */
  scope: string;
}

/** Response to the reversion of adopted thresholds. */
export interface ReversionView {
  /** digest of the proposal */
  digest: string;
  /** summary as a sentence */
  sentence: string;
}

/** Reverted thresholds, which are not adopted again automatically. */
export interface RevertedView {
  /** operator or component that made the request */
  by: string;
  /** digest of the proposal */
  digest: string;
  /** reason that the requester entered */
  reason: string;
  /** time of the request or change */
  since_ms: number;
}

/** A change that one operator proposed and another operator must approve. */
export interface ReviewView {
  /** actions that are possible now: approve, discard, stop */
  actions: (string)[];
  /** time of the proposal */
  at_ms: number;
  /** operator who proposed the change */
  by: string;
  /** time of the approval or discard; 0: not yet */
  decided_ms: number;
  /** `hash` of the proposed change */
  id: string;
  /** kind of the task */
  kind: "plan" | "transfer" | "unload" | "split";
  /** reason that the requester entered */
  reason: string;
  /** reason that the reviewer entered */
  remark: string;
  /** operator who approved or discarded the change; empty: none yet */
  reviewer: string;
  /** state of the review */
  state: "proposed" | "approved" | "executing" | "done" | "aborted" | "discarded" | "expired";
  /** id of the task; empty: none yet */
  task: string;
  /** proposed change, as text */
  title: string;
}

/** A pause of everything, or of one tenant, namespace or broker (the scope). */
export interface ScopePauseView {
  /** operator or component that made the request */
  by: string;
  /** reason that the requester entered */
  reason: string;
  /** `tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID`; empty: everything */
  scope: string;
  /** time of the request or change */
  since_ms: number;
  /** end time; 0: it lasts until an operator ends it */
  until_ms: number;
}

/** One setting in effect, and its origin. */
export interface Setting {
  /** key in the settings file */
  key: string;
  /** origin of the value: file and line, environment or default */
  origin: string;
  /** names of the corresponding Pulsar settings */
  pulsar_keys: (string)[];
  /** the unit of the value */
  unit: string;
  /** the value in effect; secrets are hidden */
  value: unknown;
  /** purpose of the setting */
  why: string;
}

/** A reload of the settings file. */
export interface SettingsRecord {
  /** not if refused: keys that take effect with the next cycle */
  applied: (string)[] | null;
  /** kind of the record */
  kind: "settings";
  /** `applied`, `unchanged` or `refused` (the previous settings stay in effect) */
  outcome: string;
  /** only if refused: the errors, one per line of the file */
  problems: (string)[] | null;
  /** not if refused: keys that need a restart */
  restart_needed: (string)[] | null;
  /** summary as a sentence */
  sentence: string;
  /** time of the event */
  wall_ms: number;
}

/** The wait after an outage, during which nothing moves. */
export interface SettlingView {
  /** whether the outage lasts */
  away: boolean;
  /** brokers that were registered before the outage and are missing */
  missing: (string)[];
  /** time without a change of the registry */
  quiet_seconds: number;
  /** summary as a sentence */
  sentence: string;
  /** time at which moves start again; 0: unknown */
  until_ms: number;
  /** the outage, as a sentence */
  why: string;
}

/** The result of a signal of changed traffic. */
export interface SignalView {
  /** whether the leader reads counters early; false: it did recently, or does not lead */
  reads: boolean;
}

/** Consecutive cycles with the same verdict. */
export interface SpellView {
  /** number of cycles */
  cycles: number;
  /** summary as a sentence */
  sentence: string;
  /** time of the first cycle */
  since_ms: number;
  /** time of the last cycle */
  until_ms: number;
}

export type SplitAlgorithm = "range_equally_divide" | "topic_count_equally_divide" | "specified_positions_divide" | "flow_or_qps_equally_divide";

/** A split of a bundle that has ended. */
export interface SplitRecord {
  /** broker that owned the bundle */
  broker: string;
  /** the bundle */
  bundle: string;
  /** bundles that replace it; empty: not `done` */
  children: (string)[];
  /** code of the reason if the outcome is not `done`; empty: none */
  code: string;
  /** number of the cycle that started it, as a string, or the id of the task */
  cycle: string;
  /** epoch of the leader that started it; -1: unknown */
  epoch: number;
  /** error from the broker or the metadata store; empty: none */
  error: string;
  /** id of the stored intent, with which a new leader finishes it */
  intent: string;
  /** kind of the record */
  kind: "split";
  /** `done`, `unknown` or `refused` (nothing was done) */
  outcome: string;
  /** hashes at which the bundle was divided */
  positions: (number)[];
  /** rule that selected the bundle */
  rule: string;
  /** duration */
  seconds: number;
  /** summary as a sentence */
  sentence: string;
  /** start time */
  started_ms: number;
  /** time of the event */
  wall_ms: number;
}

/** A split of a bundle. */
export interface SplitView {
  /** requested hash positions; empty: chosen so that the load divides evenly */
  at: (number)[];
  /** broker that owns the bundle */
  broker: string;
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** whether the hash range is divided in the middle */
  halves: boolean;
  /** number of consecutive cycles above the limit */
  hits: number;
  /** exceeded limit in the unit of `value` */
  limit: number;
  /** exceeded limit: topics, sessions, msg_rate, bandwidth, hot, or `by hand` */
  rule: string;
  /** summary as a sentence */
  sentence: string;
  /** value of the bundle: topics, sessions, msg/s, MiB/s, or shares of the mean broker load */
  value: number;
}

/** State of the sidecar: leader, mode, last cycle, balance of the load, takeover. */
export interface State {
  /** whether this sidecar executes its plans */
  acting: boolean;
  /** details of the obstacle, such as brokers, operator or reason; empty: none */
  acting_detail: string;
  /** code of the obstacle to acting; null: none */
  acting_obstacle: string | null;
  /** name of the cluster in the settings */
  cluster: string;
  /** load manager of the brokers */
  cluster_mode: "modular" | "extensible" | "other" | "mixed" | "unknown";
  /** last cycle; null: none yet */
  cycle: CycleView | null;
  /** epoch of the leader's term; null: no known leader */
  epoch: number | null;
  /** max/mean of the load (1: balanced); in thresholds, `imbalance` is max/mean minus 1 */
  imbalance: ImbalanceView;
  /** bundles whose move or split by an earlier leader is not settled yet */
  intents: (string)[];
  /** leader; null: unknown */
  leader: Member | null;
  /** moves in progress, or not yet included in the brokers' reports */
  ledger: LedgerView;
  /** name of the responding sidecar */
  member: string;
  /** all sidecars with a seat */
  members: (Member)[];
  /** mode in effect */
  mode: "observe" | "recommend" | "act";
  /** mode in the settings file, the highest allowed one */
  mode_ceiling: "observe" | "recommend" | "act";
  /** overload threshold: a broker with a higher score is overloaded */
  overloaded_ratio: number;
  /** active pause; null: none */
  paused: PauseView | null;
  /** placement, which selects the targets */
  placement: string;
  /** role of this sidecar; bench: it waits for a seat */
  role: "leader" | "follower" | "bench";
  /** seat of this sidecar; null: on the bench */
  seat: number | null;
  /** wait after an outage; null: none */
  settling: SettlingView | null;
  /** connection to the metadata store */
  store: StoreView;
  /** strategy, which selects the bundles to move */
  strategy: string;
  /** the last takeover; null: there was none, if `takeover_known` */
  takeover: TakeoverView | null;
  /** whether this sidecar could read the last takeover's record */
  takeover_known: boolean;
  /** time since the process started */
  uptime_seconds: number;
  /** release of this sidecar */
  version: string;
}

/** Response to the stop of a task: no further move of it starts. */
export interface Stopping {
  /** no further move starts */
  state: "stopping";
  /** id of the task */
  task: string;
}

/** The connection to the metadata store. */
export interface StoreView {
  /** whether the sidecar has a session */
  connected: boolean;
  /** timeout of the session */
  session_seconds: number;
}

/** A plan that waits for the leader or for a review. */
export interface Submitted {
  /** digest of the plan; it is executed only if planning again gives the same digest */
  hash: string;
  /** number of moves */
  moves: number;
  /** id of the review that the request waits for; null: none */
  review: string | null;
  /** number of splits */
  splits: number;
  /** waiting (for the leader) or proposed (to a second operator) */
  state: "waiting" | "proposed";
  /** id of the task; empty (not null): a second operator must approve first */
  task: string;
}

/** Summary of a period. Moves and effects are of all sidecars, all other values of this one. */
export interface SummaryView {
  /** number of cycles of this sidecar */
  cycles: number;
  /** number of moves by effect: helped, no_benefit, worse */
  effects: Record<string, number>;
  /** number of these cycles in which another sidecar led; its summary has the reasons */
  followed: number;
  /** average decrease of the more loaded broker's load by these moves, a ratio */
  gain: number | null;
  /** time of the oldest record in the period; null: no records */
  known_since_ms: number | null;
  /** number of moves by outcome */
  moves: Record<string, number>;
  /** why plans were not executed, most frequent first */
  obstacles: (RefusalSummary)[];
  /** periods in which a broker was overloaded, longest first */
  overloads: (SpellView)[];
  /** operators' requests to this sidecar, and takeovers, oldest first */
  people: (PersonView)[];
  /** number of cycles with planned moves that were not executed */
  recommended: number;
  /** highest number of moves in one of these cycles */
  recommended_moves: number;
  /** why bundles did not move, most frequent first */
  refusals: (RefusalSummary)[];
  /** number of requests that this sidecar refused */
  refused_requests: number;
  /** summary as a sentence */
  sentence: string;
  /** first millisecond of the period */
  since_ms: number;
  /** last millisecond of the period */
  until_ms: number;
}

/** The last takeover of the brokers' own load shedding. */
export interface TakeoverView {
  /** whether the takeover is active */
  active: boolean;
  /** operator or component that made the request */
  by: string;
  /** end of the takeover; null: it is active */
  ended: EndedView | null;
  /** namespaces of a partial takeover; empty: all namespaces */
  namespaces: (string)[];
  /** reason that the requester entered */
  reason: string;
  /** time of the event */
  wall_ms: number;
}

/** A request that the leader executes (task), and its progress. Tasks are also stored in this form. */
export interface TaskView {
  /** operator or component that made the request */
  by: string;
  /** details; empty: none */
  detail: string;
  /** changes since the request that made it fail; empty: none */
  difference: (string)[];
  /** digest of the plan; it is executed only if planning again gives the same digest */
  hash: string;
  /** kind of the task */
  kind: "plan" | "transfer" | "unload" | "split";
  /** time at which the request was stored for the leader; 0: unknown */
  left_ms: number;
  /** results of the moves */
  moves: (OutcomeView)[];
  /** reason that the requester entered */
  reason: string;
  /** waiting: for the leader. done: executed; see the `outcome` of each of `moves`. failed: no bundle reached its target, or not all moves were started; bundles may have moved, see `moves` */
  state: "waiting" | "running" | "done" | "failed" | "stopped";
  /** id of the task */
  task: string;
}

/** A parameter that a proposal would change. */
export interface ThresholdChange {
  /** the value in force */
  current: number;
  /** evidence for the proposed value */
  evidence: string;
  /** the name of the parameter */
  parameter: string;
  /** the value proposed */
  proposed: number;
  /** distance between both values, in steps of the parameter's range; null: not measurable in steps */
  steps: number | null;
}

/** State of the calibrated thresholds: proposal, objections, adoption, reversions. */
export interface ThresholdsView {
  /** adopted thresholds; null: none */
  adopted: AdoptedView | null;
  /** changes of the proposal to the values in effect */
  changes: (ThresholdChange)[];
  /** newest proposal; null: no readable proposal */
  document: ProposalView | null;
  /** why no proposal could be read; empty: no error */
  error: string;
  /** `calibration.mode` of the settings */
  mode: "off" | "recommend" | "adopt";
  /** objections to the proposal */
  objections: (ObjectionView)[];
  /** time at which proposals were last read */
  read_ms: number;
  /** reverted thresholds, oldest first */
  reverted: (RevertedView)[];
  /** summary as a sentence */
  sentence: string;
}

/** A topic of a group. */
export interface TopicView {
  /** brokers that serve the topic */
  brokers: (string)[];
  /** written or planned rates by side; null: the rate is removed */
  change: Record<string, WrittenRate | null>;
  /** codes of why nothing is written */
  codes: (string)[];
  /** estimated demand, as a share: its most loaded partition times the number of partitions */
  demand: RatesView;
  /** kinds of rate that are at their limit */
  held_back: (string)[];
  /** unused share, because the demand is in too few partitions */
  loss: RatesView;
  /** current limit of each partition */
  partition_rate: RatesView;
  /** number of partitions */
  partitions: number;
  /** share of the limit that the topic may use */
  share: RatesView;
  /** name of the topic */
  topic: string;
  /** current throughput */
  usage: RatesView;
}

/** Traffic of a broker: the averages of its bundles added up, incoming plus outgoing. */
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

/** State of the leader's subscription to the brokers' reports about groups. */
export interface TransportView {
  /** details; empty: none */
  detail: string;
  /** why the newest unusable message could not be used; empty: none */
  fault: string;
  /** time since which reports are received without a gap */
  since_ms: number;
  /** off: brokers do not report, or there are no groups */
  state: "off" | "connecting" | "ok" | "stuck" | "down";
}

/** Results of the trial of adopted thresholds so far. In the first stage, the results are those of its `namespaces`, and `…_before` those of all other namespaces in the same time, scaled to the same traffic. Their imbalance is the load of their brokers/mean minus 1. */
export interface TrialView {
  /** max/mean of score minus 1 (0: balanced) with these thresholds and the previous weights; null: none yet */
  imbalance: number | null;
  /** max/mean of score minus 1 before the adoption; null: unknown */
  imbalance_before: number | null;
  /** highest max/mean of score minus 1 that the proposal predicts */
  imbalance_promised: number;
  /** moves per hour before the adoption; null: unknown */
  moves_before: number | null;
  /** moves per hour with the adopted thresholds; null: none yet */
  moves_per_hour: number | null;
  /** highest number of moves per hour that the proposal predicts */
  moves_promised: number;
  /** observed time that the trial needs */
  needed_seconds: number;
  /** code of the obstacle of the leader's last cycle, whose time is not counted; empty: none */
  obstacle: string;
  /** observed time, in which the leader balanced with the adopted thresholds */
  seconds: number;
  /** why the first stage cannot end yet, although it was long enough; empty: it can */
  unjudged: string;
}

/** Response to an uncordon: bundles may move to this broker again. */
export interface UncordonedView {
  /** a broker id */
  broker: string;
  /** requests that were ended: cordon, drain, warm */
  ended: (string)[];
}

export type UnitState = "Init" | "Free" | "Owned" | "Assigning" | "Releasing" | "Splitting" | "Deleted";

/** One entry of the ownership channel. */
export interface UnitView {
  /** seconds since this sidecar first read the entry */
  age_seconds: number;
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
  /** hash ranges into which the bundle is split, with their brokers */
  children: Record<string, string>;
  /** broker that the bundle is assigned to */
  destination: string;
  /** whether the entry replaced the previous one regardless of its version */
  force: boolean;
  /** broker that serves the bundle now; null: none */
  owner: string | null;
  /** time at which a broker wrote the entry, by its own clock */
  since_ms: number;
  /** broker that the bundle leaves */
  source: string;
  /** state of the bundle in the channel */
  state: UnitState;
  /** version of the entry; grows with each change */
  version: number;
}

/** Response to the end of a pin (a bundle stayed at its broker). */
export interface UnpinnedView {
  /** name of a bundle: tenant/namespace/range */
  bundle: string;
}

/** Outcome of a cycle, or of one broker in it: why bundles move or stay. */
export interface Verdict {
  /** broker of the verdict; empty: the whole cycle */
  broker: string;
  /** a code of docs/reference/codes.md */
  code: string;
  /** cost of the imbalance so far: 1 per second at twice the tolerated difference */
  cost: number;
  /** with compat: calls in a row with a large difference */
  hits_high: number;
  /** with compat: calls in a row with a small difference */
  hits_low: number;
  /** price of the moves that would end the imbalance, in the unit of `cost` */
  price: number;
  /** the outcome as a sentence */
  sentence: string;
}

/** The responding sidecar, and the caller's permissions. */
export interface WhoAmI {
  /** name of the responding sidecar */
  member: string;
  /** mode in effect */
  mode: "observe" | "recommend" | "act";
  /** whether the caller may make changes through this interface */
  mutations: boolean;
  /** role of the sidecar; `your_role` is the caller's role */
  role: "leader" | "follower" | "bench";
  /** release of this sidecar */
  version: string;
  /** authenticated name of the caller; empty: no credentials */
  you: string;
  /** role of the caller; each role includes the lower ones */
  your_role: "viewer" | "operator" | "admin";
}

/** Explanation of the current owner of a bundle or of the bundles of a broker, and the action to change it. */
export interface WhyView {
  /** the broker, or the owner of the bundle */
  broker: string | null;
  /** the bundle; null for a broker */
  bundle: string | null;
  /** the bundle's entry in the ownership channel */
  channel: UnitView | null;
  /** obstacles to a move, and when they end */
  codes: (CodeView)[];
  /** problems of that entry */
  findings: (ChannelFinding)[];
  /** records of the last 20 moves, oldest first */
  history: (JournalRecord)[];
  /** kind of the requested object */
  kind: "broker" | "bundle" | "topic";
  /** name of the requested object */
  name: string;
  /** for a broker: moves of the last plan to or from it */
  planned: (string)[];
  /** summary as a sentence */
  sentence: string;
  /** the next action, or why there is nothing to do */
  what_would_change_it: string;
}

/** Changes of rates in the last quota cycle. */
export interface WritesView {
  /** number of failed changes */
  failed: number;
  /** number of topic policies and ResourceGroups that Bundlekeel set */
  held: number;
  /** number of planned changes */
  planned: number;
  /** number of written changes */
  written: number;
}

/** A rate in a topic policy; -1: no limit. */
export interface WrittenRate {
  /** bytes per second */
  bytes: number;
  /** messages per second */
  messages: number;
}
