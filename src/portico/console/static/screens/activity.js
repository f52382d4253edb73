/** Calls: those on record, and those that run now, as they happen. */
import { ActionButton, Empty, Outcome, ProblemBox, Screen } from "../components/parts.js";
import { Table } from "../components/table.js";
import { request, throttle, useLoaded } from "../state/api.js";
import { onEvents } from "../state/events.js";
import { clip, formatCount, formatMs, formatTime } from "../state/format.js";
import { addressOf, params, setParams } from "../state/router.js";
import { session } from "../state/session.js";
import { html, useCallback, useEffect, useRef, useState } from "../view.js";

const PAGE = 200;
const EXPORT_PAGE = 500;
const MAX_EXPORTED = 10_000;
const NEWEST = 50;
const MAX_LIVE = 200;
const REFRESH_MS = 2_000;
const SHOW_MS = 500;
/** Before the id of a refused call in the address of its page. */
export const REFUSED_PREFIX = "refused-";
/** Kinds of refusals, in words. */
export const REFUSALS = /** @type {Record<string, string>} */ ({
  unknown_name: "unknown tool", invalid_arguments: "wrong arguments", approval_required: "held for approval", approval_denied: "denied by a person",
  permission_denied: "denied by a rule", unavailable: "server down", definition_changed: "definition changed", definition_held: "definition held back",
});
const FILTERS = ["outcome", "server", "tool", "client", "person", "hours"];

export function Activity() {
  const filters = Object.fromEntries(FILTERS.map((name) => [name, params.value.get(name) || ""]));
  const mayRead = session.value?.may.see_calls === true;
  const stored = useStoredCalls(filters, mayRead);
  const live = useLiveCalls(filters);
  const refused = useRefusedCalls(filters, mayRead);
  const known = new Set([...stored.calls, ...refused].map((call) => call.call));
  const rows = [...live.filter((call) => !known.has(call.call)), ...mergeByTime(stored.calls, refused, stored.hasMore)];
  const address = (/** @type {any} */ call) => (call.id || call.isRefused ? addressOf(["activity", call.isRefused ? `${REFUSED_PREFIX}${call.call}` : String(call.id)]) : "");
  const onRange = (/** @type {number} */ _, /** @type {number} */ last) => {
    if (last >= rows.length - 20) stored.loadMore();
  };
  return html`<${Screen} title="Activity" fills=${true}
    note=${mayRead ? `${formatCount(rows.length)} shown${stored.hasMore ? ", more as you scroll" : ""}` : "your own calls, as they happen"}
    actions=${mayRead && html`<${ActionButton} run=${() => exportCalls(filters)}>Export<//>`}>
    <${Filters} filters=${filters} />
    <${ProblemBox} problem=${stored.problem} retry=${stored.reload} />
    ${rows.length > 0 && html`<${Table} label="Calls" columns=${COLUMNS} count=${rows.length} row=${(/** @type {number} */ at) => rows[at]} href=${address} onRange=${onRange} />`}
    ${rows.length === 0 && !stored.isLoading && html`<${Empty} title=${Object.values(filters).some(Boolean) ? "No call passes these filters" : "Nothing was called yet"}>
      <p>${Object.values(filters).some(Boolean) ? html`<a href=${addressOf(["activity"])}>Show all calls</a>` : html`Every call of every client appears here the moment it begins. Try a tool: <a href=${addressOf(["tools"])}>Tools</a>`}</p><//>`}
  <//>`;
}

/** Save the calls on record that pass the filters as JSON, the latest of them. @param {Record<string, string>} filters */
async function exportCalls(filters) {
  const calls = [];
  let next = "calls";
  let query = /** @type {Record<string, any> | undefined} */ ({ ...toQuery(filters), limit: EXPORT_PAGE });
  while (next && calls.length < MAX_EXPORTED) {
    const body = await request(next, { query });
    calls.push(...body.calls);
    next = body.next;
    query = undefined;
  }
  const url = URL.createObjectURL(new Blob([JSON.stringify(calls, null, 1)], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = "calls.json";
  link.click();
  URL.revokeObjectURL(url);
}

const COLUMNS = [
  { key: "at", title: "Time", width: "8.5rem", render: (/** @type {any} */ call) => html`<time>${formatTime(call.at)}</time>` },
  { key: "tool", title: "Tool", width: "minmax(10rem, 2fr)", render: (/** @type {any} */ call) => html`<code>${clip(call.tool, 90)}</code>` },
  { key: "outcome", title: "Outcome", width: "minmax(8rem, 13rem)", render: (/** @type {any} */ call) => html`<${Outcome} ok=${call.ok} error=${call.error} refused=${call.isRefused ? REFUSALS[call.error] || call.error : ""} cancelled=${call.cancelled} running=${call.running} />` },
  { key: "ms", title: "Took", width: "5rem", align: /** @type {const} */ ("right"), wide: true, render: (/** @type {any} */ call) => (call.running ? "" : formatMs(call.ms)) },
  { key: "client", title: "Client", width: "minmax(6rem, 1fr)", wide: true, render: (/** @type {any} */ call) => html`<span class="foreign">${clip(call.client, 40)}</span>` },
  { key: "person", title: "Person", width: "minmax(6rem, 1fr)", wide: true, render: (/** @type {any} */ call) => html`<span class="foreign">${clip(call.person, 60)}</span>` },
  { key: "via", title: "Via", width: "6rem", wide: true, render: (/** @type {any} */ call) => clip(call.via, 20) },
];

/** @param {{filters: Record<string, string>}} props */
function Filters({ filters }) {
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => setParams({ [name]: event.target.value.trim() });
  const text = (/** @type {string} */ name, /** @type {string} */ label) =>
    html`<input type="search" aria-label=${label} placeholder=${label} value=${filters[name]} maxlength="300" onChange=${change(name)} />`;
  return html`<div class="filters" role="group" aria-label="Filters">
    <select aria-label="Outcome" value=${filters.outcome} onChange=${change("outcome")}><option value="">Every outcome</option><option value="ok">ok</option><option value="failed">failed</option>
      <option value="refused">refused</option>${Object.entries(REFUSALS).map(([kind, words]) => html`<option key=${kind} value=${`refused:${kind}`}>refused: ${words}</option>`)}</select>
    <select aria-label="Time" value=${filters.hours} onChange=${change("hours")}><option value="">Any time</option><option value="1">Last hour</option><option value="24">Last 24 hours</option><option value="168">Last 7 days</option></select>
    ${text("server", "Server")}${text("tool", "Tool: server.tool")}${text("client", "Client")}${text("person", "Person")}
  </div>`;
}

/** @param {Record<string, string>} filters */
function toQuery(filters) {
  return {
    ok: filters.outcome ? filters.outcome === "ok" : "", server: filters.server, tool: filters.tool, client: filters.client, person: filters.person,
    since: filters.hours ? Math.floor(Date.now() / 1_000 - Number(filters.hours) * 3_600) : "",
  };
}

/** Put refused calls between those on record by their time; those before the oldest one that is
 * loaded wait until more are. @param {any[]} stored @param {any[]} refused @param {boolean} hasMore */
function mergeByTime(stored, refused, hasMore) {
  const oldest = hasMore ? stored.at(-1)?.at ?? "" : "";
  const shown = refused.filter((call) => call.at >= oldest);
  return [...stored, ...shown].sort((one, other) => (one.at < other.at ? 1 : one.at > other.at ? -1 : 0));
}

/** @param {string} outcome */
function isRefusedOnly(outcome) {
  return outcome.startsWith("refused");
}

/** The latest calls that were refused before their tool was run. @param {Record<string, string>} filters @param {boolean} mayRead */
function useRefusedCalls(filters, mayRead) {
  const loaded = useLoaded((signal) => (mayRead ? request("calls/refused", { signal }) : Promise.resolve({ calls: [] })), [], ["call_refused", "skipped"]);
  const kind = filters.outcome?.split(":")[1];
  if (filters.outcome && !isRefusedOnly(filters.outcome)) return [];
  const since = filters.hours ? Date.now() - Number(filters.hours) * 3_600_000 : 0;
  return (loaded.data?.calls || [])
    .filter((/** @type {any} */ call) => (!kind || call.error === kind) && Date.parse(call.at) >= since && passes({ ...call, ok: false }, { ...filters, outcome: "" }, true))
    .map((/** @type {any} */ call) => ({ ...call, ok: false, isRefused: true, rowKey: call.call }));
}

/** Calls on record, the latest first; more when they are asked for. @param {Record<string, string>} filters @param {boolean} mayRead */
function useStoredCalls(filters, mayRead) {
  const [state, setState] = useState({ calls: /** @type {any[]} */ ([]), isLoading: mayRead, problem: /** @type {any} */ (null), hasMore: false });
  const key = JSON.stringify(filters);
  const current = useRef(key);
  const isBusy = useRef(false);
  const latest = useRef(state);
  latest.current = state;

  const load = useCallback(async (/** @type {"first" | "newest" | "more"} */ what) => {
    if (!mayRead || (isBusy.current && what !== "first")) return;
    if (isRefusedOnly(filters.outcome || "")) {
      setState({ calls: [], isLoading: false, problem: null, hasMore: false });
      return;
    }
    isBusy.current = true;
    const before = latest.current.calls;
    const query = { ...toQuery(filters), limit: what === "newest" ? NEWEST : PAGE, before: what === "more" ? before.at(-1)?.id : "" };
    try {
      const body = await request("calls", { query });
      if (current.current !== key) return;
      const found = body.calls.map((/** @type {any} */ call) => ({ ...call, rowKey: call.call || call.id }));
      const ids = new Set(found.map((/** @type {any} */ call) => call.id));
      const others = what === "first" ? [] : before.filter((call) => !ids.has(call.id));
      // Of more new calls than were asked for, those between are not known: the list begins again.
      const isGap = what === "newest" && found.length === NEWEST && others.length === before.length;
      const calls = what === "more" ? [...others, ...found] : [...found, ...(isGap ? [] : others)];
      setState({ calls, isLoading: false, problem: null, hasMore: what === "newest" && !isGap ? latest.current.hasMore : Boolean(body.next) });
    } catch (problem) {
      if (current.current === key) setState((old) => ({ ...old, isLoading: false, problem }));
    } finally {
      isBusy.current = false;
    }
  }, [key, mayRead]);

  useEffect(() => {
    current.current = key;
    void load("first");
    const stopEvents = onEvents(["call_ended", "call_refused", "skipped"], throttle(() => void load("newest"), REFRESH_MS));
    const stopAgain = onEvents(["again"], () => void load("first"));
    // What has just ended is on record a moment later.
    const timer = setInterval(() => document.hidden || load("newest"), 5 * REFRESH_MS);
    return () => {
      stopEvents();
      stopAgain();
      clearInterval(timer);
    };
  }, [key]);
  return { ...state, reload: () => void load("first"), loadMore: () => latest.current.hasMore && void load("more") };
}

/** Calls that run, or ended a moment ago, by their events. @param {Record<string, string>} filters */
function useLiveCalls(filters) {
  const [calls, setCalls] = useState(/** @type {any[]} */ ([]));
  const key = JSON.stringify(filters);
  useEffect(() => {
    const byId = new Map();
    const show = throttle(() => setCalls([...byId.values()].reverse()), SHOW_MS);
    setCalls([]);
    return onEvents(["call_started", "call_ended", "call_refused"], (event, name) => {
      if (!passes({ ...event, isRefused: name === "call_refused" }, filters, name !== "call_started")) {
        byId.delete(event.call);
        return;
      }
      byId.set(event.call, { ...byId.get(event.call), ...event, at: byId.get(event.call)?.at ?? event.at, running: name === "call_started", isRefused: name === "call_refused", rowKey: event.call });
      if (byId.size > MAX_LIVE) byId.delete(byId.keys().next().value);
      show();
    });
  }, [key]);
  return calls;
}

/** @param {any} event @param {Record<string, string>} filters @param {boolean} hasEnded */
function passes(event, filters, hasEnded) {
  const [outcome, kind] = (filters.outcome || "").split(":");
  if (outcome && hasEnded && (event.isRefused ? outcome !== "refused" : outcome === "refused" || (outcome === "ok") !== event.ok)) return false;
  if (kind && event.error !== kind) return false;
  if (filters.outcome && !hasEnded) return false;
  if (filters.server && !event.tool.startsWith(`${filters.server}.`)) return false;
  return ["tool", "client", "person"].every((name) => !filters[name] || event[name] === filters[name]);
}
