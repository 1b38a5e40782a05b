// The drawer that says why: a broker, a bundle, or a move of a plan.

import { useState } from "preact/hooks";
import type { OperationsView } from "./answers";
import { type Bundle, type Move, type WhoAmI, type Why, part } from "./api";
import { BundleName } from "./bars";
import { useAnswer } from "./live";
import { BrokerOperations, TransferDialog } from "./operations";
import { Drawer, Loaded, Said, mayNotChange } from "./parts";
import { messages, moment, percent, rate, sentence, words } from "./words";

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
                      <Said text={sentence(row.explanation)} /> {row.detail && <span class="quiet">(<Said text={row.detail} />)</span>}
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
                  {why.history.slice(-10).map((row) => (
                    <li key={`${row.wall_ms} ${row.bundle}`}>
                      {moment(row.wall_ms)}: <Said text={row.sentence ?? ""} />
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

export function BrokerDrawer(props: {
  broker: string;
  who: WhoAmI | null;
  operations: OperationsView | null;
  onClose: () => void;
}) {
  const bundles = useAnswer<Bundle[]>(`bundles?broker=${part(props.broker)}&limit=50`);
  const [moved, setMoved] = useState("");
  return (
    <Drawer title={`Broker ${props.broker}`} onClose={props.onClose}>
      <BrokerOperations broker={props.broker} who={props.who} operations={props.operations} />
      <Reasons path={`brokers/${part(props.broker)}`} />
      <h3>Its largest bundles</h3>
      <Loaded answer={bundles} empty="It carries no bundle.">
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
                    <BundleName bundle={row.bundle} />
                  </td>
                  <td class="number" data-label="Throughput: ">{rate(row.short.throughput_in + row.short.throughput_out)}</td>
                  <td data-label="May it move? ">
                    {row.may_move ? "yes" : `no: ${words(row.code ?? "")}`}{" "}
                    {props.who?.mutations && (
                      <button type="button" onClick={() => setMoved(row.bundle)} aria-label={`Move ${row.bundle}`}>
                        Move
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Loaded>
      {moved && <TransferDialog bundle={moved} source={props.broker} onClose={() => setMoved("")} />}
    </Drawer>
  );
}

export function BundleDrawer(props: { bundle: string; move?: Move; who: WhoAmI | null; onClose: () => void }) {
  const { move } = props;
  const [moving, setMoving] = useState(false);
  const refused = mayNotChange(props.who, "Moving a bundle", "bundlekeel transfer");
  return (
    <Drawer title={move ? "Why this move" : "Why this bundle stays"} onClose={props.onClose}>
      <p>
        <BundleName bundle={props.bundle} />
      </p>
      {refused ? (
        <p class="quiet">{refused}</p>
      ) : (
        <p class="actions">
          <button type="button" onClick={() => setMoving(true)}>
            Move it by hand
          </button>
        </p>
      )}
      {moving && <TransferDialog bundle={props.bundle} source={move?.source ?? null} onClose={() => setMoving(false)} />}
      {move && (
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
                <td>from {move.source}</td>
                <td class="number" data-label="Before: ">{percent(move.source_before, 1)}</td>
                <td class="number" data-label="After: ">{percent(move.source_after, 1)}</td>
              </tr>
              <tr>
                <td>to {move.target}</td>
                <td class="number" data-label="Before: ">{percent(move.target_before, 1)}</td>
                <td class="number" data-label="After: ">{percent(move.target_after, 1)}</td>
              </tr>
            </tbody>
          </table>
          <p>{move.runner_up ? `The next best place would have been ${move.runner_up}.` : "No other broker could take it."}</p>
          <h3>The bundle now</h3>
        </>
      )}
      <Reasons path={`bundles/${part(props.bundle)}`} />
    </Drawer>
  );
}
