// Small parts of several views.

import { Component, type ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { PanelLink } from "./address";
import type { Problem, Refusal, WhoAmI } from "./api";
import { BundleName } from "./bars";
import type { Answer } from "./live";
import { clock, count, moment, sentence, typeset, words } from "./words";

const SHOWN_REFUSALS = 100;

/** A line ends neither within a broker's name nor between it and the signs around it. */
function unbroken(text: string) {
  return text.split(/(\(?[\w-]+(?:\.[\w-]+)*:\d+[).,:;]*)/).map((piece, place) => (place % 2 ? <span class="whole">{piece}</span> : piece));
}

/** A sentence of the sidecar; what stands between backticks in it is code. */
export function Said(props: { text: string }) {
  return <>{props.text.split("`").map((piece, place) => (place % 2 ? <code key={place}>{piece}</code> : unbroken(typeset(piece))))}</>;
}

/** Something to be told about: what it is, in words, with a sign that does not depend on colour. */
export function Notice(props: { kind: "bad" | "warn" | "info" | "good"; children: ComponentChildren }) {
  const signs = { bad: "✕", warn: "!", info: "i", good: "✓" };
  return (
    <div class={`notice ${props.kind}`} role={props.kind === "bad" ? "alert" : "status"}>
      <span class="sign" aria-hidden="true">
        {signs[props.kind]}
      </span>
      <div>{props.children}</div>
    </div>
  );
}

export function Reload() {
  return (
    <button type="button" onClick={() => location.reload()}>
      Reload the page
    </button>
  );
}

/** What cannot be drawn is said to be so: a sidecar of another release may answer without what this page needs. */
export class Drawable extends Component<{ children: ComponentChildren }, { broken: boolean }> {
  state = { broken: false };
  static getDerivedStateFromError() {
    return { broken: true };
  }
  componentDidCatch(error: unknown) {
    reportError(error);
  }
  render() {
    if (!this.state.broken) return this.props.children;
    return (
      <Notice kind="bad">
        This page cannot show the response of the sidecar. The sidecar and the page may be from different releases. <Reload />
      </Notice>
    );
  }
}

export function ProblemNotice(props: { problem: Problem; what?: string }) {
  const { problem } = props;
  return (
    <Notice kind="bad">
      {props.what && <strong>{props.what} </strong>}
      <Said text={problem.message} />
      {problem.difference.length > 0 && (
        <ul>
          {problem.difference.map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
    </Notice>
  );
}

/** That there is nothing of this name; the nearest names in the API's text lead to what there is. */
export function Missing(props: { problem: Problem }) {
  const [before, names, after] = props.problem.message.split(/(?<=nearest: )([^;]+)/);
  return (
    <Notice kind="bad">
      <Said text={before} />
      {names?.split(", ").map((name, place) => (
        <span key={name}>
          {place > 0 && ", "}
          <PanelLink of={name.includes("/") ? "name" : "broker"} name={name} />
        </span>
      ))}
      {after && <Said text={after} />}
    </Notice>
  );
}

/** What was asked for, or why it is not there; old data is shown with its age. */
export function Loaded<T>(props: { answer: Answer<T>; empty?: string; children: (data: T) => ComponentChildren }) {
  const { data, problem, at } = props.answer;
  if (data === null) return problem ? <ProblemNotice problem={problem} /> : <p class="waiting">Asking the sidecar …</p>;
  const nothing = props.empty && Array.isArray(data) && data.length === 0;
  return (
    <>
      {problem && <Notice kind="warn">The values below are from {clock(at)}: {problem.message}.</Notice>}
      {nothing ? <p class="empty">{props.empty}</p> : props.children(data)}
    </>
  );
}

/** A field that narrows a list down. */
export function Search(props: { label: string; text: string; set: (text: string) => void }) {
  return (
    <label class="inline">
      <span>{props.label}</span>
      <input type="search" value={props.text} onInput={(event) => props.set(event.currentTarget.value)} />
    </label>
  );
}

/** Why this reader may not do something; "" when he may. `command`: what does the same without the page. */
export function mayNotChange(who: WhoAmI | null, doing: string, command: string): string {
  if (who?.mutations) return "";
  if (!who?.you) return `This page is read-only: sign in with an operator's token, or run ${command} on the host of a sidecar.`;
  return `You are ${who.you} with role ${who.your_role}. ${doing} needs role operator.`;
}

/** A panel at the side, or `small` in the middle, over everything else; Escape closes it and the focus goes back to where it was. */
export function Drawer(props: { title: string; small?: boolean; onClose: () => void; children: ComponentChildren }) {
  const titled = useId();
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const shown = dialog.current!;
    shown.showModal();
    return () => {
      shown.close();
      // What opened it may be gone, so that the focus did not go back to it: then to the panel below.
      const at = document.activeElement;
      if (at === document.body || shown.contains(at)) [...document.querySelectorAll<HTMLElement>("dialog[open] > header > h2")].pop()?.focus();
    };
  }, []);
  // A browser tells `close` later, even after the next key: by then the person may be elsewhere, or have opened another
  // drawer. `cancel` comes with the key. (It may be left out where nothing was clicked; then `close` has to do.)
  const cancel = (event: Event) => {
    event.preventDefault();
    props.onClose();
  };
  const close = (event: Event) => (event.currentTarget as HTMLElement).isConnected && props.onClose();
  return (
    <dialog ref={dialog} class={props.small ? "drawer small" : "drawer"} aria-labelledby={titled} onCancel={cancel} onClose={close}>
      <header>
        <h2 id={titled} tabIndex={-1}>{unbroken(props.title)}</h2>
        <button type="button" onClick={props.onClose}>
          Close
        </button>
      </header>
      {props.children}
    </dialog>
  );
}

/** A drawer without an address of its own: it closes when the address changes. */
export function Dialog(props: Parameters<typeof Drawer>[0]) {
  const onClose = useRef(props.onClose);
  onClose.current = props.onClose;
  // Once, and before the painting: a listener that is renewed while the address changes is left out.
  useLayoutEffect(() => {
    const close = () => onClose.current();
    addEventListener("hashchange", close);
    return () => removeEventListener("hashchange", close);
  }, []);
  return <Drawer {...props} />;
}

/** What became of a request, by the status of its answer; 0: there was none. */
const REFUSED: Record<number, string> = {
  0: "It is not known whether this was done (see the views Executions and Journal):",
  409: "Not done, because things have changed:",
};

/** A form that asks for a reason before something is changed; `run` does it, and its problem is shown here. */
export function ReasonForm(props: {
  label: string;
  does: string;
  disabled?: boolean;
  heavy?: boolean;
  onCancel?: () => void;
  children?: ComponentChildren;
  run: (reason: string) => Promise<void>;
}) {
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  // The button is disabled only with the next rendering: a second click before that must not send again.
  const sent = useRef(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (sent.current) return;
    sent.current = true;
    setBusy(true);
    setProblem(null);
    try {
      await props.run(reason);
      setReason("");
    } catch (error) {
      setProblem(error as Problem);
    }
    sent.current = false;
    setBusy(false);
  };
  return (
    <form class="reason" onSubmit={submit}>
      {props.children}
      <label>
        <span>{props.label}</span>
        <input
          name="reason"
          required
          maxLength={1000}
          value={reason}
          placeholder="Why? It is written to the journal."
          onInput={(event) => setReason(event.currentTarget.value)}
        />
      </label>
      <p class="actions">
        <button type="submit" class={props.heavy ? "primary heavy" : "primary"} disabled={busy || props.disabled}>
          {props.does}
        </button>
        {props.onCancel && (
          <button type="button" onClick={props.onCancel}>
            Cancel
          </button>
        )}
      </p>
      {problem && (
        <ProblemNotice
          problem={problem}
          what={REFUSED[problem.status] ?? "Not done:"}
        />
      )}
    </form>
  );
}

/** By code, each with its candidates behind it. */
export function Refusals(props: { rows: Refusal[]; onWhy?: (bundle: string) => void }) {
  const { onWhy } = props;
  const groups = new Map<string, Refusal[]>();
  for (const row of props.rows) groups.set(row.code, [...(groups.get(row.code) ?? []), row]);
  return (
    <ul class="refusals">
      {[...groups].map(([code, rows]) => (
        <li key={code}>
          <details>
            <summary>
              <strong>{words(code)}</strong> ({count(rows.length, "candidate")}): <Said text={sentence(rows[0].explanation)} />
            </summary>
            <ul>
              {rows.slice(0, SHOWN_REFUSALS).map((row, place) => (
                <li key={place}>
                  {!row.bundle && row.broker}
                  {row.bundle && !onWhy && <BundleName bundle={row.bundle} />}
                  {row.bundle && onWhy && (
                    <button type="button" class="link" onClick={() => onWhy(row.bundle)}>
                      <BundleName bundle={row.bundle} />
                    </button>
                  )}{" "}
                  {row.detail && <span class="quiet"><Said text={row.detail} /></span>}
                  {row.frees_ms ? <span class="quiet"> until {moment(row.frees_ms)}</span> : null}
                </li>
              ))}
              {rows.length > SHOWN_REFUSALS && <li class="quiet">and {rows.length - SHOWN_REFUSALS} more</li>}
            </ul>
          </details>
        </li>
      ))}
    </ul>
  );
}
