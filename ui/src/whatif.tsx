// What if: the same dry run with other brokers, other traffic, another strategy or other parameters.

import { useEffect, useState } from "preact/hooks";
import { type Broker, type Plan, Problem, type State, type WhoAmI, ask } from "./api";
import { PlanResult, mayNotAsk } from "./plan";
import { MANY } from "./bars";
import { Notice, ProblemNotice, Search } from "./parts";

type Field = { examples?: string[] };
type Document = { components: { schemas: Record<string, { properties: Record<string, Field> }> } };

/** One `name = value` a line; values as in JSON, or as they stand. Problem names the line. */
export function parameters(text: string): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const line of text.split("\n").filter((row) => row.trim())) {
    const cut = line.indexOf("=");
    if (cut < 1) throw new Problem(0, `“${line.trim()}” is not a parameter: write name = value`);
    const value = line.slice(cut + 1).trim();
    try {
      found[line.slice(0, cut).trim()] = JSON.parse(value);
    } catch {
      found[line.slice(0, cut).trim()] = value;
    }
  }
  return found;
}

/** Names for so many brokers more: new-1, new-2 and so on, without those that are there. */
function newNames(many: number, there: string[]): string[] {
  const names: string[] = [];
  for (let number = 1; names.length < many; number++) {
    if (!there.includes(`new-${number}`)) names.push(`new-${number}`);
  }
  return names;
}

function Choice(props: { label: string; now: string; options: string[]; value: string; set: (value: string) => void }) {
  return (
    <label>
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.set(event.currentTarget.value)}>
        <option value="">as now: {props.now}</option>
        {props.options
          .filter((name) => name !== props.now)
          .map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
      </select>
    </label>
  );
}

let kept: Plan | null = null;

export function WhatIfView(props: { state: State; who: WhoAmI | null; brokers: Broker[] }) {
  const [options, setOptions] = useState<Record<string, Field>>({});
  const [gone, setGone] = useState<string[]>([]);
  const [text, setText] = useState("");
  const [more, setMore] = useState("0");
  const [scale, setScale] = useState("1");
  const [strategy, setStrategy] = useState("");
  const [placement, setPlacement] = useState("");
  const [atOnce, setAtOnce] = useState(false);
  const [given, setGiven] = useState("");
  const [plan, setPlan] = useState<Plan | null>(kept);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    ask<Document>("GET", "openapi.json").then(
      (found) => setOptions(found.components.schemas.PlanBody.properties),
      () => setOptions({}),
    );
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    try {
      kept = await ask<Plan>("POST", "plans", {
        ...(strategy && { strategy }),
        ...(placement && { placement }),
        remove_brokers: gone,
        add_brokers: newNames(
          Number(more),
          props.brokers.map((row) => row.broker),
        ),
        traffic_scale: Number(scale),
        ignore_hit_counts: atOnce,
        parameters: parameters(given),
      });
      setPlan(kept);
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  // Those that are chosen stay in sight.
  const listed = props.brokers.filter((row) => gone.includes(row.broker) || row.broker.includes(text.trim()));
  const toggle = (broker: string) => setGone(gone.includes(broker) ? gone.filter((item) => item !== broker) : [...gone, broker]);
  const { state } = props;
  const refused = mayNotAsk(props.who);
  return (
    <>
      <p>A plan for other brokers, traffic or parameters. It is a dry run: nothing moves.</p>
      <form class="whatif" onSubmit={submit}>
        <fieldset>
          <legend>Brokers removed (drained or lost)</legend>
          {props.brokers.length > MANY && <Search label="Show brokers with" text={text} set={setText} />}
          <div class="checks">
            {listed.map((row) => (
              <label key={row.broker} class="check">
                <input type="checkbox" checked={gone.includes(row.broker)} onChange={() => toggle(row.broker)} />
                {row.broker}
              </label>
            ))}
          </div>
        </fieldset>
        <div class="fields">
          <label>
            <span>Brokers added</span>
            <input
              type="number"
              name="more"
              min="0"
              max="100"
              step="1"
              required
              aria-describedby="more-means"
              value={more}
              onInput={(event) => setMore(event.currentTarget.value)}
            />
          </label>
          <label>
            <span>Factor for all traffic</span>
            <input
              type="number"
              name="scale"
              min="0.01"
              max="1000"
              step="any"
              required
              value={scale}
              onInput={(event) => setScale(event.currentTarget.value)}
            />
          </label>
          <Choice label="Strategy" now={state.strategy} options={options.strategy?.examples ?? []} value={strategy} set={setStrategy} />
          <Choice label="Placement" now={state.placement} options={options.placement?.examples ?? []} value={placement} set={setPlacement} />
        </div>
        <p class="quiet" id="more-means">
          An added broker (new-1, …) is empty and has the median capacity. It takes no bundle of a namespace that a policy
          binds to other broker names.
        </p>
        <label class="check">
          <input type="checkbox" checked={atOnce} onChange={() => setAtOnce(!atOnce)} />
          Skip the waiting period (otherwise bundles move only after the imbalance has cost as much as the moves)
        </label>
        <label>
          <span>Other parameters, one “name = value” per line</span>
          <textarea
            rows={3}
            value={given}
            placeholder="avg_low_threshold_percent = 10"
            onInput={(event) => setGiven(event.currentTarget.value)}
          />
        </label>
        {refused ? (
          <Notice kind="info">{refused}</Notice>
        ) : (
          <button type="submit" class="primary">
            Plan with these changes
          </button>
        )}
      </form>
      {problem && <ProblemNotice problem={problem} what="There is no plan:" />}
      {plan && <PlanResult plan={plan} {...props} />}
    </>
  );
}
