// Follows the sidecar's events, and asks again for what is shown whenever something changed.

import { useEffect, useState } from "preact/hooks";
import { Problem, ask, now, request } from "./api";

export type Connection = "connecting" | "live" | "polling" | "lost" | "locked";

const POLL_MS = 5000;
const GATHER_MS = 200;
const FIRST_MS = 1500;

let connection: Connection = "connecting";
let version = 0;
let gathering = 0;
let stop = new AbortController();
const listeners = new Set<() => void>();

function tell(): void {
  for (const listener of [...listeners]) listener();
}

function become(next: Connection): void {
  if (next !== connection) {
    connection = next;
    tell();
  }
}

/** Ask again for everything shown, once for many events that come together. */
export function refresh(): void {
  if (gathering) return;
  gathering = window.setTimeout(() => {
    gathering = 0;
    version += 1;
    tell();
  }, GATHER_MS);
}

/** Begin anew with another token. */
export function restart(): void {
  stop.abort();
  stop = new AbortController();
  version += 1;
  become("connecting");
  tell();
  void follow(stop.signal);
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => window.setTimeout(resolve, ms));
}

async function follow(signal: AbortSignal): Promise<void> {
  let first = true;
  while (!signal.aborted) {
    try {
      const answer = await request("GET", "events", undefined, signal);
      become("live");
      // At the beginning everything has just been asked for.
      await read(answer, first ? FIRST_MS : 0);
      first = false;
    } catch (error) {
      if (signal.aborted) return;
      const status = error instanceof Problem ? error.status : 0;
      if (status === 401) return become("locked");
      // Too many pages are open: this one asks every few seconds instead. Anything else: it is away.
      become(status === 503 ? "polling" : "lost");
      await pause(status === 503 ? POLL_MS : 2000);
      if (!signal.aborted) refresh();
    }
  }
}

/** Refresh at every change; the first one, which says how things are, may wait. */
async function read(answer: Response, wait: number): Promise<void> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop() ?? "";
    if (!events.some((event) => event.startsWith("event: change"))) continue;
    if (wait) window.setTimeout(refresh, wait);
    else refresh();
    wait = 0;
  }
}

/** How the page gets changes now. */
export function useConnection(): Connection {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((count) => count + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return connection;
}

export interface Answer<T> {
  data: T | null;
  problem: Problem | null;
  /** When `data` came, by the sidecar's clock; 0: never. */
  at: number;
}

/** What the API answers to this path, asked again after every change; `null` asks nothing. Old data stays meanwhile. */
export function useAnswer<T>(path: string | null): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { path: string | null }>({ path, data: null, problem: null, at: 0 });
  const [asked, setAsked] = useState(version);
  useEffect(() => {
    const listener = () => setAsked(version);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    ask<T>("GET", path, undefined, abort.signal).then(
      (data) => setAnswer({ path, data, problem: null, at: now() }),
      (problem) => {
        if (abort.signal.aborted) return;
        setAnswer((old) => ({ path, data: old.path === path ? old.data : null, at: old.at, problem }));
      },
    );
    return () => abort.abort();
  }, [path, asked]);
  return answer.path === path ? answer : { data: null, problem: null, at: 0 };
}

/** Seconds that pass, for ages and remaining times. */
export function useClock(everySeconds = 1): number {
  const [at, setAt] = useState(now());
  useEffect(() => {
    const timer = window.setInterval(() => setAt(now()), everySeconds * 1000);
    return () => window.clearInterval(timer);
  }, [everySeconds]);
  return at;
}
