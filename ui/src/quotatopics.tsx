// The busiest topics of a quota group: what each passes, its share, and the rate in force.

import { useState } from "preact/hooks";
import { part } from "./api";
import { useAnswer } from "./live";
import { Loaded, Said } from "./parts";
import { type Group, type Kind, LABELS, type Topic, amount, limitedKinds } from "./quotarates";
import { count, percent, words } from "./words";

const SHOWN = 40;

function TopicBar(props: { topic: Topic; kind: Kind; end: number }) {
  const { topic, kind, end } = props;
  const [usage, share] = [topic.usage[kind] ?? 0, topic.share[kind]];
  const ratio = share ? usage / share : null;
  const said = share === null ? `throughput ${amount(kind, usage)}, no share` : `uses ${percent(ratio)} of its share`;
  return (
    <div class="track thin" role="img" aria-label={`${topic.topic}: ${said}`}>
      <div class="bar used" style={{ width: `${(100 * usage) / end}%` }} />
      {share !== null && <span class="line mean" style={{ left: `${(100 * share) / end}%` }} title={`share ${amount(kind, share)}`} />}
    </div>
  );
}

/** A long name goes on in the next line after a slash, where there is room for its parts. */
function Slashed(props: { name: string }) {
  return <>{props.name.split(/(?<=\/)/).flatMap((piece, place) => (place ? [<wbr key={place} />, piece] : piece))}</>;
}

function TopicRows(props: { topic: Topic; kinds: Kind[]; ends: Record<string, number>; onWhy: (name: string) => void }) {
  const { topic, kinds } = props;
  return (
    <>
      {kinds.map((kind, place) => (
        <tr key={kind}>
          {place === 0 && (
            <th scope="rowgroup" rowSpan={kinds.length}>
              <button type="button" class="link bundle" onClick={() => props.onWhy(topic.topic)} aria-label={`Why ${topic.topic}`}>
                <Slashed name={topic.topic.replace(/^persistent:\/\//, "")} />
              </button>
              <div class="quiet">
                {topic.partitions > 1 && `${topic.partitions} partitions, `}
                <Said text={topic.brokers.length ? `on ${topic.brokers.join(", ")}` : "no broker serves it now"} />
              </div>
              {topic.codes.length > 0 && <div>Rate not written: {topic.codes.map(words).join(", ")}</div>}
            </th>
          )}
          <td class="kind">
            {LABELS[kind]}
            <TopicBar topic={topic} kind={kind} end={props.ends[kind]} />
          </td>
          <td class="number" data-label="Usage: ">{amount(kind, topic.usage[kind])}</td>
          <td class="number" data-label="Wanted: ">{amount(kind, topic.demand[kind])}</td>
          <td class="number" data-label="Share: ">{amount(kind, topic.share[kind])}</td>
          <td class="number" data-label="Share not used: ">{topic.loss[kind] ? <strong>{amount(kind, topic.loss[kind])}</strong> : "none"}</td>
          <td class="number" data-label="Rate in force: ">
            {amount(kind, topic.partition_rate[kind])}
            {topic.partitions > 1 && topic.partition_rate[kind] !== null && <div class="quiet">per partition</div>}
          </td>
          <td data-label="Held back: ">{topic.held_back.includes(kind) ? <strong>yes</strong> : "no"}</td>
        </tr>
      ))}
    </>
  );
}

function TopicTable(props: { group: Group; rows: Topic[]; onWhy: (name: string) => void }) {
  const { group, rows } = props;
  const kinds = limitedKinds(group);
  // One scale for each kind, so that bars of several topics can be compared.
  const ends: Record<string, number> = {};
  for (const kind of kinds) {
    ends[kind] = 1.02 * Math.max(1e-9, ...rows.flatMap((row) => [row.usage[kind] ?? 0, row.share[kind] ?? 0]));
  }
  const more = (group.topics ?? rows.length) - Math.min(rows.length, SHOWN);
  return (
    <>
      <p class="quiet">Topics with the most throughput come first. A bar shows the throughput of a topic, the dotted line its share.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Busiest topics of ${group.name}`}>
        <table>
          <thead>
            <tr>
              <th scope="col">Topic</th>
              <th scope="col">Kind</th>
              <th scope="col" class="number">
                Usage
              </th>
              <th scope="col" class="number">
                Wanted
              </th>
              <th scope="col" class="number">
                Share
              </th>
              <th scope="col" class="number" title="Unused part of the share, because too few partitions have demand">
                Share not used
              </th>
              <th scope="col" class="number">
                Rate in force
              </th>
              <th scope="col">Held back</th>
            </tr>
          </thead>
          {rows.slice(0, SHOWN).map((row) => (
            <tbody key={row.topic}>
              <TopicRows topic={row} kinds={kinds} ends={ends} onWhy={props.onWhy} />
            </tbody>
          ))}
        </table>
      </div>
      {more > 0 && <p class="quiet">{count(more, "further topic")} not shown.</p>}
    </>
  );
}

function Topics(props: { group: Group; onWhy: (name: string) => void }) {
  const answer = useAnswer<{ rows: Topic[] }>(`quotas/${part(props.group.name)}`);
  return (
    <Loaded answer={answer}>
      {({ rows }) =>
        rows.length ? (
          <TopicTable group={props.group} rows={rows} onWhy={props.onWhy} />
        ) : (
          <p class="empty">No topic of this group is known yet.</p>
        )
      }
    </Loaded>
  );
}

/** Asked for only while it is open. */
export function QuotaTopics(props: { group: Group; onWhy: (name: string) => void }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Busiest topics</summary>
      {open && <Topics group={props.group} onWhy={props.onWhy} />}
    </details>
  );
}
