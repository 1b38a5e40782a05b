// The HTTP API of this address, out of the OpenAPI document that it serves: routes, fields, examples.

import { useEffect, useState } from "preact/hooks";
import { Problem, ask, request } from "./api";
import { ProblemNotice, Said, Search } from "./parts";
import { count, sentence } from "./words";

interface Schema {
  $ref?: string;
  type?: string;
  description?: string;
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  required?: string[];
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  examples?: unknown[];
}

interface Content {
  content?: Record<string, { schema: Schema }>;
}

interface Route {
  summary?: string;
  description?: string;
  tags?: string[];
  parameters?: { name: string; in: string; required?: boolean; description?: string; schema: Schema }[];
  requestBody?: Content;
  responses: Record<string, Content & { description: string }>;
  security?: Record<string, string[]>[];
}

interface Document {
  info: { title: string; version: string; description: string };
  paths: Record<string, Record<string, Route>>;
  components: { schemas: Record<string, Schema> };
}

interface Field {
  name: string;
  kind: string;
  needed: boolean;
  says: string;
}

// Set by sidecars among themselves.
const INTERNAL = "forwarded";

type Schemas = Document["components"]["schemas"];

/** What lies behind a reference; a choice with null is the other one. */
function resolved(schema: Schema, schemas: Schemas): Schema {
  const chosen = schema.anyOf?.filter((item) => item.type !== "null") ?? [];
  if (chosen.length === 1) return resolved(chosen[0], schemas);
  return schema.$ref ? schemas[schema.$ref.split("/").pop()!] : schema;
}

function kindOf(schema: Schema, schemas: Schemas): string {
  if (schema.anyOf) return [...new Set(schema.anyOf.map((item) => kindOf(item, schemas)))].join(" or ");
  const found = resolved(schema, schemas);
  if (found.enum) return found.enum.map((item) => JSON.stringify(item)).join(" or ");
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (found.type === "array") return `list of ${found.items ? kindOf(found.items, schemas) : "anything"}`;
  if (found.type === "object" && typeof found.additionalProperties === "object") return `object of ${kindOf(found.additionalProperties, schemas)}`;
  return found.type ?? "anything";
}

/** Every field, those inside others after their parent: `moves[].bundle`. */
function fieldsOf(schema: Schema, schemas: Schemas, before = "", within: Schema[] = []): Field[] {
  const found = resolved(schema, schemas);
  if (within.includes(found)) return [];
  if (found.type === "array" && found.items) return fieldsOf(found.items, schemas, `${before}[]`, [...within, found]);
  if (typeof found.additionalProperties === "object") return fieldsOf(found.additionalProperties, schemas, `${before}.*`, [...within, found]);
  return Object.entries(found.properties ?? {}).filter(([key]) => key !== INTERNAL).flatMap(([key, item]) => {
    const name = before ? `${before}.${key}` : key;
    const given = item.default === undefined || item.default === null ? "" : `; default: ${JSON.stringify(item.default)}`;
    const field = {
      name,
      kind: kindOf(item, schemas),
      needed: found.required?.includes(key) ?? false,
      says: (item.description ?? resolved(item, schemas).description ?? "") + given,
    };
    return [field, ...fieldsOf(item, schemas, name, [...within, found])];
  });
}

function Fields(props: { title: string; rows: Field[]; asks?: boolean }) {
  if (!props.rows.length) return null;
  return (
    <>
      <h4>{props.title}</h4>
      <div class="scroll" tabIndex={0} role="region" aria-label={props.title}>
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Type</th>
              <th scope="col">Meaning</th>
            </tr>
          </thead>
          <tbody>
            {props.rows.map((row) => (
              <tr key={row.name}>
                <th scope="row">
                  <code>{row.name}</code>
                  {props.asks && row.needed && <span class="quiet"> required</span>}
                </th>
                <td>{row.kind}</td>
                <td>
                  <Said text={row.says} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function schemaIn(content: Content | undefined): Schema | null {
  return Object.values(content?.content ?? {})[0]?.schema ?? null;
}

function quoted(text: string): string {
  return `'${text.replace(/'/g, "'\\''")}'`;
}

/** Path and query that the examples in the document make. */
function addressIn(path: string, route: Route): string {
  const given = route.parameters ?? [];
  const example = (schema: Schema) => String(schema.examples?.[0] ?? "");
  const filled = given
    .filter((item) => item.in === "path")
    .reduce((url, item) => url.replace(`{${item.name}}`, encodeURI(example(item.schema))), path);
  const query = given
    .filter((item) => item.in === "query" && item.schema.examples)
    .map((item) => `${item.name}=${encodeURIComponent(example(item.schema))}`);
  return `${filled}${query.length ? `?${query.join("&")}` : ""}`;
}

function Example(props: { command: string }) {
  const [said, setSaid] = useState("Copy");
  const copy = () => navigator.clipboard.writeText(props.command).then(() => setSaid("Copied"), () => setSaid("Cannot be copied here"));
  // A page that came without TLS from elsewhere than this machine has no clipboard.
  if (!navigator.clipboard) return null;
  return (
    <button type="button" onClick={copy}>
      {said}
    </button>
  );
}

/** A request that reads, sent as it is written, and its answer. */
function Trial(props: { address: string }) {
  const [address, setAddress] = useState(props.address);
  const [said, setSaid] = useState("");
  const send = async (event: Event) => {
    event.preventDefault();
    setSaid("Asking the sidecar …");
    try {
      const text = await (await request("GET", address.replace(/^\/*/, "/"))).text();
      setSaid(text.startsWith("{") || text.startsWith("[") ? JSON.stringify(JSON.parse(text), null, 2) : text);
    } catch (error) {
      setSaid((error as Problem).message);
    }
  };
  return (
    <form class="find" onSubmit={send}>
      <input aria-label="Request" value={address} onInput={(event) => setAddress(event.currentTarget.value)} />
      <button type="submit">Try it</button>
      {said && (
        <pre class="tried" tabIndex={0} role="status">
          {said}
        </pre>
      )}
    </form>
  );
}

/** The request that the examples in the document make, for a shell. */
function curl(method: string, path: string, route: Route, schemas: Schemas): string {
  const asked = schemaIn(route.requestBody);
  const body = asked && resolved(asked, schemas).examples?.[0];
  const open = !route.security?.some((need) => "bearer" in need);
  return [
    "curl -s",
    method === "get" || (method === "post" && body) ? "" : `-X ${method.toUpperCase()}`,
    open ? "" : '-H "Authorization: Bearer $TOKEN"',
    body ? `-H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}` : "",
    quoted(`${location.origin}${addressIn(path, route)}`),
  ]
    .filter(Boolean)
    .join(" ");
}

function RouteText(props: { method: string; path: string; route: Route; schemas: Schemas }) {
  const { route, schemas } = props;
  const parameters = (route.parameters ?? []).map((item) => ({
    name: item.name,
    kind: kindOf(item.schema, schemas),
    needed: item.required ?? false,
    says: `${item.description ?? ""} (in the ${item.in})`,
  }));
  const role = route.security?.flatMap((need) => need.bearer ?? [])[0];
  const asked = schemaIn(route.requestBody);
  const answers = Object.entries(route.responses);
  const [, good] = answers.find(([status]) => status.startsWith("2")) ?? [];
  const answer = schemaIn(good);
  return (
    <>
      <p>
        {route.description && <Said text={sentence(route.description)} />} <span class="quiet">{role ? `Needs role ${role}.` : "Needs no credentials."}</span>
      </p>
      <pre tabIndex={0}>{curl(props.method, props.path, route, schemas)}</pre>
      <Example command={curl(props.method, props.path, route, schemas)} />
      {props.method === "get" && !route.responses["200"]?.content?.["text/event-stream"] && <Trial address={addressIn(props.path, route)} />}
      <Fields title="Parameters" rows={parameters} asks />
      {asked && <Fields title="Fields of the request" rows={fieldsOf(asked, schemas)} asks />}
      {answer && <Fields title={`Fields of the response${resolved(answer, schemas).type === "array" ? ", a list" : ""}`} rows={fieldsOf(answer, schemas)} />}
      <h4>Other responses</h4>
      <ul>
        {answers
          .filter(([status]) => !status.startsWith("2"))
          .map(([status, item]) => (
            <li key={status}>
              {status}: <Said text={item.description} />
            </li>
          ))}
      </ul>
    </>
  );
}

/** What is inside is drawn only when it is opened: there are many fields. */
function RouteItem(props: { method: string; path: string; route: Route; schemas: Schemas; all: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <li>
      <details class="route" open={props.all} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <code>
            {props.method.toUpperCase()} {props.path}
          </code>{" "}
          <Said text={props.route.summary ?? ""} />
        </summary>
        {open && <RouteText {...props} />}
      </details>
    </li>
  );
}

export function ReferenceView() {
  const [found, setFound] = useState<Document | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [text, setText] = useState("");
  const [all, setAll] = useState(false);
  useEffect(() => {
    ask<Document>("GET", "openapi.json").then(setFound, setProblem);
  }, []);
  if (problem) return <ProblemNotice problem={problem} />;
  if (!found) return <p class="waiting">Asking the sidecar …</p>;
  const wanted = text.trim().toLowerCase();
  const routes = Object.entries(found.paths)
    .flatMap(([path, item]) => Object.entries(item).map(([method, route]) => ({ method, path, route })))
    .filter((row) => `${row.method} ${row.path} ${row.route.summary}`.toLowerCase().includes(wanted));
  const tags = [...new Set(routes.map((row) => row.route.tags?.[0] ?? ""))];
  return (
    <>
      {found.info.description.split("\n\n").map((part) => (
        <p key={part}>
          <Said text={part} />
        </p>
      ))}
      <p class="quiet">
        Release {found.info.version}. The routes are from <code>/api/v1/openapi.json</code> of this sidecar. The page loads nothing from other
        servers.
      </p>
      <div class="fields">
        <Search label="Show routes with" text={text} set={setText} />
        <label class="check">
          <input type="checkbox" checked={all} onChange={() => setAll(!all)} />
          Expand all
        </label>
      </div>
      <p class="quiet" role="status">
        {count(routes.length, "route")}
      </p>
      {tags.map((tag) => (
        <section key={tag} aria-label={tag}>
          <h2>{tag}</h2>
          <ul class="refusals">
            {routes
              .filter((row) => (row.route.tags?.[0] ?? "") === tag)
              .map((row) => (
                <RouteItem key={`${row.method} ${row.path} ${all}`} {...row} all={all} schemas={found.components.schemas} />
              ))}
          </ul>
        </section>
      ))}
    </>
  );
}
