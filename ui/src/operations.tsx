// What a person does to brokers and bundles: one dialog says first what would happen, asks why, does it, and shows the result.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ManualMoveView, OperationsView, RelocationView } from "./answers";
import { type Broker, type Move, Problem, type State, type WhoAmI, ask, part } from "./api";
import { BundleName, askedOf } from "./bars";
import { refresh, useAnswer, useClock } from "./live";
import { Dialog, Notice, ProblemNotice, ReasonForm, Refusals, Said, mayNotChange } from "./parts";
import { about, count, duration, moment, obstacle, percent, rate, sentence, words } from "./words";

type Preview = RelocationView | ManualMoveView;
/** Of a move: its task, or the review that it waits for. */
type Accepted = Partial<Pick<ManualMoveView, "task" | "review">>;

/** A request that changes something. */
export interface Operation {
  title: string;
  /** What it does, in plain words. */
  says: string;
  /** On the button that does it. */
  does: string;
  path: string;
  body?: Record<string, unknown>;
  /** Whether the route has a dry run. */
  dry?: boolean;
  /** Whether clients notice it: it looks the part. */
  heavy?: boolean;
  /** Shown when it was accepted. */
  done: string;
}

const drain = (name: string): Operation => ({
  title: `Drain ${name}`,
  says: "The bundles of this broker move to other brokers, in each cycle as many as the budgets allow. The broker stays empty until an operator ends the drain.",
  does: "Drain this broker",
  path: `brokers/${part(name)}/drain`,
  dry: true,
  heavy: true,
  done: "The drain is recorded. The broker's bar shows how many bundles are left.",
});

const warm = (name: string): Operation => ({
  title: `Warm ${name}`,
  says: "In each cycle, a few bundles move here from the most loaded brokers. The warm ends automatically when this broker carries its share of the load.",
  does: "Warm this broker",
  path: `brokers/${part(name)}/warm`,
  dry: true,
  done: "The warm is recorded. The broker's bar shows “warming” until the warm ends.",
});

const cordon = (name: string): Operation => ({
  title: `Cordon ${name}`,
  says: "From now on, Bundlekeel moves no bundle to this broker. Its present bundles stay. Pulsar can still place new bundles on it. The cordon lasts until an operator ends it.",
  does: "Cordon this broker",
  path: `brokers/${part(name)}/cordon`,
  done: "The broker is cordoned.",
});

/** `what`: all that was asked of it, since one request ends it all. */
const uncordon = (name: string, what: string): Operation => ({
  title: `End ${what} of ${name}`,
  says: "Bundles can move to this broker again. Bundles that have left it do not move back immediately.",
  does: `End ${what}`,
  path: `brokers/${part(name)}/uncordon`,
  done: `Ended: ${what}. Bundles can move to the broker again.`,
});

// The list of moves names all of them.
const SHOWN_TARGETS = 5;

/** What a dry run answers: where what goes, what stays and why. */
function Shown(props: { preview: Preview }) {
  const { preview } = props;
  const by = "moves" in preview ? preview : { moves: preview.move ? [preview.move] : [], eta_seconds: null };
  const targets = new Map<string, number>();
  for (const move of by.moves) targets.set(move.target, (targets.get(move.target) ?? 0) + 1);
  const most = [...targets].sort((a, b) => b[1] - a[1]);
  // One more takes no more room than the count of it.
  const named = most.length === SHOWN_TARGETS + 1 ? most : most.slice(0, SHOWN_TARGETS);
  const weight = (move: Move) => move.traffic[2] + move.traffic[3];
  return (
    <section class="preview" aria-label="Dry run">
      <p>
        <strong>Dry run.</strong> <Said text={sentence(preview.sentence)} />
        {by.eta_seconds !== null && by.moves.length > 0 && ` The moves take ${about(by.eta_seconds)}.`}
        {"detail" in preview && preview.detail && ` ${sentence(preview.detail)}`}
      </p>
      {by.moves.length > 1 && (
        <p>
          {count(by.moves.length, "move")}: <Said text={named.map(([target, many]) => `${many} to ${target}`).join(", ")} />
          {most.length > named.length && `, the others to ${count(most.length - named.length, "further broker")}`}. Sorted by
          throughput, not in the order of execution.
        </p>
      )}
      {by.moves.length > 0 && (
        <ol class="moving" tabIndex={0} aria-label="Moves">
          {[...by.moves].sort((a, b) => weight(b) - weight(a)).map((move) => (
            <li key={move.bundle}>
              <BundleName bundle={move.bundle} /> <span class="number">{rate(weight(move))}</span>{" "}
              <span>
                <span class="whole">{move.source}</span>{" "}
                <span class="whole">
                  <span class="arrow" aria-label="to">→</span> {move.target}
                </span>
              </span>
            </li>
          ))}
        </ol>
      )}
      {preview.refusals.length > 0 && (
        <>
          <h3>What does not move now, and why</h3>
          <Refusals rows={preview.refusals} />
        </>
      )}
      {"candidates" in preview && preview.candidates.length > 0 && <Candidates rows={preview.candidates} />}
    </section>
  );
}

function Candidates(props: { rows: ManualMoveView["candidates"] }) {
  return (
    <details>
      <summary>Load of each broker with this bundle</summary>
      <ul>
        {props.rows.map((row) => (
          <li key={row.broker}>
            {row.broker}:{" "}
            {row.code
              ? `refused (${words(row.code)}): ${sentence(row.explanation)}`
              : `${percent(row.score_before, 1)} → ${percent(row.score_after, 1)}`}
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Who carries it out, where that is not the sidecar that answers; and what keeps moves back now. */
function Standing(props: { state: State | null; moves: boolean }) {
  const { state } = props;
  if (!state) return null;
  const hindered = obstacle(state);
  return (
    <>
      {state.role !== "leader" && (
        <p class="quiet">
          {state.leader
            ? `This page is served by ${state.member}, which forwards requests to the leader, ${state.leader.id}.`
            : "No sidecar leads now. Your request waits until a leader is elected."}
        </p>
      )}
      {props.moves && state.mode !== "act" && (
        <Notice kind="warn">The mode is {state.mode}: the dry run is shown, but nothing is executed until an operator sets mode act.</Notice>
      )}
      {props.moves && hindered && (
        <Notice kind="warn">
          No plan is executed now: <Said text={`${hindered}.`} />
        </Notice>
      )}
      {props.moves && state.paused && <Notice kind="warn">Moves are paused until an operator resumes them.</Notice>}
    </>
  );
}

/** `children`: further fields of the form, which the operation's body already has. */
export function OperationDialog(props: { operation: Operation; children?: ComponentChildren; onClose: () => void }) {
  const { operation } = props;
  const [preview, setPreview] = useState<Preview | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [done, setDone] = useState<Accepted | null>(null);
  const [asked, setAsked] = useState(0);
  const state = useAnswer<State>("state").data;
  const close = useRef<HTMLButtonElement>(null);
  const body = JSON.stringify(operation.body ?? {});
  useEffect(() => {
    if (!operation.dry) return;
    const abort = new AbortController();
    setPreview(null);
    setProblem(null);
    ask<Preview>("POST", operation.path, { ...JSON.parse(body), execute: false }, abort.signal).then(setPreview, (error) => {
      if (!abort.signal.aborted) setProblem(error as Problem);
    });
    return () => abort.abort();
  }, [operation.path, body, asked]);
  // The form that had the focus is gone by then.
  useLayoutEffect(() => close.current?.focus(), [done]);
  const run = async (reason: string) => {
    const answer = await ask<Accepted>("POST", operation.path, {
      ...operation.body,
      ...(operation.dry && { execute: true }),
      reason,
    });
    refresh();
    setDone(answer);
  };
  const refused = preview !== null && "candidates" in preview && preview.refusals.length > 0;
  return (
    <Dialog small title={operation.title} onClose={props.onClose}>
      <p>{operation.says}</p>
      {done ? (
        <>
          <Notice kind="good">
            {done.review ? "The change is proposed. A second operator must approve it in the view Executions." : operation.done}
            {done.task && ` It is task ${done.task}. The view Executions shows its progress.`}
          </Notice>
          <button type="button" class="primary" ref={close} onClick={props.onClose}>
            Done
          </button>
        </>
      ) : (
        <>
          <Standing state={state} moves={operation.dry ?? false} />
          <ReasonForm label="Reason" does={operation.does} heavy={operation.heavy} onCancel={props.onClose} disabled={refused || (operation.dry && (!preview || state?.mode !== "act"))} run={run}>
            {props.children}
            {operation.dry && !preview && !problem && <p class="waiting">Asking for a dry run …</p>}
            {problem && (
              <>
                <ProblemNotice problem={problem} what="The dry run failed:" />
                <button type="button" onClick={() => setAsked(asked + 1)}>
                  Try again
                </button>
              </>
            )}
            {preview && <Shown preview={preview} />}
            {refused && <Notice kind="warn">This move cannot be executed, because the guard refuses it.</Notice>}
          </ReasonForm>
        </>
      )}
    </Dialog>
  );
}

/** One bundle to another broker. */
export function TransferDialog(props: { bundle: string; source: string | null; override?: boolean; onClose: () => void }) {
  const brokers = useAnswer<Broker[]>("brokers");
  const [to, setTo] = useState("");
  const [override, setOverride] = useState(props.override ?? false);
  const targets = (brokers.data ?? []).filter((row) => row.broker !== props.source);
  const operation: Operation = {
    title: "Move a bundle",
    says: "The bundle moves to another broker. Its clients reconnect.",
    does: "Move this bundle",
    path: `bundles/${part(props.bundle)}/${to ? "transfer" : "unload"}`,
    body: { ...(to && { to }), override_cool_down: override },
    dry: true,
    heavy: true,
    done: "The move is requested.",
  };
  return (
    <OperationDialog operation={operation} onClose={props.onClose}>
      <p>
        <BundleName bundle={props.bundle} />
        {props.source && <span class="quiet"> on {props.source}</span>}
      </p>
      <div class="fields">
        <label>
          <span>To broker</span>
          <select value={to} onChange={(event) => setTo(event.currentTarget.value)}>
            <option value="">the broker with the most headroom</option>
            {targets.map((row) => (
              <option key={row.broker} value={row.broker}>
                {row.broker}
              </option>
            ))}
          </select>
        </label>
        <label class="check">
          <input type="checkbox" checked={override} onChange={() => setOverride(!override)} />
          Move the bundle even if it moved recently
        </label>
      </div>
    </OperationDialog>
  );
}

/** By whom, since when and how far, of everything that was asked of a broker. */
export function Requests(props: { broker: string; operations: OperationsView | null }) {
  const at = useClock();
  return (
    <>
      {askedOf(props.broker, props.operations).map(({ what, how, row }) => (
        <Notice key={what} kind="info">
          <strong>{what}</strong> by {row.by} since {moment(row.since_ms)}, for {duration((at - row.since_ms) / 1000)}: {row.reason} ({how})
        </Notice>
      ))}
    </>
  );
}

/** What was asked of a broker, and the buttons to ask for more; without the right to, why there are none. */
export function BrokerOperations(props: { broker: string; who: WhoAmI | null; operations: OperationsView | null }) {
  const { broker } = props;
  // Kept while its dialog is open: what may be asked for changes as soon as it is carried out.
  const [operation, setOperation] = useState<Operation | null>(null);
  const asked = askedOf(broker, props.operations);
  const is = (what: string) => asked.some((item) => item.what === what);
  const ends = ["Drain", "Cordon", "Warm"].filter(is).join(" and ").toLowerCase();
  const offers = [
    !is("Drain") && { label: "Drain", operation: drain(broker) },
    !is("Cordon") && !is("Drain") && { label: "Cordon", operation: cordon(broker) },
    !ends && { label: "Warm", operation: warm(broker) },
    ends && { label: `End ${ends}`, operation: uncordon(broker, ends) },
  ];
  const refused = mayNotChange(props.who, "Draining, cordoning or warming a broker", "bundlekeel drain, cordon or warm");
  return (
    <>
      <Requests broker={broker} operations={props.operations} />
      {refused ? (
        <p class="quiet">{refused}</p>
      ) : (
        <p class="actions">
          {offers.map(
            (offer) =>
              offer && (
                <button key={offer.label} type="button" onClick={() => setOperation(offer.operation)}>
                  {offer.label}
                </button>
              ),
          )}
        </p>
      )}
      {operation && <OperationDialog operation={operation} onClose={() => setOperation(null)} />}
    </>
  );
}
