// The page: which view is shown, and what all of them need to know.

import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useAddress } from "./address";
import type { OperationsView } from "./answers";
import type { Broker, Overview, State, WhoAmI } from "./api";
import { token } from "./api";
import { BrokerBars, Legend } from "./bars";
import { ChannelView } from "./channel";
import { DoctorView } from "./doctor";
import { ExecutionsView } from "./executions";
import { Head, SignIn } from "./head";
import { JournalView } from "./journal";
import { type Answer, restart, useAnswer, useConnection } from "./live";
import { Drawable, Loaded, Notice, ProblemNotice } from "./parts";
import { PlanView } from "./plan";
import { QuotasView } from "./quotas";
import { ReferenceView } from "./reference";
import { SettingsView } from "./settings";
import { ThresholdsView } from "./thresholds";
import { WhatIfView } from "./whatif";
import { PanelOf } from "./why";

const VIEWS: [string, string][] = [
  ["cluster", "Cluster now"],
  ["plan", "Plan"],
  ["what-if", "What if"],
  ["journal", "Journal"],
  ["executions", "Executions"],
  ["channel", "Channel"],
  ["quotas", "Quotas"],
  ["thresholds", "Thresholds"],
  ["settings", "Settings"],
  ["doctor", "Doctor"],
  ["api", "API"],
];

function ViewLinks(props: { view: string }) {
  return (
    <ul>
      {VIEWS.map(([name, label]) => (
        <li key={name}>
          <a href={`#/${name}`} aria-current={name === props.view ? "page" : undefined}>
            {label}
          </a>
        </li>
      ))}
    </ul>
  );
}

function ClusterView(props: { brokers: Answer<Broker[]>; overview: Answer<Overview>; state: State }) {
  const { overview } = props;
  const operations = useAnswer<OperationsView>("operations").data;
  const drawn = (props.brokers.data?.length ?? 0) > 0 && overview.data !== null;
  useEffect(() => {
    // When the bars are on the screen; the tests read it.
    if (drawn) requestAnimationFrame(() => performance.mark("bundlekeel-drawn"));
  }, [drawn]);
  return (
    <Loaded answer={props.brokers} empty="No broker has reported yet. The view Doctor tests each connection.">
      {(rows) => (
        <div class="cluster">
          {overview.data && <Legend overview={overview.data} />}
          <BrokerBars brokers={rows} overview={overview.data} operations={operations} state={props.state} />
        </div>
      )}
    </Loaded>
  );
}

function Main(props: {
  view: string;
  state: State;
  who: WhoAmI | null;
  brokers: Answer<Broker[]>;
  overview: Answer<Overview>;
}) {
  const { view, state, who, brokers } = props;
  if (view === "plan") return <PlanView state={state} who={who} brokers={brokers.data ?? []} />;
  if (view === "what-if") return <WhatIfView state={state} who={who} brokers={brokers.data ?? []} />;
  if (view === "journal") return <JournalView />;
  if (view === "executions") return <ExecutionsView who={who} />;
  if (view === "channel") return <ChannelView state={state} />;
  if (view === "quotas") return <QuotasView who={who} />;
  if (view === "thresholds") return <ThresholdsView who={who} />;
  if (view === "settings") return <SettingsView />;
  if (view === "doctor") return <DoctorView />;
  if (view === "api") return <ReferenceView />;
  if (view === "cluster") return <ClusterView brokers={brokers} overview={props.overview} state={state} />;
  return (
    <>
      <Notice kind="bad">This page has no view “{view}”. Its views are:</Notice>
      <ViewLinks view="" />
    </>
  );
}

function Page() {
  const address = useAddress();
  const [view, title] = address.view ? (VIEWS.find(([name]) => name === address.view) ?? [address.view, "No such view"]) : VIEWS[0];
  const heading = useRef<HTMLHeadingElement>(null);
  const connection = useConnection();
  const state = useAnswer<State>("state");
  const who = useAnswer<WhoAmI>("whoami");
  const brokers = useAnswer<Broker[]>("brokers");
  // Asked for here and not where it is drawn: it need not wait for the others.
  const overview = useAnswer<Overview>(view === "cluster" ? "overview?largest=24" : null);
  const first = useRef(true);
  useEffect(() => {
    document.title = `${title} · Bundlekeel`;
    // Whoever does not see the page hears which view it shows now.
    if (!first.current) heading.current?.focus();
    first.current = false;
  }, [title]);
  useEffect(() => {
    // On a phone the tabs are one line that is moved sideways.
    const tab = document.querySelector("nav [aria-current]");
    const line = tab?.closest("ul");
    if (tab && line) line.scrollLeft += tab.getBoundingClientRect().left - line.getBoundingClientRect().left;
  }, [title, !state.data]);
  if (state.problem?.status === 401) {
    return (
      <main class="lonely">
        <h1>Bundlekeel</h1>
        <SignIn said={token() ? "This token is not valid, or has expired." : "This sidecar asks for credentials."} />
      </main>
    );
  }
  if (!state.data) {
    return (
      <main class="lonely">
        <h1>Bundlekeel</h1>
        {state.problem ? <ProblemNotice problem={state.problem} /> : <p class="waiting">Asking the sidecar …</p>}
      </main>
    );
  }
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), heading.current?.focus())}>
        Skip to the content
      </a>
      <Head state={state} brokers={brokers.data} who={who.data} connection={connection} />
      <nav aria-label="Views">
        <ViewLinks view={view} />
      </nav>
      <main id="main">
        <h1 ref={heading} tabIndex={-1}>
          {title}
        </h1>
        <Drawable key={view}>
          <Main view={view} state={state.data} who={who.data} brokers={brokers} overview={overview} />
        </Drawable>
        {address.panel && <PanelOf key={address.panel.name} panel={address.panel} who={who.data} brokers={brokers} />}
      </main>
      <footer>
        <p class="quiet">
          Bundlekeel {state.data.version}, sidecar {state.data.member} ({state.data.role})
        </p>
      </footer>
    </>
  );
}

const root = document.getElementById("page")!;
root.replaceChildren();
render(
  <Drawable>
    <Page />
  </Drawable>,
  root,
);
restart();
