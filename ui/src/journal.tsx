// The journal as a timeline: what was done, and what it brought against what was predicted.

import { useState } from "preact/hooks";
import type { JournalRecord } from "./api";
import { useAnswer } from "./live";
import { Loaded, Said } from "./parts";
import { count, dated, moment, percent, words } from "./words";

const KINDS: Record<string, string> = {
  "": "everything, similar cycles in one line",
  move: "moves",
  effect: "effects of moves",
  cycle: "cycles",
  split: "splits",
  request: "requests of operators",
  audit: "API requests that change something",
  finding: "findings",
  external_move: "moves not made by Bundlekeel",
  adoption: "thresholds",
  quota: "quotas",
  settings: "settings",
};

// So many are asked for at a time.
const PAGE = 300;
const SEARCHED = ["sentence", "bundle", "source", "destination", "landed_on", "by", "reason", "code"] as const;

const OUTCOMES: Record<string, string> = { helped: "helped", no_benefit: "did not help", worse: "made it worse" };

// Verdicts of cycles that move nothing: one is no news after another of them.
const QUIET = ["Balanced", "HitCount", "Unsettled"];

/** A line, and the cycles after it that are like it: how many, and when the last one was. */
interface Line {
  row: JournalRecord;
  more: number;
  until: number;
}

/** A cycle that says the same as the one before it is counted there; an effect that its moves tell already is left out. */
function news(records: JournalRecord[]): Line[] {
  let said = "";
  let cycle: Line | null = null;
  const judged = new Set(records.filter((row) => row.kind === "move" && row.effect).map((row) => `${row.source} ${row.destination}`));
  return records.flatMap((row) => {
    if (row.kind === "effect" && judged.has(`${row.source} ${row.destination}`)) return [];
    const line = { row, more: 0, until: 0 };
    if (row.kind !== "cycle") return line;
    const quiet = !row.planned && QUIET.includes(row.code ?? "");
    const says = quiet ? QUIET[0] : (row.sentence ?? "").replace(/[\d.,]+/g, "#");
    if (cycle && says === said) {
      cycle.more += 1;
      cycle.until = row.wall_ms;
      return [];
    }
    [said, cycle] = [says, line];
    return line;
  });
}

function Gain(props: { predicted: number; realised: number; outcome: string }) {
  const { predicted, realised } = props;
  const end = Math.max(Math.abs(predicted), Math.abs(realised), 0.001);
  const bar = (value: number, kind: string, label: string) => (
    <div class="pairrow">
      <span class="quiet">{label}</span>
      <div class="track thin">
        <div class={`bar ${kind}`} style={{ width: `${(100 * Math.max(0, value)) / end}%` }} />
      </div>
      <span class="value">{percent(value, 1)}</span>
    </div>
  );
  return (
    <div class="gain">
      <p>
        Effect: {OUTCOMES[props.outcome] ?? words(props.outcome)}. The peak of the two brokers went down by this share of
        capacity:
      </p>
      {bar(predicted, "before", "predicted")}
      {bar(realised, "after", "measured")}
    </div>
  );
}

/** A move's owner is named only where it is not the destination, which the line has already. */
export function said(row: JournalRecord): string {
  const sentence = row.sentence ?? "";
  const ending = `, owned by ${row.destination}`;
  return row.kind === "move" && row.landed_on === row.destination && sentence.endsWith(ending)
    ? sentence.slice(0, -ending.length)
    : sentence;
}

/** Why a move was made: what the plan expected of it; and why it did not end as asked. */
function Because(props: { row: JournalRecord }) {
  const { predicted, code } = props.row;
  const scores = (predicted ?? {}) as Partial<Record<"source_before" | "source_after" | "target_before" | "target_after", number>>;
  return (
    <div class="quiet">
      {scores.source_before !== undefined && scores.target_after !== undefined && (
        <>
          Planned because the source would go from {percent(scores.source_before, 1)} to {percent(scores.source_after, 1)} of
          its capacity, the destination from {percent(scores.target_before, 1)} to {percent(scores.target_after, 1)}.{" "}
        </>
      )}
      {code && <>Code: {words(code)}.</>}
    </div>
  );
}

function Entry(props: { line: Line }) {
  const { row, more, until } = props.line;
  const effect = row.kind === "effect" && typeof row.predicted === "number";
  return (
    <li class={`entry ${row.kind}`}>
      <time dateTime={new Date(row.wall_ms).toISOString()}>{dated(row.wall_ms)}</time>
      <div>
        <span class="tag">{words((row.kind === "adoption" && row.code) || row.kind)}</span> <Said text={said(row)} />
        {more > 0 && (
          <span class="quiet">
            {" "}
            (and {count(more, "similar cycle")}, until {moment(until)})
          </span>
        )}
        {row.kind === "move" && <Because row={row} />}
        {row.remedy && (
          <div class="quiet">
            Remedy: <Said text={row.remedy} />
          </div>
        )}
        {row.reason && (
          <div class="quiet">
            {row.by ? `${row.by}: ` : ""}
            {row.reason}
          </div>
        )}
        {effect && <Gain predicted={row.predicted as number} realised={row.realised ?? 0} outcome={row.outcome ?? ""} />}
        {row.effect && (
          <div class="quiet">
            Effect: {OUTCOMES[row.effect] ?? words(row.effect)}. The peak of the two brokers went down by {percent(row.realised_gain ?? 0, 1)} of
            capacity; predicted: {percent(row.predicted_gain ?? 0, 1)}.
          </div>
        )}
      </div>
    </li>
  );
}

/** What is asked for, as the API has it; `until`: of the first page the reader's own end, then where the page before began. */
function path(kind: string, since: number, until: number): string {
  const bounds = { ...(kind && { kind }), ...(since && { since_ms: since }), ...(until && { until_ms: until }) };
  return `journal?${new URLSearchParams({ limit: `${PAGE}`, ...Object.fromEntries(Object.entries(bounds).map(([key, value]) => [key, `${value}`])) })}`;
}

/** As the API has them, one a line. */
function save(records: JournalRecord[]): void {
  const link = document.createElement("a");
  link.download = "bundlekeel-journal.jsonl";
  link.href = URL.createObjectURL(new Blob(records.map((row) => `${JSON.stringify(row)}\n`), { type: "application/jsonl" }));
  link.click();
  URL.revokeObjectURL(link.href);
}

function Entries(props: { kind: string; since: number; until: number; text: string; onOlder?: (until: number) => void }) {
  const { kind, onOlder } = props;
  const answer = useAnswer<JournalRecord[]>(path(kind, props.since, props.until));
  return (
    <Loaded answer={answer} empty="There are no records of this kind in this period.">
      {(records) => {
        const wanted = props.text.trim().toLowerCase();
        const lines = kind ? records.map((row) => ({ row, more: 0, until: 0 })) : news(records);
        const found = lines.filter(({ row }) => SEARCHED.some((field) => `${row[field] ?? ""}`.toLowerCase().includes(wanted)));
        const shown = [...found].reverse();
        return (
          <>
            <p class="quiet">
              {count(shown.length, "entry", "entries")}, {dated(records[0].wall_ms)} to {dated(records[records.length - 1].wall_ms)}{" "}
              <button type="button" onClick={() => save(found.map(({ row }) => row))}>
                Save as JSON Lines
              </button>
            </p>
            <ol class="timeline">
              {shown.map((line, place) => (
                <Entry key={`${line.row.wall_ms} ${line.row.kind} ${line.row.bundle ?? place}`} line={line} />
              ))}
            </ol>
            {onOlder && records.length === PAGE && (
              <button type="button" onClick={() => onOlder(records[0].wall_ms)}>
                Older entries
              </button>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

function Time(props: { label: string; value: string; set: (value: string) => void }) {
  return (
    <label>
      <span>{props.label}</span>
      <input type="datetime-local" value={props.value} onInput={(event) => props.set(event.currentTarget.value)} />
    </label>
  );
}

export function JournalView() {
  const [kind, setKind] = useState("");
  const [text, setText] = useState("");
  const [since, setSince] = useState("");
  const [until, setUntil] = useState("");
  // Where each page of older entries ends.
  const [pages, setPages] = useState<number[]>([]);
  const anew =
    <T,>(set: (value: T) => void) =>
    (value: T) => {
      set(value);
      setPages([]);
    };
  const all = [until ? Date.parse(until) : 0, ...pages];
  return (
    <>
      <p>Newest first. The moves are those of all sidecars, all other records those of this sidecar only.</p>
      <div class="fields">
        <label>
          <span>Show</span>
          <select value={kind} onChange={(event) => anew(setKind)(event.currentTarget.value)}>
            {Object.entries(KINDS).map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label>
          <span>Broker, bundle, operator or word</span>
          <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <Time label="From" value={since} set={anew(setSince)} />
        <Time label="Until" value={until} set={anew(setUntil)} />
      </div>
      {all.map((end, place) => (
        <Entries
          key={end}
          kind={kind}
          since={since ? Date.parse(since) : 0}
          until={end}
          text={text}
          onOlder={place === all.length - 1 ? (oldest) => setPages([...pages, oldest]) : undefined}
        />
      ))}
    </>
  );
}
