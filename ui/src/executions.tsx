// Executions: plans people asked to be carried out, how far they are, and how to stop them.

import { useRef } from "preact/hooks";
import type { OperationsView, ReviewView } from "./answers";
import { type JournalRecord, type Plan, type Task, type WhoAmI, ask, part } from "./api";
import { BundleName } from "./bars";
import { refresh, useAnswer } from "./live";
import { BrokerOperations, Requests } from "./operations";
import { Loaded, ReasonForm, Said } from "./parts";
import { count, moment, words } from "./words";

/** A task, or what this page asked for and the leader has not taken. */
type Shown = Pick<Task, "task" | "hash" | "state" | "detail"> & Partial<Task>;

// Proposals that are decided, or were carried out: so many are shown.
const SHOWN_REVIEWS = 20;

/** What this page asked for; the leader may need a second to take it. */
export const asked: { task: string; hash: string; state: string; at: number }[] = [];

const STATES: Record<string, string> = {
  waiting: "waiting for the leader to start it",
  proposed: "waiting for a second operator's approval",
  running: "running",
  done: "done",
  failed: "failed",
  stopped: "stopped",
};
const LANDED = ["done", "released"];

/** Moves of a running task that have ended, of how many: from its plan and the journal. */
function Progress(props: { task: Shown }) {
  const plan = useAnswer<Plan>(props.task.hash ? `plans/${part(props.task.hash)}` : null);
  const moves = useAnswer<JournalRecord[]>("journal?kind=move&limit=500");
  if (!plan.data || !moves.data) return <p class="quiet">In progress.</p>;
  const since = plan.data.wall_ms;
  const ended = new Set(moves.data.filter((row) => (row.started_ms ?? row.wall_ms) >= since).map((row) => row.bundle));
  const total = plan.data.moves.length;
  const done = plan.data.moves.filter((move) => ended.has(move.bundle)).length;
  const said = `${done} of ${count(total, "move")} ended`;
  return (
    <p>
      <progress max={total} value={done} aria-label={said} /> {said}
    </p>
  );
}

function TaskItem(props: { task: Shown; may: boolean }) {
  const { task } = props;
  const stop = async (reason: string) => {
    await ask("POST", `tasks/${part(task.task)}/stop`, { reason });
    refresh();
  };
  return (
    <li class={`task ${task.state}`}>
      <h2>
        {STATES[task.state] ?? task.state}: {task.kind ?? "plan"} {task.hash.slice(0, 8)}
      </h2>
      <p>
        {task.by && (
          <>
            Requested by {task.by}
            {task.left_ms ? ` at ${moment(task.left_ms)}` : ""}: {task.reason}
          </>
        )}
      </p>
      {task.state === "running" && task.kind !== "split" && <Progress task={task} />}
      {task.detail && (
        <p>
          <Said text={task.detail} />
        </p>
      )}
      {(task.moves?.length ?? 0) > 0 && (
        <details>
          <summary>{count(task.moves!.length, "move")}</summary>
          <ul>
            {task.moves!.map((row) => (
              <li key={row.bundle}>
                {LANDED.includes(row.outcome) ? "✓" : "✕"} <BundleName bundle={row.bundle} /> {words(row.outcome).replace(/_/g, " ")}
                {row.landed_on && `, owned by ${row.landed_on}`}
                {row.code && ` (${words(row.code)})`}
              </li>
            ))}
          </ul>
        </details>
      )}
      {props.may && (task.state === "running" || task.state === "waiting") && (
        <ReasonForm label="Stop: no further move starts" does="Stop this task" run={stop} />
      )}
    </li>
  );
}

const DECISIONS: Record<string, string> = {
  approved: "approved",
  executing: "approved, execution in progress",
  done: "approved and executed",
  aborted: "approved, but the execution failed or was stopped",
  discarded: "discarded",
  expired: "expired: no decision within a day",
};

function Asked(props: { row: ReviewView }) {
  const { row } = props;
  return (
    <>
      <strong>{row.title}</strong>, proposed by {row.by} at {moment(row.at_ms)}: {row.reason}
    </>
  );
}

/** What waits for a second person, and below what became of earlier proposals; latest first. */
function Reviews(props: { may: boolean }) {
  const answer = useAnswer<ReviewView[]>("reviews");
  const rows = [...(answer.data ?? [])].reverse();
  const open = rows.filter((row) => row.actions.includes("approve"));
  const decided = rows.filter((row) => !open.includes(row));
  if (!rows.length) return null;
  const decide = (id: string, what: string) => async (reason: string) => {
    await ask("POST", `reviews/${part(id)}/${what}`, { reason });
    refresh();
  };
  return (
    <>
      {open.length > 0 && <h2>Waiting for a second operator</h2>}
      {open.length > 0 && (
        <ul class="tasks">
          {open.map((row) => (
            <li key={row.id} class="task">
              <p>
                <Asked row={row} />
              </p>
              {props.may && (
                <>
                  <ReasonForm label="Approve" does="Approve" run={decide(row.id, "approve")} />
                  <ReasonForm label="Discard" does="Discard" run={decide(row.id, "discard")} />
                </>
              )}
            </li>
          ))}
        </ul>
      )}
      {decided.length > 0 && (
        <details class="decided">
          <summary>{count(decided.length, "earlier proposal")}</summary>
          <ul>
            {decided.slice(0, SHOWN_REVIEWS).map((row) => (
              <li key={row.id}>
                <Asked row={row} />
                <br />
                {DECISIONS[row.state] ?? row.state}
                {row.reviewer && ` (${row.reviewer} at ${moment(row.decided_ms)}: ${row.remark})`}
              </li>
            ))}
            {decided.length > SHOWN_REVIEWS && <li class="quiet">and {count(decided.length - SHOWN_REVIEWS, "older proposal")}</li>}
          </ul>
        </details>
      )}
    </>
  );
}

/** Drains, cordons and warms last until somebody ends them, and are no tasks. */
function OfBrokers(props: { who: WhoAmI | null }) {
  const operations = useAnswer<OperationsView>("operations").data;
  // One that is ended here stays until the reader leaves: its dialog says that it has ended.
  const seen = useRef(new Set<string>());
  if (!operations) return null;
  const { drains, cordons, warms } = operations;
  for (const row of [...drains, ...cordons, ...warms]) seen.current.add(row.broker);
  const names = [...seen.current].sort();
  const Shown = props.who?.mutations ? BrokerOperations : Requests;
  return (
    <>
      {names.length > 0 && <h2>Drains, cordons and warms</h2>}
      <ul class="tasks" aria-label="Drains, cordons and warms">
        {names.map((name) => (
          <li key={name} class="task">
            <h3>{name}</h3>
            <Shown broker={name} who={props.who} operations={operations} />
          </li>
        ))}
      </ul>
    </>
  );
}

export function ExecutionsView(props: { who: WhoAmI | null }) {
  const answer = useAnswer<Task[]>("tasks");
  const may = props.who?.mutations ?? false;
  return (
    <>
      <p>Plans, moves and splits that operators requested, newest first. The journal also contains the automatic moves.</p>
      <Reviews may={may} />
      <Loaded answer={answer}>
        {(tasks) => {
          const known = new Set(tasks.map((row) => row.task));
          const waiting = asked
            .filter((row) => !known.has(row.task) && row.state === "waiting" && Date.now() - row.at < 60_000)
            .map(
              (row): Shown => ({ task: row.task, hash: row.hash, state: "waiting", detail: `requested at ${moment(row.at)}` }),
            );
          const all = [...(tasks as Shown[]), ...waiting].reverse();
          if (!all.length) return <p class="empty">No operator has requested a plan, move or split recently.</p>;
          return (
            <ol class="tasks">
              {all.map((task) => (
                <TaskItem key={task.task} task={task} may={may} />
              ))}
            </ol>
          );
        }}
      </Loaded>
      <OfBrokers who={props.who} />
    </>
  );
}
