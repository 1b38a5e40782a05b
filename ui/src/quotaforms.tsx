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
  if (!named.length) throw new Problem(0, "a group has at least one member, t:TENANT or n:TENANT/NAMESPACE");
  const limits = KINDS.map((kind) => [kind, limitOf(kind, texts[kind])] as const).filter(([, value]) => value !== null);
  if (!limits.length) throw new Problem(0, "a group has at least one limit");
  return { members: named, ...Object.fromEntries(limits) };
}

function Limits(props: { texts: Texts; set: (texts: Texts) => void }) {
  return (
    <fieldset>
      <legend>Limits a second, all brokers together; what is empty is not limited</legend>
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
    props.onDone(`Group ${wanted} is set. The leader shares its limits out in its next cycle.`);
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
          <span>Members: t:TENANT or n:TENANT/NAMESPACE, globs allowed, one a line</span>
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
          ? "What is set here lies over the group of the settings file, which stays as it is."
          : "What is set here takes the place of what was set before."}
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
    props.onDone(`Group ${name} is removed. Its topics get back what was there before.`);
  };
  return (
    <Dialog title={`Remove group ${name}`} onClose={props.onClose}>
      <p>
        Its limits no longer hold, and its topics get back the rates that were there before. A group {name} of the settings file is out
        of force, too, until it is set again.
      </p>
      <ReasonForm label="Reason" does="Remove this group" disabled={!sure} run={run}>
        <label class="check">
          <input type="checkbox" checked={sure} onChange={() => setSure(!sure)} />
          {props.group.members.join(", ")} shall no longer be limited by it
        </label>
      </ReasonForm>
    </Dialog>
  );
}
