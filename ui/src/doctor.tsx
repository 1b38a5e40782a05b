// Every connection and permission, as `bundlekeel doctor` tests them: asked when somebody wants to know, not at every change.

import { useEffect, useState } from "preact/hooks";
import type { Check } from "./answers";
import { Problem, ask } from "./api";
import { ProblemNotice, Said } from "./parts";
import { count } from "./words";

const RESULTS = [
  { name: "failed", many: "failed", sign: "✕", kind: "bad" },
  { name: "warning", many: "warnings", sign: "!", kind: "warn" },
  { name: "ok", many: "ok", sign: "✓", kind: "good" },
];

function resultOf(row: Check): number {
  return row.ok ? 2 : row.severity === "warning" ? 1 : 0;
}

function Checks(props: { rows: Check[] }) {
  // The sort is stable: within a result the order stays, which is that in which one would fix things.
  const rows = [...props.rows].sort((a, b) => resultOf(a) - resultOf(b));
  const many = RESULTS.map((result, place) => count(rows.filter((row) => resultOf(row) === place).length, result.name, result.many));
  const toDo = rows.some((row) => row.fix);
  return (
    <>
      <p class="planline" role="status">
        {count(rows.length, "check")}: {many.join(", ")}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Checks">
        <table>
          <thead>
            <tr>
              <th scope="col">Result</th>
              <th scope="col">Check</th>
              <th scope="col">What was found</th>
              {toDo && (
                <th scope="col" class="next">
                  What to do next
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, place) => {
              const result = RESULTS[resultOf(row)];
              return (
                <tr key={`${row.name} ${place}`}>
                  <td class={`result ${result.kind}`}>
                    <span aria-hidden="true">{result.sign}</span> {result.name}
                  </td>
                  <th scope="row">{row.name}</th>
                  <td>
                    <Said text={row.detail} />
                  </td>
                  {toDo && <td data-label={row.fix ? "Next: " : undefined}>{row.fix && <Said text={row.fix} />}</td>}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </>
  );
}

export function DoctorView() {
  const [forAct, setForAct] = useState(false);
  const [asked, setAsked] = useState(0);
  const [rows, setRows] = useState<Check[] | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    setRows(null);
    setProblem(null);
    ask<Check[]>("GET", `doctor?for_act=${forAct}`, undefined, abort.signal).then(setRows, (error) => {
      if (!abort.signal.aborted) setProblem(error as Problem);
    });
    return () => abort.abort();
  }, [forAct, asked]);
  return (
    <>
      <p>Tests of all connections and permissions of this sidecar, run when you open this view. They change nothing.</p>
      <div class="fields">
        <button type="button" class="primary" disabled={!rows && !problem} onClick={() => setAsked(asked + 1)}>
          Check again
        </button>
        <label class="check">
          <input type="checkbox" checked={forAct} onChange={() => setForAct(!forAct)} />
          Also run the checks for mode act
        </label>
      </div>
      {problem && <ProblemNotice problem={problem} what="The checks did not run:" />}
      {rows ? <Checks rows={rows} /> : !problem && <p class="waiting">Checking; this may take ten seconds …</p>}
    </>
  );
}
