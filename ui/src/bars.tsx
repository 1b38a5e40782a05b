// Brokers as bars: how much of a broker's capacity is used, with what is on it inside.

import { openPanel } from "./address";
import type { OperationsView } from "./answers";
import { useState } from "preact/hooks";
import type { Broker, Overview, Load, State } from "./api";
import { Search } from "./parts";
import { about, balanceOf, bundleParts, count, duration, moment, percent, rate, shortNames, words } from "./words";

/** Namespaces that get a colour and a letter of their own; all others share one. */
const NAMED = 7;
const LETTERS = "ABCDEFG";
/** More brokers than this can be searched by name. */
export const MANY = 20;
/** Percent of a track below which a bundle is not drawn by itself. */
const HAIR = 0.4;

/** Where the scale of bars ends: all of the capacity, unless no broker uses a quarter of it. */
export function scaleEnd(ratios: number[]): number {
  const top = Math.max(0.01, ...ratios);
  if (top > 1) return top * 1.05;
  if (top > 0.25) return 1.02;
  return [0.02, 0.05, 0.1, 0.2, 0.3].find((end) => end > top * 1.1) ?? 1.02;
}

export function Legend(props: { overview: Overview }) {
  const names = props.overview.namespaces.filter((row) => row.throughput > 0);
  const others = names.length - NAMED;
  return (
    <ul class="legend" aria-label="Namespaces, by throughput">
      {names.slice(0, NAMED).map((row, place) => (
        <li key={row.namespace}>
          <span class={`swatch n${place}`} aria-hidden="true">
            {LETTERS[place]}
          </span>
          {row.namespace} <span class="quiet">{rate(row.throughput)}</span>
        </li>
      ))}
      {others > 0 && (
        <li>
          <span class="swatch nx" aria-hidden="true" />
          {count(others, "other namespace")}
        </li>
      )}
      <li>
        <span class="swatch rest" aria-hidden="true" />
        many small bundles together
      </li>
    </ul>
  );
}

function Segments(props: { row: Overview["brokers"][number]; width: number }) {
  const { row, width } = props;
  const total = row.other_throughput + row.bundles.reduce((sum, item) => sum + item.throughput, 0);
  if (total <= 0) return <span class="seg rest" style={{ width: "100%" }} />;
  // What would be thinner than a hair is part of the rest; what belongs together stands together.
  const seen = row.bundles.filter((item) => (item.throughput / total) * width >= HAIR);
  const rest = total - seen.reduce((sum, item) => sum + item.throughput, 0);
  return (
    <>
      {seen.sort((a, b) => a.namespace - b.namespace || b.throughput - a.throughput).map((item) => {
        const share = item.throughput / total;
        const named = item.namespace < NAMED;
        return (
          <span
            key={item.bundle}
            class={`seg ${named ? `n${item.namespace}` : "nx"}`}
            style={{ width: `${100 * share}%` }}
            title={`${item.bundle}, ${rate(item.throughput)}`}
          >
            {named && share * width > 2.5 ? LETTERS[item.namespace] : ""}
          </span>
        );
      })}
      <span
        class="seg rest"
        style={{ width: `${(100 * rest) / total}%` }}
        title={`${count(row.other_bundles + row.bundles.length - seen.length, "smaller bundle")}, ${rate(rest)}`}
      />
    </>
  );
}

interface Asked {
  sign: string;
  /** On the broker's bar. */
  short: string;
  what: string;
  how: string;
  row: { by: string; reason: string; since_ms: number };
}

/** What people asked of a broker, and how far it is. */
export function askedOf(broker: string, operations: OperationsView | null): Asked[] {
  if (!operations) return [];
  const its = <T extends { broker: string }>(rows: T[]) => rows.filter((row) => row.broker === broker);
  return [
    ...its(operations.drains).map((row) => {
      const left = row.left ? `${row.left} left` : "";
      const moved = row.left ? `${row.moved} of ${count(row.moved + row.left, "bundle")} moved` : `${count(row.moved, "bundle")} moved`;
      const emptied = row.emptied_ms ? `since ${moment(row.emptied_ms)}, emptied in ${duration((row.emptied_ms - row.since_ms) / 1000)}` : "";
      const blocked = Object.entries(row.blocked).map(([code, many]) => `${many} ${words(code)}`);
      const ahead = row.eta_seconds !== null && row.left ? `${about(row.eta_seconds)} to go` : "";
      const held = operations.held && row.left ? `nothing is moved now: ${operations.held_explanation}` : "";
      const state = held ? "drain held" : row.state === "empty" ? "drained, empty" : row.state === "blocked" ? "drain blocked" : "draining";
      return {
        sign: "▼",
        short: [state, left, ahead].filter(Boolean).join(", "),
        what: "Drain",
        how: [`${held ? "held" : words(row.state)} ${emptied}`.trim(), moved, ahead, ...blocked, held, row.detail].filter(Boolean).join(", "),
        row,
      };
    }),
    ...its(operations.cordons).map((row) => ({ sign: "⊘", short: "cordoned", what: "Cordon", how: "Bundlekeel moves no bundle to this broker", row })),
    ...its(operations.warms).map((row) => ({ sign: "▲", short: "warming", what: "Warm", how: "a few bundles move to this broker in each cycle", row })),
    ...operations.pauses
      .filter((row) => row.scope === `broker:${broker}`)
      .map((row) => ({
        sign: "‖",
        short: "paused",
        what: "Pause",
        how: row.until_ms ? `until ${moment(row.until_ms)}` : "until resumed",
        row,
      })),
  ];
}

/** What is to be known of a broker beside its load: a sign and words, never the colour alone. */
function remarks(row: Broker, operations: OperationsView | null, state: State): [string, string][] {
  const found = askedOf(row.broker, operations).map(({ sign, short }): [string, string] => [sign, short]);
  // Before a takeover it is to shed, and under one in part it goes on with the rest.
  const alone = state.takeover?.active ? !state.takeover.namespaces.length : state.mode === "act";
  if ((row.score_ratio ?? 0) > state.overloaded_ratio) found.push(["!", "overloaded"]);
  else if (row.verdict?.code === "Overloaded") found.push(["▽", words(row.verdict.code)]);
  else if (row.verdict?.code === "BaseLoad") found.push(["!", words(row.verdict.code)]);
  const base = Math.round(100 * (row.cpu_costs?.base_ratio ?? 0));
  if (base >= 20) found.push(["·", `${base} % of its CPU is used without bundles`]);
  if (row.sheds_itself && alone) found.push(["!", "sheds by itself"]);
  if (row.unsettled) found.push(["~", "settling after moves"]);
  if (row.preallocated?.length) found.push(["→", `${count(row.preallocated.length, "bundle")} in transit to it`]);
  if ((row.report_age_seconds ?? 0) > 900) found.push(["!", "its load report is old"]);
  return found;
}

/** How old the figures are, and whether they are read from the broker's counters or from its own report. */
function age(row: Broker): string {
  if (row.report_age_seconds === null || row.report_age_seconds === undefined) return "";
  return `${row.measured_seconds ? "live" : "report"} ${duration(row.report_age_seconds)}`;
}

function Line(props: { at: number; end: number; kind: string; title: string }) {
  return <span class={`line ${props.kind}`} style={{ left: `${(100 * props.at) / props.end}%` }} title={props.title} />;
}

export function BrokerBars(props: {
  brokers: Broker[];
  overview: Overview | null;
  operations: OperationsView | null;
  state: State;
}) {
  const short = shortNames(props.brokers);
  const { usable, mean, busiest } = balanceOf(props.brokers);
  const end = scaleEnd(usable.map((row) => row.score_ratio!));
  const drawn = new Map(props.overview?.brokers.map((row) => [row.broker, row]));
  const [text, setText] = useState("");
  const [compact, setCompact] = useState(props.brokers.length > MANY);
  const shown = props.brokers
    .filter((row) => row.broker.includes(text.trim()))
    .sort((a, b) => (b.score_ratio ?? -1) - (a.score_ratio ?? -1));
  return (
    <>
      {props.brokers.length > MANY && (
        <p>
          <Search label="Show brokers with" text={text} set={setText} />{" "}
          <span class="quiet" role="status">
            {shown.length.toLocaleString("en-GB")} of {count(props.brokers.length, "broker")}
          </span>{" "}
          <label class="inline">
            <input type="checkbox" checked={compact} onChange={() => setCompact(!compact)} /> compact
          </label>
        </p>
      )}
      <p class="scale">
        A bar shows the share of a broker's capacity that its most used resource needs.{" "}
        {end < 1 ? `The scale ends at ${percent(end)}; no broker is near its capacity.` : "The solid line is the capacity (100 %)."}{" "}
        The dotted line is the mean ({percent(mean)}).
      </p>
      <ol class={compact ? "brokers compact" : "brokers"} aria-label="Brokers, most loaded first">
        {shown.map((row) => {
          const usual = row.score_ratio !== undefined && row.score_ratio !== null;
          const ratio = row.score_ratio ?? 0;
          const width = (100 * Math.min(ratio, end)) / end;
          const used = usual ? `${percent(ratio)} of capacity` : "load not known";
          const said = remarks(row, props.operations, props.state);
          const label = [`${row.broker}: ${used}`, count(row.bundles ?? 0, "bundle"), ...said.map(([, text]) => text)].join(", ");
          return (
            <li key={row.broker} class={row === busiest ? "busiest" : ""}>
              <button type="button" class="name" title={row.broker} aria-label={row.broker} onClick={() => openPanel("broker", row.broker)}>
                {short(row.broker)}
              </button>
              <div class="track" role="img" aria-label={label}>
                <div class="bar" style={{ width: `${width}%` }}>
                  {!compact && drawn.has(row.broker) && <Segments row={drawn.get(row.broker)!} width={width} />}
                </div>
                <Line at={mean} end={end} kind="mean" title={`mean ${percent(mean)}`} />
                {end > 1 && <Line at={1} end={end} kind="capacity" title="capacity" />}
              </div>
              <div class="figures">
                {compact ? (
                  <>
                    {usual ? percent(ratio) : words(row.state)}{" "}
                    {said.map(([sign, text]) => (
                      <span key={text} title={text}>
                        {sign}
                      </span>
                    ))}
                  </>
                ) : usual ? (
                  <>
                    <strong>{percent(ratio)}</strong> {rate(row.predicted_throughput)}{" "}
                    <span class="quiet">
                      {count(row.bundles ?? 0, "bundle")}, <span title="age of these values; live: read from the broker's counters, report: from its load report">{age(row)}</span>
                    </span>{" "}
                  </>
                ) : (
                  <>
                    <strong>{words(row.state)}</strong> {row.detail}{" "}
                  </>
                )}
                {!compact && said.map(([sign, text]) => (
                  <span key={text} class="remark">
                    <span aria-hidden="true">{sign}</span> {text}
                  </span>
                ))}
              </div>
            </li>
          );
        })}
      </ol>
    </>
  );
}

/** Before and after, two bars a broker; those that stay as they are come last. */
export function BeforeAfter(props: { loads: Load[]; brokers: Broker[] }) {
  const short = shortNames(props.brokers);
  const end = scaleEnd(props.loads.flatMap((row) => [row.score_before, row.score_after]));
  const change = (row: Load) => Math.abs(row.score_after - row.score_before);
  const all = [...props.loads].sort((a, b) => change(b) - change(a) || b.score_before - a.score_before);
  const shown = all.filter((row, place) => place < 12 || change(row) > 1e-4).slice(0, 40);
  const bar = (ratio: number, kind: string, label: string) => (
    <div class="pairrow">
      <span class="quiet">{label}</span>
      <div class="track thin">
        <div class={`bar ${kind}`} style={{ width: `${(100 * ratio) / end}%` }} />
        {end > 1 && <Line at={1} end={end} kind="capacity" title="capacity" />}
      </div>
      <span class="value">{percent(ratio, 1)}</span>
    </div>
  );
  return (
    <>
      <ol class="pairs" aria-label="Load of each broker before and after">
        {shown.map((row) => (
          <li key={row.broker}>
            <div class="pairname">
              <strong title={row.broker}>{short(row.broker)}</strong>
              <span class="quiet">
                {row.bundles_before === row.bundles_after
                  ? count(row.bundles_before, "bundle")
                  : `${row.bundles_before} → ${count(row.bundles_after, "bundle")}`}
                , {row.throughput_before !== row.throughput_after && `${rate(row.throughput_before)} → `}
                {rate(row.throughput_after)}
              </span>
            </div>
            {bar(row.score_before, "before", "before")}
            {bar(row.score_after, "after", "after")}
          </li>
        ))}
      </ol>
      {all.length > shown.length && <p class="quiet">Not shown: {count(all.length - shown.length, "broker")} whose load changes least or not at all.</p>}
    </>
  );
}

export function BundleName(props: { bundle: string }) {
  const [namespace, range] = bundleParts(props.bundle);
  return (
    <span class="bundle">
      {namespace}/<wbr />
      <span class="range">{range}</span>
    </span>
  );
}
