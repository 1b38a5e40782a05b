// Quota groups: what their members pass together of what they may, who is held back, and why.

import type { QuotaWhyView } from "./answers";
import { useState } from "preact/hooks";
import { type WhoAmI, part } from "./api";
import { useAnswer } from "./live";
import { Dialog, Loaded, Notice, Said, mayNotChange } from "./parts";
import { ChangeGroup, NewGroup, RemoveGroup } from "./quotaforms";
import { type Group, KINDS, type Kind, LABELS, type Quotas, type Rates, amount, limitedKinds } from "./quotarates";
import { QuotaTopics } from "./quotatopics";
import { clock, count, moment, percent, sentence, words } from "./words";

/** As far as a sum may miss its limit; what is above is said to be. */
const ACCURACY = 1.1;

/** Why a group, or a topic of one, passes what it passes; as `bundlekeel quota explain` says it. */
function WhyDrawer(props: { name: string; onClose: () => void }) {
  const answer = useAnswer<QuotaWhyView>(`quotas/${part(props.name)}/why`);
  return (
    <Dialog title="Why this rate" onClose={props.onClose}>
      <p class="bundle">
        <strong>{props.name}</strong>
      </p>
      <Loaded answer={answer}>
        {(why) => (
          <>
            {why.kind === "topic" && <p>In quota group {why.group}.</p>}
            <ul>
              {why.sentences.map((line) => (
                <li key={line}>
                  <Said text={sentence(line)} />
                </li>
              ))}
            </ul>
            {why.codes.length > 0 && (
              <dl>
                {why.codes.map((row) => (
                  <div key={row.code}>
                    <dt>{words(row.code)}</dt>
                    <dd>{sentence(row.explanation)}</dd>
                  </div>
                ))}
              </dl>
            )}
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

function LimitBar(props: { kind: Kind; group: Group }) {
  const { kind, group } = props;
  const limit = group.limits[kind]!;
  const usage = group.usage?.[kind] ?? null;
  const shares = group.shares?.[kind] ?? null;
  const ratio = group.used_ratio?.[kind] ?? null;
  const most = Math.max(limit, usage ?? 0, shares ?? 0);
  const end = most * (most > limit ? 1.05 : 1.02);
  const at = (value: number) => `${(100 * value) / end}%`;
  const said =
    usage === null
      ? `limit ${amount(kind, limit)}, not measured yet`
      : `${amount(kind, usage)} of ${amount(kind, limit)}, ${percent(ratio, 1)}; shares add up to ${amount(kind, shares)}`;
  const [excess, lost] = [group.excess?.[kind] ?? 0, group.skew_loss?.[kind] ?? 0];
  return (
    <li>
      <div class="kind">{LABELS[kind]}</div>
      <div class="track" role="img" aria-label={`${LABELS[kind]}: ${said}`}>
        <div class={`bar used ${ratio !== null && ratio > ACCURACY ? "over" : ""}`} style={{ width: at(usage ?? 0) }} />
        {shares !== null && <span class="line mean" style={{ left: at(shares) }} title={`sum of shares ${amount(kind, shares)}`} />}
        <span class="line" style={{ left: at(limit) }} title={`limit ${amount(kind, limit)}`} />
      </div>
      <div class="figures">
        <strong>{usage === null ? "–" : percent(ratio, 1)}</strong> {usage === null ? "not measured yet" : amount(kind, usage)} of{" "}
        {amount(kind, limit)}
        {shares !== null && <div class="quiet">shares add up to {amount(kind, shares)}</div>}
        {ratio !== null && ratio > ACCURACY && <span class="remark">above the limit</span>}
        {excess > 0 && <span class="remark">shares exceed the limit by {amount(kind, excess)}</span>}
        {lost > 0 && <span class="remark">{amount(kind, lost)} lost to uneven partitions</span>}
      </div>
    </li>
  );
}

/** Kinds that have no limit: what passes is shown nevertheless. */
function Unlimited(props: { group: Group; usage: Rates }) {
  const free = KINDS.filter((kind) => props.group.limits[kind] === null);
  if (!free.length) return null;
  const said = free.map((kind) => `${LABELS[kind].toLowerCase()} ${amount(kind, props.usage[kind])}`);
  return <p class="quiet">Not limited: {said.join("; ")}.</p>;
}

function HeldBack(props: { group: Group }) {
  const { group } = props;
  if (group.topics === null) return <p class="quiet">The leader has not measured this group yet.</p>;
  const held = group.held_back ?? 0;
  const seconds = group.held_back_seconds;
  return (
    <p>
      {count(group.topics, "topic")} of {count(group.namespaces ?? 0, "namespace")};{" "}
      <strong>{held ? `${held} held back now` : "none held back now"}</strong>.
      {!!seconds && ` Throttled for ${topicSeconds(seconds)} in total (topics × time at their limit).`}
    </p>
  );
}

function topicSeconds(seconds: number): string {
  if (seconds < 5400) return count(Math.round(seconds), "topic-second");
  return count(Math.round(seconds / 3600), "topic-hour");
}

function GroupCard(props: {
  group: Group;
  off: boolean;
  may: boolean;
  onWhy: (name: string) => void;
  onDone: (said: string) => void;
}) {
  const { group } = props;
  const [open, setOpen] = useState<"" | "change" | "remove">("");
  const close = () => setOpen("");
  const heading = `quota-${group.name}`;
  return (
    <li class="task quota" aria-labelledby={heading}>
      <h2 id={heading}>{group.name}</h2>
      <p class="quiet">
        Members {group.members.join(", ")}.{" "}
        {group.origin === "api" ? `Set by ${group.by} at ${moment(group.since_ms)}: ${group.reason}` : "Set in the settings file"}.
      </p>
      <ol class="limits" aria-label={`Limits of ${group.name}`}>
        {limitedKinds(group).map((kind) => (
          <LimitBar key={kind} kind={kind} group={group} />
        ))}
      </ol>
      <HeldBack group={group} />
      {group.usage && <Unlimited group={group} usage={group.usage} />}
      {group.defects.map((row) => (
        <Notice key={row.code + row.detail} kind="warn">
          <strong>{words(row.code)}</strong>: {sentence(row.explanation)} {row.detail && <span class="quiet">({row.detail})</span>}
        </Notice>
      ))}
      <QuotaTopics group={group} onWhy={props.onWhy} />
      <div class="fields">
        <button type="button" onClick={() => props.onWhy(group.name)} aria-label={`Why ${group.name} gets this rate`}>
          Why
        </button>
        {props.may && (
          <>
            <button type="button" onClick={() => setOpen("change")} aria-label={`Change the limits of ${group.name}`}>
              Change
            </button>
            <button type="button" onClick={() => setOpen("remove")} aria-label={`Remove ${group.name}`}>
              Remove
            </button>
          </>
        )}
      </div>
      {open === "change" && <ChangeGroup group={group} off={props.off} onDone={props.onDone} onClose={close} />}
      {open === "remove" && <RemoveGroup group={group} onDone={props.onDone} onClose={close} />}
    </li>
  );
}

const ENFORCERS: Record<string, string> = {
  off: "off: groups are only shown",
  native: "native: Pulsar's ResourceGroups",
  policies: "policies: rates of each topic",
};

function Facts(props: { quotas: Quotas }) {
  const { quotas } = props;
  return (
    <dl class="facts">
      <div>
        <dt>Enforcer</dt>
        <dd>{ENFORCERS[quotas.enforcer] ?? quotas.enforcer}</dd>
      </div>
      <div>
        <dt>Mode</dt>
        <dd>
          {quotas.mode}: {quotas.acting ? "limits are enforced" : "nothing is written"}
        </dd>
      </div>
      <div>
        <dt>Last cycle</dt>
        <dd>{quotas.wall_ms === null ? "not yet" : clock(quotas.wall_ms)}</dd>
      </div>
      {quotas.writes.failed > 0 && (
        <div>
          <dt>Failed writes</dt>
          <dd>{count(quotas.writes.failed, "change")}</dd>
        </div>
      )}
    </dl>
  );
}

function Wrong(props: { quotas: Quotas }) {
  const { quotas } = props;
  return (
    <>
      {quotas.problems.map((line) => (
        <Notice key={line} kind="bad">
          {sentence(line)}
        </Notice>
      ))}
      {Object.entries(quotas.left).map(([code, number]) => (
        <Notice key={code} kind="warn">
          {count(number, "rate")} of topics not written, <strong>{words(code)}</strong>: {sentence(quotas.explanations?.[code] ?? "")}
        </Notice>
      ))}
    </>
  );
}

function AskWhy(props: { onWhy: (name: string) => void }) {
  const [name, setName] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    props.onWhy(name.trim());
  };
  return (
    <form onSubmit={submit}>
      <div class="fields">
        <label>
          <span>Why does a topic get its rate?</span>
          <input
            name="topic"
            size={34}
            required
            value={name}
            placeholder="persistent://tenant/namespace/topic"
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </label>
        <button type="submit">Explain</button>
      </div>
    </form>
  );
}

function Nothing() {
  return (
    <p>
      A quota group limits what its members publish and receive together, over all brokers. Declare one in the settings file, or with{" "}
      <code class="command">
        bundlekeel quota set acme --member t:acme --limit publish_messages=500 --limit publish_bytes=10MB --reason "contract"
      </code>
    </p>
  );
}

export function QuotasView(props: { who: WhoAmI | null }) {
  const answer = useAnswer<Quotas>("quotas");
  const [why, setWhy] = useState("");
  const [done, setDone] = useState("");
  const refused = mayNotChange(props.who, "Setting or removing a group", "bundlekeel quota set");
  return (
    <Loaded answer={answer}>
      {(quotas) => {
        const off = quotas.enforcer === "off";
        return (
          <>
            <p role="status">{sentence(quotas.sentence)}</p>
            {done && <Notice kind="good">{done}</Notice>}
            {quotas.groups.length > 0 ? <Facts quotas={quotas} /> : <Nothing />}
            <Wrong quotas={quotas} />
            {quotas.groups.length > 0 && (
              <>
                <p class="scale">
                  A bar shows the throughput of a group. The solid line is its limit, the dotted line the sum of its topics' shares.
                </p>
                <ul class="tasks">
                  {quotas.groups.map((group) => (
                    <GroupCard key={group.name} group={group} off={off} may={!refused} onWhy={setWhy} onDone={setDone} />
                  ))}
                </ul>
                <AskWhy onWhy={setWhy} />
              </>
            )}
            {refused ? <Notice kind="info">{refused}</Notice> : <NewGroup off={off} onDone={setDone} />}
            {why && <WhyDrawer name={why} onClose={() => setWhy("")} />}
          </>
        );
      }}
    </Loaded>
  );
}
