// Setting and removing quota groups, for those who may.

import { useState } from "preact/hooks";
import { Problem, ask, part } from "./api";
import { refresh } from "./live";
import { Dialog, Notice, ReasonForm } from "./parts";
import { type Group, KINDS, type Kind, LABELS, limitOf, limitText } from "./quotarates";

type Texts = Record<Kind, string>;
type Done = (said: string) => void;

function textsOf(group: Group | null): Texts {
  return Object.fromEntries(KINDS.map((kind) => [kind, limitText(kind, group?.limits[kind] ?? null)])) as Texts;
}

/** The body of a request from what a person wrote. Problem. */
function bodyOf(members: string, texts: Texts): Record<string, unknown> {
  const named = members.split(/[\s,]+/).filter(Boolean);
  if (!named.length) throw new Problem(0, "a group needs at least one member, t:TENANT or n:TENANT/NAMESPACE");
  const limits = KINDS.map((kind) => [kind, limitOf(kind, texts[kind])] as const).filter(([, value]) => value !== null);
  if (!limits.length) throw new Problem(0, "a group needs at least one limit");
  return { members: named, ...Object.fromEntries(limits) };
}

function Limits(props: { texts: Texts; set: (texts: Texts) => void }) {
  return (
    <fieldset>
      <legend>Limits per second, for all brokers together; an empty field means no limit</legend>
      <div class="fields">
        {KINDS.map((kind) => (
          <label key={kind}>
            <span>{LABELS[kind]}</span>
            <input
              name={kind}
              size={12}
              inputMode={kind.endsWith("bytes") ? "text" : "decimal"}
              placeholder={kind.endsWith("bytes") ? "10MB" : "500"}
              value={props.texts[kind]}
              onInput={(event) => props.set({ ...props.texts, [kind]: event.currentTarget.value })}
            />
          </label>
        ))}
      </div>
    </fieldset>
  );
}

/** The whole group is sent: one that is there already is replaced. `group`: null for a new one. */
function GroupForm(props: { group: Group | null; off: boolean; does: string; onDone: Done }) {
  const { group } = props;
  const [name, setName] = useState(group?.name ?? "");
  const [members, setMembers] = useState(group?.members.join("\n") ?? "");
  const [texts, setTexts] = useState(textsOf(group));
  const run = async (reason: string) => {
    const wanted = name.trim();
    await ask("PUT", `quotas/${part(wanted)}`, { ...bodyOf(members, texts), reason });
    refresh();
    props.onDone(`Group ${wanted} is set. The leader distributes its limits in its next cycle.`);
  };
  return (
    <>
      {props.off && <Notice kind="info">The setting quotas.enforcer is off: groups are only shown, no limit is enforced.</Notice>}
      <ReasonForm label="Reason" does={props.does} run={run}>
        {!group && (
          <label>
            <span>Name</span>
            <input name="name" required maxLength={128} value={name} onInput={(event) => setName(event.currentTarget.value)} />
          </label>
        )}
        <label>
          <span>Members: t:TENANT or n:TENANT/NAMESPACE, globs allowed, one per line</span>
          <textarea name="members" rows={2} required value={members} onInput={(event) => setMembers(event.currentTarget.value)} />
        </label>
        <Limits texts={texts} set={setTexts} />
      </ReasonForm>
    </>
  );
}

/** A button, and behind it the form in a drawer. */
export function NewGroup(props: { off: boolean; onDone: Done }) {
  const [open, setOpen] = useState(false);
  const done = (said: string) => {
    setOpen(false);
    props.onDone(said);
  };
  return (
    <div>
      <button type="button" class="primary" onClick={() => setOpen(true)}>
        Set a new group
      </button>
      {open && (
        <Dialog title="Set a quota group" onClose={() => setOpen(false)}>
          <GroupForm group={null} off={props.off} does="Set this group" onDone={done} />
        </Dialog>
      )}
    </div>
  );
}

export function ChangeGroup(props: { group: Group; off: boolean; onDone: Done; onClose: () => void }) {
  const done = (said: string) => {
    props.onClose();
    props.onDone(said);
  };
  return (
    <Dialog title={`Change group ${props.group.name}`} onClose={props.onClose}>
      <p>
        {props.group.origin === "settings"
          ? "Your change overrides this group of the settings file. The file stays unchanged."
          : "Your change replaces the earlier members and limits."}
      </p>
      <GroupForm group={props.group} off={props.off} does="Set this group" onDone={done} />
    </Dialog>
  );
}

export function RemoveGroup(props: { group: Group; onDone: Done; onClose: () => void }) {
  const { name } = props.group;
  const [sure, setSure] = useState(false);
  const run = async (reason: string) => {
    await ask("DELETE", `quotas/${part(name)}`, { reason });
    refresh();
    props.onClose();
    props.onDone(`Group ${name} is removed. Its topics get their earlier rates again.`);
  };
  return (
    <Dialog title={`Remove group ${name}`} onClose={props.onClose}>
      <p>
        Its limits end, and its topics get their earlier rates again. If the settings file contains a group {name}, that group
        is disabled, too, until an operator sets or resets it.
      </p>
      <ReasonForm label="Reason" does="Remove this group" disabled={!sure} run={run}>
        <label class="check">
          <input type="checkbox" checked={sure} onChange={() => setSure(!sure)} />
          End the limits of {props.group.members.join(", ")}
        </label>
      </ReasonForm>
    </Dialog>
  );
}
