// How the API is asked, and its answers under the names that the page has for them.

import type { JournalRecord as Line, OtherRecord, WhyView } from "./answers";

export type {
  BrokerView as Broker,
  BundleView as Bundle,
  OverviewView as Overview,
  BrokerLoad as Load,
  MoveView as Move,
  PlanView as Plan,
  RefusalView as Refusal,
  State,
  TaskView as Task,
  WhoAmI,
} from "./answers";

type Field<Kind> = Kind extends unknown ? keyof Kind : never;
type Value<Kind, Name> = Kind extends unknown ? (Name extends keyof Kind ? Kind[Name] : never) : never;
/** A kind of record has only some of the fields. */
export type JournalRecord = Pick<OtherRecord, "kind" | "wall_ms"> & { [Name in Exclude<Field<Line>, "kind" | "wall_ms">]?: Value<Line, Name> };
export type Why = Omit<WhyView, "history"> & { history: JournalRecord[] };

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
    answer = await fetch(path.startsWith("/") ? path : `/api/v1/${path}`, { method, headers: headers(kind), signal, credentials: "omit", ...sent });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "the sidecar does not respond");
  }
  const told = Date.parse(answer.headers.get("Date") ?? "");
  // The header has whole seconds: differences below two are none.
  if (!Number.isNaN(told)) ahead = Math.abs(told - Date.now()) < 2000 ? 0 : told - Date.now();
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  const detail: string = said.detail ?? `the sidecar responded with HTTP status ${answer.status}`;
  // A wrong value: which one, and what would be right, unless the detail says so.
  const field = said.field && !detail.includes(said.field) ? `${said.field}: ` : "";
  const allowed = said.allowed && !detail.includes(said.allowed) ? ` (given: ${JSON.stringify(said.value)}; allowed: ${said.allowed})` : "";
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
