/** What was saved, what was called, and what needs a person. */
import { BarPlot, ShareList } from "../components/plot.js";
import { Empty, Panel, ProblemBox, Screen, State } from "../components/parts.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatAgo, formatCount, formatShare, formatShort } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { session } from "../state/session.js";
import { changedServers, pendingApprovals } from "../state/waiting.js";
import { html, useEffect } from "../view.js";

const DAYS = 30;
const WEEK = 7;
const MOST_NAMED = 6;
const REFRESH_MS = 10_000;
const TROUBLED = ["down", "quarantined", "degraded", "needs sign-in"];

export function Overview() {
  if (!session.value?.may.see_use) return html`<${LimitedOverview} />`;
  const use = useLoaded((signal) => request("stats/daily", { query: { days: DAYS }, signal }), [], ["ledger", "call_ended"]);
  const servers = useLoaded(loadServers, [], ["server", "catalog"]);
  const stats = useLoaded((signal) => request("stats", { signal }), [], ["catalog", "config"]);
  const tokens = useLoaded((signal) => request("stats/tokens", { query: { limit: 1 }, signal }), [], ["ledger"]);
  useEffect(() => {
    // Calls are counted by day when they are stored, a moment after their end.
    const timer = setInterval(() => document.hidden || use.reload(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const problem = use.problem || servers.problem || stats.problem;
  return html`<${Screen} title="Overview">
    <${ProblemBox} problem=${problem} />
    <${Figures} use=${use.data} stats=${stats.data} servers=${servers.data} />
    <${Attention} servers=${servers.data} />
    <${NextSteps} stats=${stats.data} tokens=${tokens.data} />
    ${use.data && html`<div class="pair">
      <${SavedPanel} use=${use.data} />
      <${CallsPanel} use=${use.data} />
    </div>`}
  <//>`;
}

/** @param {AbortSignal} signal */
async function loadServers(signal) {
  const found = [];
  let next = "/api/v1/servers?page_size=100&max_tokens=20000";
  while (next && found.length < 2_000) {
    const body = await request(next, { signal });
    found.push(...body.servers);
    next = body.next;
  }
  return found;
}

/** @param {{use: any, stats: any, servers: any}} props */
function Figures({ use, stats, servers }) {
  const today = use?.days.at(-1);
  const sum = (/** @type {string} */ key, days = DAYS) => use?.days.slice(-days).reduce((/** @type {number} */ total, /** @type {any} */ day) => total + day[key], 0) ?? 0;
  const usable = servers?.filter((/** @type {any} */ one) => ["ready", "known"].includes(one.state)).length;
  return html`<ul class="figures">
    <${Figure} name="Tokens saved today" value=${today ? formatShort(today.saved) : "–"} note=${today?.listing ? `${formatShare(today.saved, today.listing)} of what listing everything would cost` : "nothing was listed yet"} />
    <${Figure} name="Saved in 7 days" value=${use ? formatShort(sum("saved", WEEK)) : "–"} note=${use && sum("listing", WEEK) ? `${formatShare(sum("saved", WEEK), sum("listing", WEEK))} of listing everything` : ""} />
    <${Figure} name="Saved in 30 days" value=${use ? formatShort(sum("saved")) : "–"} note=${use && sum("listing") ? `${formatShort(sum("shown"))} shown instead of ${formatShort(sum("listing"))}` : ""} />
    <${Figure} name="Calls today" value=${today ? formatCount(today.calls) : "–"} href=${addressOf(["activity"])}
      note=${today?.failures ? html`<a href=${addressOf(["activity"], { outcome: "failed", hours: 24 })}>${formatCount(today.failures)} failed</a>` : today ? "none failed" : ""} tone=${today?.failures ? "bad" : ""} />
    <${Figure} name="Servers" href=${addressOf(["servers"])} value=${servers ? `${usable} of ${servers.length}` : "–"} note="can be used" tone=${servers && usable < servers.length ? "warn" : ""} />
    <${Figure} name="Tools" href=${addressOf(["tools"])} value=${stats ? formatCount(stats.tools) : "–"} note=${stats ? describeToolUse(stats.tools_used, today?.calls) : ""} />
  </ul>`;
}

/** Use is counted by tool a moment after the calls. @param {number} used @param {number | undefined} callsToday */
function describeToolUse(used, callsToday) {
  if (used) return `${formatCount(used)} ${used === 1 ? "was" : "were"} ever used`;
  return callsToday ? "their use is counted in a moment" : "none was used yet";
}

/** @param {{name: string, value: any, note?: any, tone?: string, href?: string}} props */
function Figure({ name, value, note, tone, href }) {
  return html`<li><span class="figure-name">${name}</span><span class="figure-value">${href ? html`<a href=${href} aria-label=${`${name}: ${value}`}>${value}</a>` : value}</span><span class="figure-note" data-tone=${tone}>${note}</span></li>`;
}

/** @param {{servers: any}} props */
function Attention({ servers }) {
  const troubled = (servers || []).filter((/** @type {any} */ one) => TROUBLED.includes(one.state));
  const approvals = pendingApprovals.value;
  const changed = changedServers.value;
  if (!servers) return null;
  return html`<${Panel} title="Needs you">
    ${troubled.length + approvals.length + changed.length === 0 && html`<p class="quiet">Nothing. Every server can be used, no call waits, and no definition has changed.</p>`}
    <ul class="attention">${approvals.slice(0, 10).map((/** @type {any} */ one) => html`<li key=${one.id}>
      <${State} state="approval" tone="warn" />
      <a href=${addressOf(["approvals"])}>${clip(one.tool, 60)}</a>
      <span class="foreign">${clip(one.shown.join(", "), 160)}</span>
      <span class="note">${formatAgo(one.created)}</span>
    </li>`)}${changed.slice(0, 10).map((/** @type {any} */ one) => html`<li key=${`changed ${one.server}`}>
      <${State} state="changed" tone="warn" />
      <a href=${addressOf(["changes", one.server])}>${clip(one.server, 60)}</a>
      <span>${describeChanges(one.changes)}</span>
      <span class="note"></span>
    </li>`)}${troubled.slice(0, 20).map((/** @type {any} */ one) => html`<li key=${one.server}>
      <${State} state=${one.state} />
      <a href=${addressOf(["servers", one.server])}>${clip(one.server, 60)}</a>
      <span class="foreign">${clip(one.reason, 240)}</span>
      <span class="note">${one.since ? formatAgo(one.since) : ""}</span>
    </li>`)}</ul>
  <//>`;
}

/** @param {any[]} changes */
function describeChanges(changes) {
  const held = changes.filter((one) => one.held).length;
  const suspicious = changes.filter((one) => one.findings?.length).length;
  return [held && `${formatCount(held)} held back until you have seen the difference`, suspicious && `${formatCount(suspicious)} suspicious`, !held && !suspicious && `${formatCount(changes.length)} harmless`]
    .filter(Boolean).join(", ");
}

/** @param {{stats: any, tokens: any}} props */
function NextSteps({ stats, tokens }) {
  if (!stats || !tokens) return null;
  const steps = [
    { isDone: stats.servers > 0, text: html`Bring your servers: <code>portico adopt</code> takes over those your clients have, <code>portico add</code> adds one.` },
    { isDone: tokens.total.sessions > 0, text: html`Connect a client: <a href=${addressOf(["connect"])}>Connect</a> shows what it would write into the client's file, and does it.` },
    { isDone: stats.calls > 0, text: html`Make a first call: search above, open a tool, and try it.` },
  ];
  if (steps.every((step) => step.isDone)) return null;
  return html`<${Panel} title="Next steps"><ol class="steps">
    ${steps.map((step, at) => html`<li key=${at} data-done=${step.isDone}><span class="sr">${step.isDone ? "done: " : ""}</span>${step.text}</li>`)}
  </ol><//>`;
}

/** @param {{use: any}} props */
function SavedPanel({ use }) {
  const bars = use.days.map((/** @type {any} */ day) => ({ label: day.day, value: day.saved }));
  return html`<${Panel} title="Tokens saved by day">
    <${BarPlot} bars=${bars} label="Tokens saved" format=${formatShort} />
    <p class="note">Saved: compared with listing every tool to each session.</p>
    <h3>By client <span class="note">cost (tokens shown), and saved</span></h3>
    ${use.clients.length === 0 && html`<${Empty} title="No client was here yet"><p>What a client is shown instead of every definition is counted here.</p><//>`}
    <${ShareList} parts=${orderByCost(use.clients).slice(0, MOST_NAMED).map((/** @type {any} */ one) => ({ name: clip(one.client || "without a name", 40), value: one.shown, text: `cost ${formatShort(one.shown)}, saved ${formatShort(one.saved)} in ${formatCount(one.sessions)} ${one.sessions === 1 ? "session" : "sessions"}` }))} />
    ${use.savings?.length > 0 && html`<h3>By server <span class="note">shared out by what listing each one costs</span></h3>
      <${ShareList} parts=${use.savings.slice(0, MOST_NAMED).map((/** @type {any} */ one) => ({ name: html`<a href=${addressOf(["servers", one.server])}>${clip(one.server, 40)}</a>`, value: one.saved, text: `${formatShort(one.saved)} saved, ${formatShort(one.definitions)} a listing` }))} />`}
  <//>`;
}

/** Those that were shown most first. @param {any[]} clients */
function orderByCost(clients) {
  return [...clients].sort((one, other) => other.shown - one.shown);
}

/** @param {{use: any}} props */
function CallsPanel({ use }) {
  const bars = use.days.map((/** @type {any} */ day) => ({ label: day.day, value: day.calls, part: day.failures }));
  const describe = (/** @type {any} */ bar) => `${bar.label}: ${formatCount(bar.value)} calls, ${formatCount(bar.part)} failed`;
  return html`<${Panel} title="Calls by day">
    <${BarPlot} bars=${bars} label="Calls" format=${formatShort} describe=${describe} />
    <h3>By server</h3>
    ${use.servers.length === 0 && html`<${Empty} title="Nothing was called yet"><p>Calls of every client are counted here, by day and server.</p><//>`}
    <${ShareList} parts=${use.servers.slice(0, MOST_NAMED).map((/** @type {any} */ one) => ({ name: html`<a href=${addressOf(["activity"], { server: one.server })}>${clip(one.server, 40)}</a>`, value: one.calls, text: describeUse(one) }))} />
  <//>`;
}

/** @param {any} one */
function describeUse(one) {
  if (!one.failures) return formatCount(one.calls);
  return html`${formatCount(one.calls)}, <a href=${addressOf(["activity"], { server: one.server, outcome: "failed" })}>${formatCount(one.failures)} failed</a>`;
}

/** For the holder of a key of certain profiles, who sees no figures of the whole gateway. */
function LimitedOverview() {
  const who = session.value;
  return html`<${Screen} title="Overview"><${Empty} title="Your key opens ${who?.profiles.map((one) => clip(one, 40)).join(", ")}">
    <p>You see the <a href=${addressOf(["tools"])}>tools</a> and <a href=${addressOf(["servers"])}>servers</a> of that profile, and your own calls as they happen.
      Figures of the whole gateway are for its administrators.</p>
  <//><//>`;
}
