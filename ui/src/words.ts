// Numbers, names and times as people read them, and the sentence on top of the page.

import type { Broker, State } from "./api";

type Scored = Pick<Broker, "broker" | "state" | "score_ratio" | "shares_load">;

export function percent(ratio: number | null | undefined, digits = 0): string {
  return ratio === null || ratio === undefined || !Number.isFinite(ratio) ? "unknown" : `${(100 * ratio).toFixed(digits)}\u00a0%`;
}

export function rate(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return "unknown";
  const units: [number, string][] = [
    [1e9, "GB/s"],
    [1e6, "MB/s"],
    [1e3, "kB/s"],
  ];
  for (const [size, unit] of units) if (bytes >= size) return `${(bytes / size).toFixed(bytes >= 100 * size ? 0 : 1)}\u00a0${unit}`;
  return `${bytes.toFixed(0)}\u00a0B/s`;
}

/** How many times as much: everywhere with the same digits, so that two places can be compared. */
export function ratio(times: number): string {
  return times.toFixed(2);
}

/** Names of brokers without the ending that all of them have, from a dot or colon on: `broker-0` of `broker-0.pulsar:8080`. */
export function shortNames(brokers: Pick<Broker, "broker">[]): (name: string) => string {
  const names = brokers.map((row) => row.broker);
  const endings = [...(names[0] ?? "").matchAll(/[.:]/g)].map((found) => names[0].slice(found.index));
  // A first part that is a number belongs to an address.
  const ending = names.length > 1 && !/^[\d[]/.test(names[0]) ? endings.find((end) => names.every((name) => name.endsWith(end))) : undefined;
  return (name) => (ending && name.endsWith(ending) ? name.slice(0, -ending.length) : name);
}

export function messages(perSecond: number): string {
  return `${Math.round(perSecond).toLocaleString("en-GB")} msg/s`;
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en-GB")} ${number === 1 ? one : many}`;
}

/** With the reader's zone: logs and colleagues may have another one. */
export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
}

/** A day of the history, `2026-09-12`, as dates are written here. */
export function day(name: string): string {
  return new Date(`${name}T12:00`).toLocaleDateString("en-GB", { day: "2-digit", month: "short", year: "numeric" });
}

/** With its date, today's too: for lists that outlast a day. */
export function dated(ms: number): string {
  return `${new Date(ms).toLocaleDateString("en-GB", { day: "2-digit", month: "short", year: "numeric" })} ${clock(ms)}`;
}

export function moment(ms: number): string {
  const date = new Date(ms);
  const today = date.toDateString() === new Date().toDateString();
  return today ? clock(ms) : `${date.toLocaleDateString("en-GB", { day: "2-digit", month: "short" })} ${clock(ms)}`;
}

export function duration(seconds: number): string {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))}\u00a0s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)}\u00a0min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)}\u00a0h`;
  return `${Math.round(seconds / 86_400)} days`;
}

/** How long something takes, as foreseen. */
export function about(seconds: number): string {
  return seconds < 1 ? "less than a second" : `about ${duration(seconds)}`;
}

/** `persistent`-less parts of a bundle's name: its namespace and its range. */
export function bundleParts(bundle: string): [string, string] {
  const cut = bundle.lastIndexOf("/");
  return [bundle.slice(0, cut), bundle.slice(cut + 1)];
}

/** A text of the API as a sentence: with a capital letter, unless it begins with a name, and a full stop. */
export function sentence(text: string): string {
  const begun = /^[a-z]+\b(?![-.:/_])/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

/** The sidecar's own text, which is also for terminals and logs, with signs and spaces as on this page. */
export function typeset(text: string): string {
  return text.replace(/ -> /g, " → ").replace(/>= /g, "≥ ").replace(/(\d)%/g, "$1\u00a0%");
}

// The strategy's verdict on a broker has nothing to do with the overload threshold.
const VERDICTS: Record<string, string> = { Overloaded: "should give bundles", Underloaded: "should take bundles" };

/** A code such as CoolDown in words. */
export function words(code: string): string {
  return VERDICTS[code] ?? code.replace(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase();
}

export const MODES: Record<State["mode"], string> = {
  observe: "only observes",
  recommend: "shows what it would do, moves nothing",
  act: "executes its plans",
};

/** Why the leader, in mode act, carries no plan out; "" when it does. A pause is told by itself. */
export function obstacle(state: State): string {
  const { cycle } = state;
  if (state.mode !== "act" || state.paused || !cycle?.obstacle) return "";
  const detail = state.acting_obstacle === cycle.obstacle ? state.acting_detail : "";
  return `${cycle.obstacle_explanation || words(cycle.obstacle)}${detail && ` (${detail})`}`;
}

export interface Balance {
  usable: Scored[];
  mean: number;
  busiest: Scored | null;
  /** Busiest over mean; 0 when there is no load. */
  times: number;
}

/** The most loaded broker, and the mean of those that share the load, as the sidecar counts them (`Plan.imbalance`). */
export function balanceOf(brokers: Scored[]): Balance {
  const usable = brokers.filter((row) => row.state === "ok" && row.score_ratio !== undefined && row.score_ratio !== null);
  const sharing = usable.filter((row) => row.shares_load);
  const counted = sharing.some((row) => row.score_ratio! > 0) ? sharing : usable;
  const mean = counted.reduce((sum, row) => sum + row.score_ratio!, 0) / Math.max(1, counted.length);
  const busiest = usable.reduce<Scored | null>((top, row) => (top && top.score_ratio! >= row.score_ratio! ? top : row), null);
  return { usable, mean, busiest, times: busiest && mean > 0 ? busiest.score_ratio! / mean : 0 };
}

/** How many bundles move, or moved so lately that reports do not show it yet: scores count them where they go. */
export function onTheWay(brokers: Pick<Broker, "preallocated">[]): number {
  return brokers.reduce((sum, row) => sum + (row.preallocated?.length ?? 0), 0);
}

// Below this mean share of capacity there is no load to speak of.
const IDLE = 0.01;
// From here on, in multiples of the mean, nobody would call the brokers balanced by the figures alone.
const UNEVEN = 1.25;

/** How the headline begins, up to its verb. Balanced is what the leader found at its last cycle, with its own readings. */
function beginning(state: State, busiest: string, times: number): string {
  if (state.cycle?.verdict !== "Balanced") return `Broker ${busiest}`;
  if (times < UNEVEN) return `Balanced: the most loaded broker, ${busiest},`;
  return `The last cycle found the brokers balanced; now${state.role === "leader" ? "" : ", with the values of this sidecar,"} broker ${busiest}`;
}

/** What is unbalanced and what happens next, in one or two sentences. */
export function verdict(state: State, brokers: Broker[]): string {
  const { usable, mean, busiest: top, times } = balanceOf(brokers);
  if (!brokers.length) return "The load of the cluster is not known yet. It comes with the first load reports of the brokers.";
  if (!top) return "No broker has a usable load report.";
  const [one, moves, busiest] = [usable.length === 1, state.cycle?.moves ?? 0, shortNames(brokers)(top.broker)];
  if (one) return `One broker, ${busiest}, at ${percent(top.score_ratio)} of its capacity: there is nothing to balance.`;
  if (mean < IDLE && !moves) return `The cluster is idle: the most loaded broker, ${busiest}, uses ${percent(top.score_ratio, 1)} of its capacity.`;
  const balanced = state.cycle?.verdict === "Balanced";
  const share = `${percent(top.score_ratio)} of its capacity, the mean is ${percent(mean)}`;
  const moving = onTheWay(brokers);
  const arrived = moving === 1 ? " once the bundle in transit has arrived" : ` once the ${moving} bundles in transit have arrived`;
  const carries = `${beginning(state, busiest, times)} carries ${ratio(times)} times the mean (${share})${moving ? arrived : ""}`;
  if (!moves) return `${carries}. No ${moving ? "further " : ""}moves planned${balanced ? "" : " yet"}.`;
  const plan = count(moves, "bundle");
  if (state.paused) return `${carries}; the plan would move ${plan}, but moves are paused.`;
  return state.mode === "act" && !obstacle(state) ? `${carries}; the plan moves ${plan}.` : `${carries}; the plan would move ${plan}.`;
}
