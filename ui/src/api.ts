// What the API answers, and how it is asked. Only the fields the page shows are named here.

export interface Verdict {
  code: string;
  sentence: string;
  broker?: string;
}

export interface Member {
  id: string;
  epoch: number;
}

export interface State {
  member: string | Member;
  role: "leader" | "follower" | "bench";
  leader: Member | null;
  members: Member[];
  cluster: string;
  cluster_mode: string;
  mode: "observe" | "recommend" | "act";
  mode_ceiling: string;
  strategy: string;
  placement: string;
  paused: { reason: string; by: string; until_ms: number | null } | null;
  store: { connected: boolean };
  cycle: { id: string | number; wall_ms: number; sentence: string; verdict: string; moves: number } | null;
  version: string;
  settling: { sentence: string } | null;
}

/** The name of the sidecar that answers. */
export function memberOf(state: State): string {
  return typeof state.member === "string" ? state.member : state.member.id;
}

export interface WhoAmI {
  mutations: boolean;
  you: string;
  your_role: string;
}

export interface Broker {
  broker: string;
  state: string;
  detail?: string;
  score_ratio?: number;
  reported_score_ratio?: number;
  resources?: Record<string, { percent: number; usage: number; limit: number; overridden: boolean }>;
  throughput_in?: number;
  throughput_out?: number;
  predicted_throughput?: number;
  msg_rate_in?: number;
  msg_rate_out?: number;
  bundles?: number;
  topics?: number;
  report_age_seconds?: number;
  sheds_itself?: boolean | null;
  unsettled?: boolean;
  preallocated?: { bundle: string; age_seconds: number }[];
  verdict?: Verdict | null;
}

export interface Drawing {
  wall_ms: number | null;
  namespaces: { namespace: string; throughput: number }[];
  brokers: {
    broker: string;
    bundles: { bundle: string; namespace: number; throughput: number }[];
    other_bundles: number;
    other_throughput: number;
  }[];
}

export interface Bundle {
  bundle: string;
  short: { throughput_in: number; throughput_out: number };
  may_move: boolean;
  code: string | null;
}

export interface Move {
  bundle: string;
  source: string;
  target: string;
  rule: string;
  threshold: number;
  source_before: number;
  source_after: number;
  target_before: number;
  target_after: number;
  runner_up: string;
  traffic: number[];
  sentence: string;
}

export interface Refusal {
  code: string;
  bundle: string;
  broker: string;
  detail: string;
  explanation: string;
  frees_ms?: number;
}

export interface Load {
  broker: string;
  score_before: number;
  score_after: number;
  throughput_before: number;
  throughput_after: number;
  bundles_before: number;
  bundles_after: number;
}

export interface Plan {
  hash: string;
  wall_ms: number;
  expires_ms: number;
  strategy: string;
  placement: string;
  verdict: Verdict;
  moves: Move[];
  refusals: Refusal[];
  refusal_counts: Record<string, number>;
  splits: { bundle: string; broker: string; sentence: string }[];
  split_refusals: Refusal[];
  loads: Load[];
  by_leader: boolean;
  what_if?: boolean;
}

export interface Task {
  task: string;
  kind?: string;
  hash: string;
  state: string;
  detail: string;
  reason?: string;
  by?: string;
  moves?: { bundle: string; outcome: string; landed_on: string; code: string | null }[];
}

export interface JournalRecord {
  kind: string;
  wall_ms: number;
  sentence?: string;
  outcome?: string;
  bundle?: string;
  source?: string;
  destination?: string;
  landed_on?: string;
  started_ms?: number;
  planned?: number;
  reason?: string;
  by?: string;
  remedy?: string;
  effect?: string;
  predicted?: number | Record<string, number>;
  realised?: number;
  predicted_gain?: number;
  realised_gain?: number;
}

export interface Why {
  sentence: string;
  codes: { code: string; explanation: string; detail: string }[];
  history: JournalRecord[];
  what_would_change_it: string | string[] | null;
}

/** An answer that is no success: RFC 9457 where the API could say something, else what went wrong on the way. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly difference: string[] = [],
  ) {
    super(message);
  }
}

const KEPT_AS = "bundlekeel.token";
// How far the sidecar's clock is ahead of this machine's, milliseconds; its times are compared with its own clock.
let ahead = 0;

export function now(): number {
  return Date.now() + ahead;
}

export function token(): string {
  return sessionStorage.getItem(KEPT_AS) ?? "";
}

export function keepToken(given: string): void {
  if (given) sessionStorage.setItem(KEPT_AS, given);
  else sessionStorage.removeItem(KEPT_AS);
}

function headers(more: Record<string, string>): Record<string, string> {
  const given = token();
  return given ? { ...more, Authorization: `Bearer ${given}` } : more;
}

/** Ask for an answer as it comes; Problem when there is none or it is an error. */
export async function request(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const kind: Record<string, string> = body === undefined ? {} : { "Content-Type": "application/json" };
  let answer: Response;
  try {
    answer = await fetch(`/api/v1/${path}`, { method, headers: headers(kind), signal, credentials: "omit", ...sent });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "the sidecar does not answer");
  }
  const told = Date.parse(answer.headers.get("Date") ?? "");
  // The header has whole seconds: differences below two are none.
  if (!Number.isNaN(told)) ahead = Math.abs(told - Date.now()) < 2000 ? 0 : told - Date.now();
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  const detail: string = said.detail ?? `the sidecar answered ${answer.status}`;
  // A wrong value: which one, and what would be right, unless the detail says so.
  const field = said.field && !detail.includes(said.field) ? `${said.field}: ` : "";
  const allowed = said.allowed ? ` (given: ${JSON.stringify(said.value)}; allowed: ${said.allowed})` : "";
  throw new Problem(answer.status, `${field}${detail}${allowed}`, said.difference ?? []);
}

/** Ask for JSON. */
export async function ask<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await request(method, path, body, signal)).json()) as T;
}

/** A name as one part of a path. */
export function part(name: string): string {
  return encodeURIComponent(name);
}
