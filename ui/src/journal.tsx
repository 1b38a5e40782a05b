// The journal as a timeline: what was done, and what it brought against what was predicted.

import { useState } from "preact/hooks";
import type { JournalRecord } from "./api";
import { useAnswer } from "./live";
import { Loaded, Said } from "./parts";
import { count, dated, percent, words } from "./words";

const KINDS: Record<string, string> = {
  "": "everything but quiet cycles",
  move: "moves",
  effect: "effects of moves",
  cycle: "cycles",
  split: "splits",
  request: "what people asked for",
  audit: "requests that change something",
  finding: "findings",
  external_move: "moves by others",
  adoption: "thresholds",
};

const OUTCOMES: Record<string, string> = { helped: "helped", no_benefit: "did not help", worse: "made it worse" };

/** Cycles that say the same as the one before are no news. */
function news(records: JournalRecord[]): JournalRecord[] {
  let last = "";
  return records.filter((row) => {
    if (row.kind !== "cycle") return true;
    const said = (row.sentence ?? "").replace(/[\d.,]+/g, "#");
    const fresh = said !== last;
    last = said;
    return fresh;
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
      {bar(realised, "after", "realised")}
    </div>
  );
}

/** A move's owner is named only where it is not the destination, which the line has already. */
function said(row: JournalRecord): string {
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
          Planned because the source would go from {percent(scores.source_before)} to {percent(scores.source_after)} of its
          capacity, the destination from {percent(scores.target_before)} to {percent(scores.target_after)}.{" "}
        </>
      )}
      {code && <>Code: {words(code)}.</>}
    </div>
  );
}

function Entry(props: { row: JournalRecord }) {
  const { row } = props;
  const effect = row.kind === "effect" && typeof row.predicted === "number";
  return (
    <li class={`entry ${row.kind}`}>
      <time dateTime={new Date(row.wall_ms).toISOString()}>{dated(row.wall_ms)}</time>
      <div>
        <span class="tag">{row.kind}</span> <Said text={said(row)} />
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
        {row.effect && <Gain predicted={row.predicted_gain ?? 0} realised={row.realised_gain ?? 0} outcome={row.effect} />}
      </div>
    </li>
  );
}

export function JournalView() {
  const [kind, setKind] = useState("");
  const answer = useAnswer<JournalRecord[]>(`journal?limit=300${kind ? `&kind=${kind}` : ""}`);
  return (
    <>
      <p>Newest first. Moves are known to every sidecar; the other lines are those of the one that answers.</p>
      <label class="inline">
        <span>Show</span>
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          {Object.entries(KINDS).map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <Loaded answer={answer} empty="Nothing of this kind has happened yet.">
        {(records) => {
          const shown = (kind ? records : news(records)).slice(-150).reverse();
          return (
            <>
              <p class="quiet">{count(shown.length, "entry", "entries")}</p>
              <ol class="timeline">
                {shown.map((row, place) => (
                  <Entry key={`${row.wall_ms} ${row.kind} ${row.bundle ?? place}`} row={row} />
                ))}
              </ol>
            </>
          );
        }}
      </Loaded>
    </>
  );
}
