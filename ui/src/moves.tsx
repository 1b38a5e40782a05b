// What would move and what would not: of a plan, and of what a person asks for.

import type { Move, Refusal } from "./api";
import { BundleName } from "./bars";
import { clock, count, rate, sentence, words } from "./words";

const SHOWN = 100;

export function Moves(props: { moves: Move[]; onWhy?: (move: Move) => void }) {
  const { onWhy } = props;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Moves">
      <table class="moves">
        <thead>
          <tr>
            <th scope="col">Bundle</th>
            <th scope="col">From → to</th>
            <th scope="col" class="number">
              Throughput
            </th>
            {onWhy && <th scope="col">Why</th>}
          </tr>
        </thead>
        <tbody>
          {props.moves.map((move) => (
            <tr key={move.bundle}>
              <td>
                <BundleName bundle={move.bundle} />
              </td>
              <td>
                {move.source} <span class="arrow" aria-label="to">→</span> {move.target}
              </td>
              <td class="number">{rate(move.traffic[2] + move.traffic[3])}</td>
              {onWhy && (
                <td>
                  <button type="button" onClick={() => onWhy(move)} aria-label={`Why ${move.bundle} moves`}>
                    Why
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
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
              <strong>{words(code)}</strong> ({count(rows.length, "candidate")}): {sentence(rows[0].explanation)}
            </summary>
            <ul>
              {rows.slice(0, SHOWN).map((row, place) => (
                <li key={place}>
                  {!row.bundle && row.broker}
                  {row.bundle && !onWhy && <BundleName bundle={row.bundle} />}
                  {row.bundle && onWhy && (
                    <button type="button" class="link" onClick={() => onWhy(row.bundle)}>
                      <BundleName bundle={row.bundle} />
                    </button>
                  )}{" "}
                  {row.detail && <span class="quiet">{row.detail}</span>}
                  {row.frees_ms ? <span class="quiet"> until {clock(row.frees_ms)}</span> : null}
                </li>
              ))}
              {rows.length > SHOWN && <li class="quiet">and {rows.length - SHOWN} more</li>}
            </ul>
          </details>
        </li>
      ))}
    </ul>
  );
}
