// Calibrated thresholds: what is proposed, on what evidence, what speaks against it, and what is in force.

import type { BootstrapInterval, HeldOutMeasures, ThresholdsView as Thresholds } from "./answers";
import { type WhoAmI, ask } from "./api";
import { refresh, useAnswer } from "./live";
import { Loaded, Notice, ReasonForm, Said } from "./parts";
import { count, dated, day, duration, percent, sentence, words } from "./words";

/** max/mean, of which the stored imbalance is the part above 1. */
function level(imbalance: number): string {
  return (1 + imbalance).toFixed(3);
}

const MEASURES: [keyof HeldOutMeasures, string, (value: number) => string][] = [
  ["imbalance", "max/mean of score", level],
  ["moves_per_hour", "Moves an hour", (value) => value.toFixed(1)],
  ["client_seconds_per_hour", "Client-seconds an hour without service", (value) => value.toFixed(0)],
  ["overloaded_minutes_per_day", "Overloaded minutes a day", (value) => value.toFixed(1)],
];

function Evidence(props: { document: NonNullable<Thresholds["document"]> }) {
  const { decision, evidence, data, created_ms, advice } = props.document;
  const cell = (found: BootstrapInterval, shown: (value: number) => string) =>
    `${shown(found.mean)} (${shown(found.low)} to ${shown(found.high)})`;
  return (
    <>
      <h3>Evidence</h3>
      <p>{sentence(decision)}</p>
      <p>
        Computed at {dated(created_ms)} from {count(data.cycles, "cycle")} of {count(data.days.length, "day")}; {percent(data.coverage)} of that time is recorded. Measured on held-out days ({evidence.held_out.map(day).join(", ")}), from {count(evidence.placements, "initial placement")} of the bundles. In parentheses: the {percent(evidence.confidence)} interval.
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Evidence">
        <table>
          <thead>
            <tr>
              <th scope="col">Measure</th>
              <th scope="col">In force</th>
              <th scope="col">Proposed</th>
              <th scope="col">Difference</th>
            </tr>
          </thead>
          <tbody>
            {MEASURES.map(([key, label, shown]) => (
              <tr key={key}>
                <th scope="row">{label}</th>
                <td data-label="In force: ">{cell(evidence.previous[key], shown)}</td>
                <td data-label="Proposed: ">{cell(evidence.chosen[key], shown)}</td>
                <td data-label="Difference: ">{cell(evidence.difference[key], key === "imbalance" ? (value) => value.toFixed(3) : shown)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {Object.entries(data.bad_days).map(([left, why]) => (
        <p key={left} class="quiet">
          {day(left)} was skipped: {why}
        </p>
      ))}
      {advice.map((line) => (
        <p key={line}>Why the gain is not larger: {line}</p>
      ))}
    </>
  );
}

function InForce(props: { adopted: NonNullable<Thresholds["adopted"]>; may: boolean }) {
  const { adopted } = props;
  const trial = adopted.trial;
  const run = async (reason: string) => {
    await ask("POST", "thresholds/revert", { digest: adopted.digest || null, reason });
    refresh();
  };
  return (
    <>
      <h2>In force</h2>
      <ul>
        {Object.entries(adopted.values).map(([name, value]) => (
          <li key={name}>
            {name}: <strong>{value}</strong> (settings: {adopted.instead_of[name] ?? "unknown"})
          </li>
        ))}
      </ul>
      <p>
        Adopted by {adopted.by} on {dated(adopted.since_ms)}: {adopted.reason}. {adopted.state === "trial" ? "It is on trial." : "It is kept."}
      </p>
      {trial && (
        <p>
          Trial time: {duration(trial.seconds)} of {duration(trial.needed_seconds)}.{" "}
          {trial.imbalance === null || trial.moves_per_hour === null ? (
            "Nothing is measured yet."
          ) : (
            <>
              max/mean of score {level(trial.imbalance)} (promised at most {level(trial.imbalance_promised)}), {trial.moves_per_hour.toFixed(1)} moves
              an hour (promised at most {trial.moves_promised.toFixed(1)}).
            </>
          )}{" "}
          {trial.obstacle && (
            <>
              Bundlekeel does not balance now: <strong>{words(trial.obstacle)}</strong>.{" "}
            </>
          )}
          If the result is worse, the values are reverted automatically.
        </p>
      )}
      {props.may && <ReasonForm label="Revert these values" does="Revert" run={run} />}
    </>
  );
}

function Proposal(props: { view: Thresholds; may: boolean }) {
  const { view } = props;
  if (!view.document) return null;
  const { digest } = view.document;
  const run = async (reason: string) => {
    await ask("POST", "thresholds/adopt", { digest, reason });
    refresh();
  };
  return (
    <>
      <h2>Proposed</h2>
      {view.objections.map((row) => (
        <Notice key={row.code + row.field} kind="warn">
          <strong>{words(row.code)}</strong> ({row.field}): {row.detail}. {sentence(row.explanation)}
        </Notice>
      ))}
      <div class="scroll" tabIndex={0} role="region" aria-label="Proposed thresholds">
        <table>
          <thead>
            <tr>
              <th scope="col">Parameter</th>
              <th scope="col" class="number">
                Now
              </th>
              <th scope="col" class="number">
                Proposed
              </th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {view.changes.map((row) => (
              <tr key={row.parameter}>
                <th scope="row">{row.parameter}</th>
                <td class="number" data-label="Now: ">{row.current}</td>
                <td class="number" data-label="Proposed: ">{row.proposed}</td>
                <td data-label="Why: ">{row.evidence}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {props.may && !view.objections.length && view.changes.length > 0 && (
        <ReasonForm label="Adopt this proposal on trial" does="Adopt" run={run} />
      )}
      <Evidence document={view.document} />
    </>
  );
}

export function ThresholdsView(props: { who: WhoAmI | null }) {
  const answer = useAnswer<Thresholds>("thresholds");
  const may = props.who?.mutations ?? false;
  return (
    <Loaded answer={answer}>
      {(view) => (
        <>
          <p>
            <Said text={sentence(view.sentence)} /> Calibration is set to <strong>{view.mode}</strong>.
          </p>
          {view.error && <Notice kind="bad">{view.error}</Notice>}
          {view.adopted && <InForce adopted={view.adopted} may={may} />}
          <Proposal view={view} may={may} />
          {view.reverted.length > 0 && (
            <>
              <h2>Reverted</h2>
              <ul>
                {view.reverted.map((row) => (
                  <li key={row.digest}>
                    {row.digest.slice(0, 8)} by {row.by} on {dated(row.since_ms)}: {row.reason}
                  </li>
                ))}
              </ul>
            </>
          )}
        </>
      )}
    </Loaded>
  );
}
