// The drawer that says why: a broker, a bundle, or a move of a plan.

import { useState } from "preact/hooks";
import { type Panel, PanelLink, closePanel } from "./address";
import type { OperationsView, Place } from "./answers";
import { type Broker, type Bundle, type Move, type WhoAmI, type Why, part } from "./api";
import { BundleName } from "./bars";
import { said } from "./journal";
import { type Answer, useAnswer } from "./live";
import { BrokerOperations, TransferDialog } from "./operations";
import { Drawer, Loaded, Missing, Said, mayNotChange } from "./parts";
import { dated, messages, percent, rate, sentence, shortNames, words } from "./words";

function Reasons(props: { path: string }) {
  const answer = useAnswer<Why>(`${props.path}/why`);
  return (
    <Loaded answer={answer}>
      {(why) => {
        const change = why.what_would_change_it;
        const changes = Array.isArray(change) ? change : change ? [change] : [];
        return (
          <>
            <p>
              <Said text={sentence(why.sentence)} />
            </p>
            {why.codes.length > 0 && (
              <dl>
                {why.codes.map((row) => (
                  <div key={row.code + row.detail}>
                    <dt>{words(row.code)}</dt>
                    <dd>
                      <Said text={sentence(row.explanation)} /> {row.detail && !why.sentence.includes(row.detail) && <span class="quiet">(<Said text={row.detail} />)</span>}
                    </dd>
                  </div>
                ))}
              </dl>
            )}
            {why.planned.length > 0 && (
              <>
                <h3>What the last plan moves</h3>
                <ul>
                  {why.planned.map((line) => (
                    <li key={line}>
                      <Said text={line} />
                    </li>
                  ))}
                </ul>
              </>
            )}
            {changes.length > 0 && (
              <>
                <h3>What would change it</h3>
                <ul>
                  {changes.map((line) => (
                    <li key={line}>
                      <Said text={line} />
                    </li>
                  ))}
                </ul>
              </>
            )}
            {why.history.length > 0 && (
              <>
                <h3>What happened to it</h3>
                <ul>
                  {why.history.slice(-10).reverse().map((row) => (
                    <li key={`${row.wall_ms} ${row.bundle}`}>
                      {dated(row.wall_ms)}: <Said text={said(row)} />
                    </li>
                  ))}
                </ul>
              </>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

/** What a broker uses of the limits that are known. Extensible brokers have a score in place of the CPU. */
function Resources(props: { row: Broker }) {
  const { load_manager, resources } = props.row;
  const known = Object.entries(resources ?? {}).filter(([, used]) => used.limit > 0);
  if (load_manager?.includes("Extensible") || !known.length) return null;
  const used = known.map(([name, { percent: share }]) => `${name === "cpu" ? "CPU" : name.replace("_", " ")} ${percent(share / 100, 1)}`);
  return <p>In use: {used.join(", ")}.</p>;
}

function BrokerDrawer(props: { broker: string; row?: Broker; who: WhoAmI | null }) {
  const operations = useAnswer<OperationsView>("operations").data;
  const bundles = useAnswer<Bundle[]>(`bundles?broker=${part(props.broker)}&limit=50`);
  const [moved, setMoved] = useState<Bundle | null>(null);
  const asked = [...(operations?.drains ?? []), ...(operations?.cordons ?? []), ...(operations?.warms ?? [])];
  if (bundles.problem?.status === 404 && !asked.some((row) => row.broker === props.broker)) {
    return (
      <Drawer title={`Broker ${props.broker}`} onClose={closePanel}>
        <Missing problem={bundles.problem} />
      </Drawer>
    );
  }
  return (
    <Drawer title={`Broker ${props.broker}`} onClose={closePanel}>
      <BrokerOperations broker={props.broker} who={props.who} operations={operations} />
      {props.row && <Resources row={props.row} />}
      <Reasons path={`brokers/${part(props.broker)}`} />
      <h3>Its largest bundles</h3>
      <Loaded answer={bundles} empty="This broker has no bundles.">
        {(rows) => (
          <table>
            <thead>
              <tr>
                <th scope="col">Bundle</th>
                <th scope="col" class="number">
                  Throughput
                </th>
                <th scope="col">May it move?</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.bundle}>
                  <td>
                    <PanelLink of="name" name={row.bundle}>
                      <BundleName bundle={row.bundle} />
                    </PanelLink>
                  </td>
                  <td class="number" data-label="Throughput: ">{rate(row.short.throughput_in + row.short.throughput_out)}</td>
                  <td data-label="May it move? ">
                    {row.may_move ? "yes" : `no: ${words(row.code ?? "")}`}{" "}
                    {props.who?.mutations && (row.may_move || row.code === "CoolDown") && (
                      <button type="button" onClick={() => setMoved(row)} aria-label={`Move ${row.bundle}`}>
                        {row.may_move ? "Move" : "Move anyway"}
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Loaded>
      {moved && <TransferDialog bundle={moved.bundle} source={props.broker} override={!moved.may_move} onClose={() => setMoved(null)} />}
    </Drawer>
  );
}

/** Where it is: one line, or a row for each bundle of a namespace and each partition of a topic. */
function Places(props: { rows: Place[] }) {
  const owner = (row: Place) => (row.broker ? <PanelLink of="broker" name={row.broker} /> : row.state);
  if (props.rows.length === 1) {
    const [row] = props.rows;
    return (
      <p>
        {row.topic && (
          <>
            In the bundle <BundleName bundle={row.bundle} />,{" "}
          </>
        )}
        {row.state} {row.broker && <>by {owner(row)}</>}
        {row.preallocated_to && ` and in transit to ${row.preallocated_to}`}.
        {row.topic_exists === false && " The topic does not exist yet."}
      </p>
    );
  }
  return (
    <table aria-label="Where it is">
      <thead>
        <tr>
          <th scope="col">{props.rows[0]?.topic ? "Partition and its bundle" : "Bundle"}</th>
          <th scope="col">Broker</th>
        </tr>
      </thead>
      <tbody>
        {props.rows.map((row) => (
          <tr key={row.topic ?? row.bundle}>
            <td>
              {row.topic && <div>{row.topic}</div>}
              <PanelLink of="name" name={row.bundle}>
                <BundleName bundle={row.bundle} />
              </PanelLink>
            </td>
            <td>{owner(row)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

// Moves of the plan that was drawn last: the panel of a bundle says why it moves.
export const planned: { moves: Move[] } = { moves: [] };

function Expected(props: { move: Move }) {
  const { move } = props;
  return (
    <>
      <p>
        It carries {rate(move.traffic[2] + move.traffic[3])} ({messages(move.traffic[0] + move.traffic[1])}). Rule{" "}
        <strong>{move.rule}</strong>, threshold {percent(move.threshold, 1)}.
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">Broker</th>
            <th scope="col" class="number">
              Before
            </th>
            <th scope="col" class="number">
              After
            </th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <td>from <span class="whole">{move.source}</span></td>
            <td class="number" data-label="Before: ">{percent(move.source_before, 1)}</td>
            <td class="number" data-label="After: ">{percent(move.source_after, 1)}</td>
          </tr>
          <tr>
            <td>to <span class="whole">{move.target}</span></td>
            <td class="number" data-label="Before: ">{percent(move.target_before, 1)}</td>
            <td class="number" data-label="After: ">{percent(move.target_after, 1)}</td>
          </tr>
        </tbody>
      </table>
      <p>{move.runner_up ? `The second-best target was ${move.runner_up}.` : "No other broker could take it."}</p>
      <h3>The bundle now</h3>
      <p class="quiet">State in the last cycle, not in this plan.</p>
    </>
  );
}

/** A bundle, a topic or a namespace: where it is; of one bundle also why it is there, and a move by hand. */
function NameDrawer(props: { name: string; move?: Move; who: WhoAmI | null }) {
  const { move, name } = props;
  const places = useAnswer<Place[]>(`where?name=${encodeURIComponent(name)}`);
  const [moving, setMoving] = useState(false);
  const refused = mayNotChange(props.who, "Moving a bundle", "bundlekeel transfer");
  // Of one word, why also knows the brokers that are like it.
  const missing = places.problem?.status === 404;
  const why = useAnswer<Why>(missing && !name.includes("/") ? `bundles/${part(name)}/why` : null);
  const only = places.data?.length === 1 ? places.data[0] : null;
  return (
    <Drawer title={move ? "Why this move" : name} onClose={closePanel}>
      {move && (
        <p>
          <BundleName bundle={name} />
        </p>
      )}
      {move && <Expected move={move} />}
      {missing ? (
        <Missing problem={why.problem ?? places.problem!} />
      ) : (
        <Loaded answer={places} empty="There are no bundles.">
          {(rows) => <Places rows={rows} />}
        </Loaded>
      )}
      {only && refused && <p class="quiet">{refused}</p>}
      {only && !refused && (
        <p class="actions">
          <button type="button" onClick={() => setMoving(true)}>
            Move manually
          </button>
        </p>
      )}
      {only && moving && <TransferDialog bundle={only.bundle} source={only.broker} onClose={() => setMoving(false)} />}
      {only && <Reasons path={`bundles/${part(only.bundle)}`} />}
    </Drawer>
  );
}

/** A broker may be named as the bars name it, and as the `name` of an address, too. */
export function PanelOf(props: { panel: Panel; who: WhoAmI | null; brokers: Answer<Broker[]> }) {
  const { name, of } = props.panel;
  const { data, problem } = props.brokers;
  if (!name.includes("/") && !data && !problem) return null; // not known yet: the brokers are being asked for
  const short = shortNames(data ?? []);
  const found = data?.find((row) => row.broker === name || short(row.broker) === name);
  if (found || of === "broker") return <BrokerDrawer broker={found?.broker ?? name} row={found} who={props.who} />;
  return <NameDrawer name={name} move={planned.moves.find((row) => row.bundle === name)} who={props.who} />;
}
