// What the API says of quota groups, and its rates as people read and write them.

import type { GroupView as Group, RatesView as Rates } from "./answers";
import { Problem } from "./api";
import { rate } from "./words";

export type { GroupView as Group, QuotasView as Quotas, RatesView as Rates, TopicView as Topic } from "./answers";
export const KINDS = ["publish_messages", "publish_bytes", "dispatch_messages", "dispatch_bytes"] as const satisfies (keyof Rates)[];
export type Kind = keyof Rates;

export const LABELS: Record<Kind, string> = {
  publish_messages: "Published messages",
  publish_bytes: "Published bytes",
  dispatch_messages: "Delivered messages",
  dispatch_bytes: "Delivered bytes",
};

export function limitedKinds(group: Group): Kind[] {
  return KINDS.filter((kind) => group.limits[kind] !== null);
}

/** A rate of this kind; a dash for none. */
export function amount(kind: Kind, value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (kind.endsWith("bytes")) return rate(value);
  const digits = value < 10 && !Number.isInteger(value) ? 1 : 0;
  return `${value.toLocaleString("en-GB", { maximumFractionDigits: digits })} msg/s`;
}

const SIZE = /^(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?$/;
const POWERS: Record<string, number> = { "": 0, K: 1, M: 2, G: 3, T: 4 };

/** A limit as a person writes it: a number, for bytes also 10MB or 1MiB; null for none. Problem. */
export function limitOf(kind: Kind, text: string): number | null {
  const given = text.trim();
  if (!given) return null;
  if (!kind.endsWith("bytes")) {
    const value = Number(given);
    if (!Number.isFinite(value)) throw new Problem(0, `${LABELS[kind]}: “${given}” is not a number of messages`);
    return value;
  }
  const found = SIZE.exec(given);
  if (!found) throw new Problem(0, `${LABELS[kind]}: “${given}” is not a number of bytes; write 500000, 500kB, 10MB or 1MiB`);
  return Number(found[1]) * (found[3] ? 1024 : 1000) ** POWERS[found[2].toUpperCase()];
}

/** The other way round, exactly. */
export function limitText(kind: Kind, value: number | null): string {
  if (value === null) return "";
  if (kind.endsWith("bytes") && value > 0) {
    for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]] as const) {
      if (value % size === 0) return `${value / size}${unit}`;
    }
  }
  return String(value);
}
