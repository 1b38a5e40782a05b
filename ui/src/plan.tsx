// A plan: asked for, looked at, and, where the caller may, carried out.

import { useEffect, useState } from "preact/hooks";
import { openPanel } from "./address";
import type { Finish } from "./answers";
import { type Broker, type Move, type Plan, Problem, type State, type WhoAmI, ask } from "./api";
import { BeforeAfter, BundleName } from "./bars";
import { refresh, useClock } from "./live";
import { Notice, ProblemNotice, ReasonForm, Refusals, Said, mayNotChange } from "./parts";
import { asked } from "./executions";
import { planned } from "./why";
import { about, clock, count, duration, rate, ratio, sentence } from "./words";

/** The mean of what the strategy evens out, in the words of this page. */
function mean(plan: Plan): string {
  return plan.imbalance.measure === "score" ? "mean share of capacity" : `mean ${plan.imbalance.measure}`;
}

function Moves(props: { moves: Move[]; onWhy: (move: Move) => void }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Moves">
      <table>
        <thead>
          <tr>
            <th scope="col">Bundle</th>
            <th scope="col">From → to</th>
            <th scope="col" class="number">
              Throughput
            </th>
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {props.moves.map((move) => (
            <tr key={move.bundle}>
              <td>
                <BundleName bundle={move.bundle} />
              </td>
              <td>
                {move.source} <span class="arrow" aria-label="to">→</span> {move.target}
              </td>
              <td class="number" data-label="Throughput: ">{rate(move.traffic[2] + move.traffic[3])}</td>
              <td>
                <button type="button" onClick={() => props.onWhy(move)} aria-label={`Why ${move.bundle} moves`}>
                  Why
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Why the button that carries a plan out is not there; "" when it is. */
function hindrance(plan: Plan, state: State, who: WhoAmI | null): string {
  if (plan.what_if) return "This is a what-if: its brokers or traffic are not the real ones, so it cannot be executed.";
  if (state.mode !== "act") return `The mode is ${state.mode}: nothing is executed. An operator sets mode act in the settings file and with bundlekeel mode.`;
  if (state.paused) return "Moves are paused. An operator must resume them first.";
  return mayNotChange(who, "Executing a plan", "bundlekeel plan execute");
}

/** Why this reader may not ask for a plan; "" when nothing that is known speaks against it. */
export function mayNotAsk(who: WhoAmI | null): string {
  if (!who?.you || who.your_role !== "viewer") return "";
  return `You are ${who.you} with role viewer. Requesting a plan needs role operator.`;
}

/** How many moves and splits. */
function work(plan: Plan): string {
  return count(plan.moves.length, "move") + (plan.splits.length ? `, ${count(plan.splits.length, "split")}` : "");
}

function Execute(props: { plan: Plan; state: State; who: WhoAmI | null }) {
  const { plan } = props;
  const left = (plan.expires_ms - useClock()) / 1000;
  const hindered = hindrance(plan, props.state, props.who);
  if (hindered) return <Notice kind="info">{hindered}</Notice>;
  if (left <= 0) return <Notice kind="warn">This plan has expired. Request a new one.</Notice>;
  const run = async (reason: string) => {
    const task = await ask<{ task: string; state: string; review?: string | null }>("POST", `plans/${plan.hash}/execute`, { reason });
    asked.push({ task: task.task, hash: plan.hash, state: task.state, at: Date.now() });
    refresh();
    location.hash = "#/executions";
  };
  return (
    <ReasonForm
      label={`Execute ${work(plan)} (this plan is valid for ${duration(left)})`}
      does="Execute this plan"
      run={run}
    />
  );
}

/** What comes of a what-if when all later cycles have done their part. */
function Finished(props: { row: Finish; mean: string }) {
  const { row } = props;
  if (!row.max_mean) return null;
  return (
    <p>
      {row.complete ? "When finished" : "Not finished after the simulated cycles"}: the most loaded broker has <strong>{ratio(row.max_mean)}</strong> times the{" "}
      {props.mean}, after {count(row.moves, "move")} in {count(row.cycles, "cycle")}, {about(row.seconds)}.
    </p>
  );
}

export function PlanResult(props: { plan: Plan; state: State; who: WhoAmI | null; brokers: Broker[] }) {
  const { plan } = props;
  planned.moves = plan.moves;
  useEffect(() => () => void (planned.moves = []), []);
  const stayed = [...plan.refusals, ...plan.split_refusals];
  return (
    <>
      {plan.assumption && (
        <Notice kind="info">
          <Said text={sentence(plan.assumption)} />
        </Notice>
      )}
      <p class="planline" role="status">
        <strong>{work(plan)}</strong>
        {plan.imbalance.before ? (
          <>
            : the most loaded broker {plan.moves.length ? "goes from" : "carries"} <strong>{ratio(plan.imbalance.before)}</strong>
            {plan.moves.length > 0 && (
              <>
                {" "}
                to <strong>{ratio(plan.imbalance.after)}</strong>
              </>
            )}{" "}
            times the {mean(plan)}.
          </>
        ) : (
          ": no broker has load."
        )}
      </p>
      {plan.finished && <Finished row={plan.finished} mean={mean(plan)} />}
      <p>
        <Said text={sentence(plan.verdict.sentence)} />
      </p>
      <p class="quiet">
        Made at {clock(plan.wall_ms)} with strategy {plan.strategy}, placement {plan.placement}
        {plan.by_leader ? ", by the leader" : ", by this sidecar because the leader did not respond"}. This is a dry run. The top of the page shows the last
        cycle's plan, not this plan{plan.request.ignore_hit_counts ? ", which skips the waiting period" : ""}.
      </p>
      {plan.moves.length + plan.splits.length > 0 && <Execute plan={plan} state={props.state} who={props.who} />}
      <h2>Moves</h2>
      {plan.moves.length ? <Moves moves={plan.moves} onWhy={(move) => openPanel("name", move.bundle)} /> : <p class="empty">No bundle moves.</p>}
      {plan.splits.length > 0 && (
        <>
          <h2>Splits</h2>
          <ul>
            {plan.splits.map((row) => (
              <li key={row.bundle}>{row.sentence}</li>
            ))}
          </ul>
        </>
      )}
      <h2>Before and after</h2>
      <BeforeAfter loads={plan.loads} brokers={props.brokers} />
      <h2>What stays, and why</h2>
      {stayed.length ? <Refusals rows={stayed} onWhy={(bundle) => openPanel("name", bundle)} /> : <p class="empty">No move or split was refused.</p>}
    </>
  );
}

// Kept while the reader looks at other views.
let kept: Plan | null = null;

export function PlanView(props: { state: State; who: WhoAmI | null; brokers: Broker[] }) {
  const [plan, setPlan] = useState<Plan | null>(kept);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const [atOnce, setAtOnce] = useState(false);
  const refused = mayNotAsk(props.who);
  const newest = async () => {
    const made = await ask<{ hash: string }[]>("GET", "plans");
    if (!made.length) throw new Problem(404, "this sidecar has made no plan in the last 15 minutes.");
    return ask<Plan>("GET", `plans/${made[made.length - 1].hash}`);
  };
  const make = async () => {
    setBusy(true);
    setProblem(null);
    try {
      kept = await (refused ? newest() : ask<Plan>("POST", "plans", { ignore_hit_counts: atOnce }));
      setPlan(kept);
    } catch (error) {
      setProblem(error as Problem);
    }
    setBusy(false);
  };
  return (
    <>
      <p>What Bundlekeel would do now, and why. A plan is a dry run: nothing moves until you execute it.</p>
      {refused && <Notice kind="info">{refused}</Notice>}
      <div class="fields">
        <button type="button" class="primary" disabled={busy} onClick={make}>
          {refused ? "Show the newest plan" : plan ? "Request a new plan" : "Request a plan"}
        </button>
        {!refused && (
          <label class="check">
            <input type="checkbox" checked={atOnce} onChange={() => setAtOnce(!atOnce)} />
            Skip the waiting period
          </label>
        )}
      </div>
      {plan && !refused && !plan.moves.length && plan.verdict.code === "HitCount" && !atOnce && (
        <Notice kind="info">
          Bundles move when the imbalance has cost as much as the moves. A cost of 1 is one second at twice the tolerated difference. “Skip the
          waiting period” shows the moves now.
        </Notice>
      )}
      {problem && <ProblemNotice problem={problem} what="There is no plan:" />}
      {plan && <PlanResult plan={plan} {...props} />}
    </>
  );
}
