// Effective settings and where each came from.

import type { Setting } from "./answers";
import { useState } from "preact/hooks";
import { useAnswer } from "./live";
import { Loaded, Said, Search } from "./parts";
import { count } from "./words";

function shown(value: unknown): string {
  if (value === null || value === undefined || value === "") return "none";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function SettingsView() {
  const answer = useAnswer<Setting[]>("settings");
  const [text, setText] = useState("");
  const [changed, setChanged] = useState(false);
  return (
    <>
      <p>The settings in effect, and the origin of each. Secrets are hidden. To change a setting, edit the settings file.</p>
      <div class="fields">
        <Search label="Show keys with" text={text} set={setText} />
        <label class="check">
          <input type="checkbox" checked={changed} onChange={() => setChanged(!changed)} />
          only values that differ from the defaults
        </label>
      </div>
      <Loaded answer={answer}>
        {(rows) => {
          const wanted = text.trim().toLowerCase();
          const found = rows.filter(
            (row) =>
              (!changed || row.origin !== "default") &&
              `${row.key} ${row.pulsar_keys.join(" ")}`.toLowerCase().includes(wanted),
          );
          return (
            <>
              <p class="quiet" role="status">
                {count(found.length, "setting")}
              </p>
              <div class="scroll" tabIndex={0} role="region" aria-label="Settings">
                <table class="settings">
                  <thead>
                    <tr>
                      <th scope="col">Setting</th>
                      <th scope="col">Value</th>
                      <th scope="col">Origin</th>
                      <th scope="col">Purpose</th>
                    </tr>
                  </thead>
                  <tbody>
                    {found.map((row) => (
                      <tr key={row.key}>
                        <th scope="row">
                          <code>{row.key}</code>
                        </th>
                        <td>
                          <strong class="value">{shown(row.value)}</strong> <span class="quiet">{["name", "true/false"].includes(row.unit) ? "" : row.unit}</span>
                        </td>
                        <td data-label="Origin: ">{row.origin}</td>
                        <td>
                          <Said text={row.why} />
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </>
          );
        }}
      </Loaded>
    </>
  );
}
