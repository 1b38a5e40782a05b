// The top of the page: what is unbalanced and what happens next, who leads, and what stands in the way.

import { useState } from "preact/hooks";
import { openPanel } from "./address";
import { type Broker, type State, type WhoAmI, keepToken, token } from "./api";
import { type Answer, type Connection, restart, useClock } from "./live";
import { type Operation, OperationDialog } from "./operations";
import { Dialog, Notice, Reload, Said } from "./parts";
import { MODES, clock, count, duration, moment, obstacle, onTheWay, verdict } from "./words";

const OLD_SECONDS = 60;
const SHOWN_NAMES = 3;
// Of the sidecar that the page was loaded from, by its first answer.
let release = "";

export function SignIn(props: { said?: string; onDone?: () => void }) {
  const [given, setGiven] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    keepToken(given.trim());
    restart();
    props.onDone?.();
  };
  return (
    <form class="signin" onSubmit={submit}>
      {props.said && <Notice kind="warn">{props.said}</Notice>}
      <label>
        <span>Token (from bundlekeel token new, or a JWT)</span>
        <input type="password" name="token" required autoComplete="off" value={given} onInput={(event) => setGiven(event.currentTarget.value)} />
      </label>
      <p class="quiet">This tab stores the token until you close the tab, and sends it to this sidecar only.</p>
      <button type="submit" class="primary">
        Sign in
      </button>
    </form>
  );
}

function Account(props: { who: WhoAmI | null }) {
  const [open, setOpen] = useState(false);
  const { who } = props;
  if (who?.you) {
    const leave = () => {
      keepToken("");
      restart();
    };
    return (
      <span class="account">
        {who.you} ({who.your_role}){" "}
        <button type="button" onClick={leave}>
          Sign out
        </button>
      </span>
    );
  }
  return (
    <span class="account">
      Read-only{" "}
      <button type="button" onClick={() => setOpen(true)}>
        Sign in
      </button>
      {open && (
        <Dialog title="Sign in" onClose={() => setOpen(false)}>
          <SignIn onDone={() => setOpen(false)} />
          {token() && <p>This tab stores a token, but the sidecar needs none: no authentication is configured.</p>}
        </Dialog>
      )}
    </span>
  );
}

const RESUME: Operation = {
  title: "Resume moves",
  says: "Bundlekeel executes plans again, from the next cycle.",
  does: "Resume",
  path: "resume",
  done: "Moves are resumed.",
};

function PauseControl(props: { state: State }) {
  // Which dialog is open; it stays when the state that it changed comes back.
  const [open, setOpen] = useState<"" | "pause" | "resume">("");
  const [minutes, setMinutes] = useState("60");
  const paused = props.state.paused !== null;
  const pause: Operation = {
    title: "Pause all moves",
    says: "From now on, no sidecar starts a move. Moves in progress continue to their end.",
    does: "Pause",
    path: "pause",
    body: { seconds: 60 * Number(minutes) },
    done: `Moves are paused for ${count(Number(minutes), "minute")}.`,
  };
  return (
    <>
      <button type="button" onClick={() => setOpen(paused ? "resume" : "pause")}>
        {paused ? "Resume" : "Pause"}
      </button>
      {open && (
        <OperationDialog operation={open === "pause" ? pause : RESUME} onClose={() => setOpen("")}>
          {open === "pause" && (
            <label>
              <span>Minutes</span>
              <input type="number" min="1" max="10000" required value={minutes} onInput={(event) => setMinutes(event.currentTarget.value)} />
            </label>
          )}
        </OperationDialog>
      )}
    </>
  );
}

function Hindrances(props: { state: Answer<State>; hindered: string; brokers: Broker[] | null; connection: Connection }) {
  const at = useClock();
  const state = props.state.data!;
  const age = state.cycle ? (at - state.cycle.wall_ms) / 1000 : 0;
  const paused = state.paused;
  const { hindered } = props;
  const moving = onTheWay(props.brokers ?? []);
  const unread = (props.brokers ?? []).filter((row) => row.state !== "ok").map((row) => row.broker);
  release ||= state.version;
  return (
    <>
      {state.version !== release && (
        <Notice kind="warn">
          This sidecar runs release {state.version}, but this page is from release {release}. <Reload />
        </Notice>
      )}
      {props.connection === "lost" && (
        <Notice kind="bad">
          The sidecar does not respond. The values on this page are from {clock(props.state.at)}, {duration((at - props.state.at) / 1000)} ago.
          The page tries again automatically.
        </Notice>
      )}
      {!state.leader && <Notice kind="bad">No sidecar leads now. No bundle moves until a leader is elected.</Notice>}
      {!state.store.connected && (
        <Notice kind="bad">The metadata store does not respond. No bundle moves until it responds again.</Notice>
      )}
      {paused && (
        <Notice kind="warn">
          Moves are paused by {paused.by}{" "}
          {paused.until_ms ? `until ${moment(paused.until_ms)} (for another ${duration((paused.until_ms - at) / 1000)})` : "until an operator resumes them"}
          : {paused.reason}
        </Notice>
      )}
      {unread.length > 0 && (
        <Notice kind="warn">
          {count(unread.length, "broker has", "brokers have")} no usable load report, so no bundle moves to or from {unread.length === 1 ? "it" : "them"}:{" "}
          <Said text={`${some(unread)}.`} />
        </Notice>
      )}
      {/* What the settling waits for is told below, as it is now. */}
      {hindered && !(state.settling && state.cycle?.obstacle === "SettlingAfterOutage") && (
        <Notice kind="warn">
          The mode is act, but no plan is executed now: <Said text={`${hindered}.`} />
        </Notice>
      )}
      {state.takeover?.active && (state.mode !== "act" || paused) && (
        <Notice kind="warn">
          Nothing balances {some(state.takeover.namespaces) || "the cluster"}: no plan is executed, and the brokers' own shedding is off since the
          takeover by {state.takeover.by} at {moment(state.takeover.wall_ms)}.
        </Notice>
      )}
      {state.settling && (
        <Notice kind="warn">
          <Said text={state.settling.sentence} />
        </Notice>
      )}
      {props.connection !== "lost" && age > OLD_SECONDS && (
        <Notice kind="warn">
          The last cycle ended {duration(age)} ago, at {moment(state.cycle!.wall_ms)}: the values on this page may be old.
        </Notice>
      )}
      {moving > 0 && (
        <Notice kind="info">
          {count(moving, "bundle is", "bundles are")} in transit, or moved too recently to be in the load reports. This page already counts{" "}
          {moving === 1 ? "its" : "their"} load at the target broker.
        </Notice>
      )}
    </>
  );
}

const CONNECTIONS: Record<Connection, string> = {
  connecting: "connecting",
  live: "live",
  polling: "every 5 s (too many pages are open)",
  lost: "not connected",
  locked: "signed out",
};

/** Lines do not end within a name. */
function Unbroken(props: { text: string }) {
  return <>{props.text.split(/([\w.:-]*\w-[\w.:-]*\w)/).map((piece, place) => (place % 2 ? <span class="whole">{piece}</span> : piece))}</>;
}

/** The first of these names, and how many more there are. */
function some(names: string[]): string {
  const more = names.length - SHOWN_NAMES;
  return names.slice(0, SHOWN_NAMES).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** Whether the brokers' own shedding is taken over, wholly or in part, and by whom. */
function takeover(state: State): string {
  const last = state.takeover;
  if (!state.takeover_known) return "not known yet";
  const ended = last?.ended;
  if (!last?.active) return `${ended ? `ended by ${ended.by} at ${moment(ended.wall_ms)}` : "none"}: the brokers shed by their own settings`;
  return `${last.namespaces.length ? `only ${some(last.namespaces)}` : "the whole cluster"}, by ${last.by} since ${moment(last.wall_ms)}`;
}

/** Opens the panel of what is named: why it is where it is. */
function Find() {
  const [text, setText] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (text.trim()) openPanel("name", text.trim());
  };
  return (
    <form class="find" role="search" onSubmit={submit}>
      <input
        type="search"
        aria-label="Bundle, topic, namespace or broker"
        placeholder="Bundle, topic, namespace or broker"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit">Find</button>
    </form>
  );
}

export function Head(props: { state: Answer<State>; brokers: Broker[] | null; who: WhoAmI | null; connection: Connection }) {
  const state = props.state.data!;
  // On a phone; elsewhere there is room for all of it.
  const [open, setOpen] = useState(false);
  const hindered = obstacle(state);
  return (
    <header class={open ? "head open" : "head"}>
      <div class="top">
        <span class="brand">
          <img src="icon.svg" alt="" width="22" height="22" /> Bundlekeel <span class="quiet">{state.cluster}</span>
        </span>
        <button type="button" class="more" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Less" : "More"}
        </button>
        <Find />
        <span class="controls">
          {props.who?.mutations && <PauseControl state={state} />}
          <Account who={props.who} />
        </span>
      </div>
      <p class="verdict" id="verdict">
        {props.brokers ? <Unbroken text={verdict(state, props.brokers)} /> : "Asking the sidecar …"}
      </p>
      {state.cycle && (
        <p class="sentence">
          Last cycle: <Said text={state.cycle.sentence} />
        </p>
      )}
      <dl class="facts">
        <div>
          <dt>Mode</dt>
          <dd>
            {state.mode}: {hindered ? "but executes no plan now" : MODES[state.mode]}
          </dd>
        </div>
        <div>
          <dt>Takeover</dt>
          <dd>{takeover(state)}</dd>
        </div>
        <div>
          <dt>Leader</dt>
          <dd>{state.leader ? `${state.leader.id}${state.leader.id === state.member ? " (this one)" : ""}` : "none"}</dd>
        </div>
        <div>
          <dt>Strategy</dt>
          <dd>{state.strategy}</dd>
        </div>
        <div>
          <dt>Load manager</dt>
          <dd>{state.cluster_mode}</dd>
        </div>
        <div>
          <dt>Last cycle</dt>
          <dd>{state.cycle ? moment(state.cycle.wall_ms) : "none yet"}</dd>
        </div>
        <div>
          <dt>Updates</dt>
          <dd>{CONNECTIONS[props.connection]}</dd>
        </div>
      </dl>
      <Hindrances state={props.state} hindered={hindered} brokers={props.brokers} connection={props.connection} />
    </header>
  );
}
