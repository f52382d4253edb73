/** All servers: their states, and what they do. */
import { ChangeReview } from "../components/change_review.js";
import { Empty, Panel, ProblemBox, Screen, State } from "../components/parts.js";
import { Table } from "../components/table.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatAgo, formatBytes, formatCount, formatMs, formatShort } from "../state/format.js";
import { addressOf, params, setParams } from "../state/router.js";
import { session } from "../state/session.js";
import { html, useState } from "../view.js";

const ORDER = ["down", "quarantined", "needs sign-in", "degraded", "disabled", "starting", "configured", "ready", "known"];

export function Servers() {
  const loaded = useLoaded(loadServers, [], ["server", "catalog", "config", "call_ended"]);
  const text = params.value.get("filter") || "";
  const servers = (loaded.data?.servers || []).filter((/** @type {any} */ one) => `${one.server} ${one.title || ""} ${one.state}`.toLowerCase().includes(text.toLowerCase()));
  return html`<${Screen} title="Servers" fills=${true} note=${loaded.data ? `${formatCount(loaded.data.servers.length)} in all` : ""}
    actions=${html`<input type="search" placeholder="Filter by name or state" aria-label="Filter servers" value=${text} onInput=${(/** @type {any} */ event) => setParams({ filter: event.target.value })} />`}>
    <${ProblemBox} problem=${loaded.problem} retry=${loaded.reload} />
    ${loaded.data?.servers.length === 0 && html`<${Empty} title="There are no servers yet">
      <p><code>portico adopt</code> finds the servers that your clients already have and takes them over. <code>portico add NAME -- COMMAND</code> adds one.
      They appear here as soon as the configuration is saved.</p><//>`}
    ${servers.length > 0 && html`<${Table} label="Servers" columns=${COLUMNS} count=${servers.length} row=${(/** @type {number} */ at) => servers[at]}
      href=${(/** @type {any} */ one) => addressOf(["servers", one.server])} />`}
    ${session.value?.may.change_config && loaded.data && html`<${SwitchedOff} names=${loaded.data.disabled} reload=${loaded.reload} />`}
  <//>`;
}

/** Servers of the configuration that are switched off. @param {{names: string[], reload: () => void}} props */
function SwitchedOff({ names, reload }) {
  const [review, setReview] = useState(/** @type {any} */ (null));
  if (!names.length && !review) return null;
  return html`<${Panel} title="Switched off"><ul class="switched-off">${names.map((name) => html`<li key=${name}><strong>${clip(name, 60)}</strong>
      <button onClick=${() => setReview({ title: `Enable ${clip(name, 60)}`, body: { kind: "enable", server: name } })}>Enable</button></li>`)}</ul>
    ${review && html`<${ChangeReview} ...${review} close=${() => setReview(null)} done=${reload} />`}<//>`;
}

const COLUMNS = [
  { key: "server", title: "Server", width: "minmax(9rem, 1.4fr)", render: (/** @type {any} */ one) => html`<strong>${clip(one.server, 60)}</strong>` },
  { key: "state", title: "State", width: "7rem", render: (/** @type {any} */ one) => html`<${State} state=${one.state} />` },
  { key: "since", title: "Since", width: "6rem", wide: true, render: (/** @type {any} */ one) => (one.since ? formatAgo(one.since) : "") },
  { key: "tools", title: "Tools", width: "4rem", align: /** @type {const} */ ("right"), render: (/** @type {any} */ one) => formatCount(one.tools) },
  { key: "tokens", title: "Tokens", width: "4.5rem", align: /** @type {const} */ ("right"), wide: true, render: (/** @type {any} */ one) => html`<span title="What listing its tools would cost a client">${one.load?.definitions ? formatShort(one.load.definitions) : ""}</span>` },
  { key: "calls", title: "Calls", width: "5rem", align: /** @type {const} */ ("right"), wide: true, render: (/** @type {any} */ one) => formatCount(one.load?.calls || null) },
  { key: "errors", title: "Failed", width: "4.5rem", align: /** @type {const} */ ("right"), wide: true, render: (/** @type {any} */ one) => (one.load?.errors ? html`<span data-tone="bad">${formatCount(one.load.errors)}</span>` : "") },
  { key: "p50", title: "Median", width: "5rem", align: /** @type {const} */ ("right"), wide: true, render: (/** @type {any} */ one) => formatMs(one.load?.p50_ms) },
  { key: "p95", title: "95%", width: "5rem", align: /** @type {const} */ ("right"), wide: true, render: (/** @type {any} */ one) => formatMs(one.load?.p95_ms) },
  { key: "memory", title: "Memory", width: "5rem", align: /** @type {const} */ ("right"), wide: true, render: (/** @type {any} */ one) => formatBytes(one.load?.memory_bytes || 0) },
  { key: "reason", title: "Why", width: "minmax(8rem, 2fr)", wide: true, render: (/** @type {any} */ one) => html`<span class="foreign" title=${clip(one.reason, 500)}>${clip(shortenReason(one.reason) || one.description, 160)}</span>` },
];

/** What happened last, without what led to a quarantine: the state says that. @param {string | undefined} reason */
function shortenReason(reason) {
  return (reason || "").replace(/^it is in quarantine after .*?; the last: /, "").replace(/^the server exited with code (\d+) \(stderr: (.*)\)$/s, "exit code $1: $2");
}

/** Servers with what they do now; the ones in trouble first. @param {AbortSignal} signal */
async function loadServers(signal) {
  const found = [];
  let next = "/api/v1/servers?page_size=100&max_tokens=20000";
  while (next && found.length < 5_000) {
    const body = await request(next, { signal });
    found.push(...body.servers);
    next = body.next;
  }
  const load = session.value?.may.see_use ? await request("load", { signal }) : { servers: [] };
  const disabled = load.disabled || [];
  const byName = new Map(load.servers.map((/** @type {any} */ one) => [one.server, one]));
  const servers = found
    .map((one) => ({ ...one, rowKey: one.server, load: byName.get(one.server) }))
    .sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state) || one.server.localeCompare(other.server));
  return { servers, disabled };
}
