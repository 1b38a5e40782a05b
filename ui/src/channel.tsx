// Findings in the ownership channel of the extensible load manager.

import type { ChannelSummary, ChannelFinding } from "./answers";
import type { State } from "./api";
import { BundleName } from "./bars";
import { useAnswer } from "./live";
import { Loaded, Notice, Said } from "./parts";
import { count, duration, moment, words } from "./words";

function Findings() {
  const answer = useAnswer<ChannelFinding[]>("channel/findings?limit=500");
  return (
    <Loaded answer={answer} empty="Nothing is wrong in the channel.">
      {(rows) => (
        <ul class="tasks">
          {rows.map((row) => (
            <li key={row.code + row.bundle + row.brokers.join()} class="task">
              <h2>{words(row.code)}</h2>
              {row.bundle && (
                <p>
                  <BundleName bundle={row.bundle} />
                </p>
              )}
              <p>{row.detail}</p>
              <p>
                <strong>Remedy:</strong> <Said text={row.remedy} />
              </p>
              <p class="quiet">
                Since {moment(row.since_ms)}
                {row.deadline_ms ? `; brokers should repair it by ${moment(row.deadline_ms)}` : "; brokers do not repair it"}
              </p>
            </li>
          ))}
        </ul>
      )}
    </Loaded>
  );
}

function Channel() {
  const answer = useAnswer<ChannelSummary>("channel");
  if (answer.problem?.status === 409) return <Notice kind="info">{answer.problem.message}.</Notice>;
  return (
    <Loaded answer={answer}>
      {(channel) => (
        <>
          {!channel.up && <Notice kind="bad">The channel is not followed: {channel.detail}</Notice>}
          {channel.obstacle && <Notice kind="warn">Bundlekeel does not act on the channel now: {channel.obstacle}</Notice>}
          <p>
            {count(channel.bundles, "bundle")} in the {words(channel.variant ?? "unknown").replace(/_/g, " ")}:{" "}
            {Object.entries(channel.states)
              .filter(([, number]) => number > 0)
              .map(([name, number]) => `${number} ${words(name)}`)
              .join(", ")}
            .{" "}
            {channel.in_flight_oldest_seconds > 0
              ? `The oldest assignment, release or split has been in progress for ${duration(channel.in_flight_oldest_seconds)}.`
              : "No assignment, release or split is in progress."}
          </p>
          {channel.up && <Findings />}
        </>
      )}
    </Loaded>
  );
}

export function ChannelView(props: { state: State }) {
  if (props.state.cluster_mode === "modular") {
    return (
      <Notice kind="info">
        The brokers run the modular load manager, which has no ownership channel. There is nothing to watch here.
      </Notice>
    );
  }
  return <Channel />;
}
