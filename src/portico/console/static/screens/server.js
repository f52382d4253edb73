/** One server: how it is, what it offers, and what it writes. */
import { ActionButton, Empty, Facts, LongText, Panel, ProblemBox, Screen, State } from "../components/parts.js";
import { ChangeReview } from "../components/change_review.js";
import { ServerSignIn } from "../components/server_sign_in.js";
import { Table } from "../components/table.js";
import { usePagedList } from "../components/paged_list.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatAgo, formatBytes, formatCount, formatDate, formatMs, formatTime, toVisible } from "../state/format.js";
import { addressOf, navigate } from "../state/router.js";
import { session } from "../state/session.js";
import { changedServers } from "../state/waiting.js";
import { html, useEffect, useRef, useState } from "../view.js";
import { TOOL_COLUMNS } from "./tools.js";

const LOG_MS = 1_500;
const MAX_LINES = 1_000;

/** @param {{name: string}} props */
export function ServerScreen({ name }) {
  const loaded = useLoaded((signal) => loadServer(name, signal), [name], ["server", "catalog", "config"]);
  const server = loaded.data;
  const rights = session.value?.may;
  const restart = async () => {
    await request(`servers/${encodeURIComponent(name)}/restart`, { method: "POST" });
    loaded.reload();
  };
  const [review, setReview] = useState(/** @type {any} */ (null));
  const disable = () => setReview({ title: `Disable ${clip(server.server, 60)}`, body: { kind: "disable", server: server.server } });
  // A server that is switched off is none of the gateway's; the list has it.
  const leave = () => navigate(addressOf(["servers"]));
  return html`<${Screen} title=${html`<span class="foreign">${clip(name, 80)}</span>`} note=${server && html`<${State} state=${server.state} /> ${server.since ? formatAgo(server.since) : ""}`}
    actions=${server && html`<a class="button" href=${addressOf(["activity"], { server: server.server })}>Its calls</a>
      ${rights?.change_config && html`<button onClick=${disable}>Disable</button>`}
      ${rights?.restart && html`<${ActionButton} run=${restart} done="Restarted.">Restart<//>`}`}>
    <${ProblemBox} problem=${loaded.problem} retry=${loaded.reload} />
    ${review && html`<${ChangeReview} ...${review} close=${() => setReview(null)} done=${leave} />`}
    <${ChangedDefinitions} name=${server?.server} />
    ${server?.state === "needs sign-in" && rights?.administer && html`<${ServerSignIn} name=${server.server} />`}
    ${server && html`<${ServerBody} server=${server} mayReadLog=${rights?.see_logs} />`}
  <//>`;
}

/** What it says differently than when it was trusted. @param {{name?: string}} props */
function ChangedDefinitions({ name }) {
  const changed = changedServers.value.find((one) => one.server === name);
  if (!changed) return null;
  return html`<p class="warning">${formatCount(changed.changes.length)} of its definitions changed since they were trusted. <a href=${addressOf(["changes", changed.server])}>See the difference</a></p>`;
}

/** @param {string} name @param {AbortSignal} signal */
async function loadServer(name, signal) {
  const server = await request(`servers/${encodeURIComponent(name)}`, { query: { max_tokens: 20_000 }, signal });
  const load = session.value?.may.see_use ? await request("load", { signal }) : { servers: [] };
  return { ...server, load: load.servers.find((/** @type {any} */ one) => one.server === server.server) };
}

/** @param {{server: any, mayReadLog?: boolean}} props */
function ServerBody({ server, mayReadLog }) {
  const load = server.load;
  return html`
    ${server.reason && html`<div class="problem"><p><strong>Why it is ${clip(server.state, 20)}</strong></p><p class="foreign"><${LongText} text=${server.reason} length=${600} /></p>
      ${server.state === "quarantined" && html`<p>It is not tried again until the quarantine ends (<code>restart.quarantine_s</code> after it began); Restart lifts it at once.</p>`}</div>`}
    ${server.state === "known" && html`<p class="note">Known: listed before, starts with its first call.</p>`}
    <div class="pair">
      <${Panel} title="What it is">
        ${server.description && html`<p class="foreign"><${LongText} text=${server.description} length=${600} /></p>`}
        <${Facts} facts=${[
          ["Reached by", server.type], ["Version", clip(server.version, 60)], ["Protocol", server.protocol], ["Category", server.category],
          ["Tools", formatCount(server.tools)], ["Listed directly", server.tokens ? `${formatCount(server.tokens)} tokens` : ""], ["Resources", server.resources ? formatCount(server.resources) : ""], ["Prompts", server.prompts ? formatCount(server.prompts) : ""],
          ["Listed", server.listed ? formatDate(server.listed) : ""], ["Tags", (server.tags || []).map((/** @type {string} */ tag) => clip(tag, 40)).join(", ")],
        ]} />
        ${server.warnings?.map((/** @type {string} */ one) => html`<p class="warning">${clip(one)}</p>`)}
      <//>
      <${Panel} title="What it does">
        ${load ? html`<${Facts} facts=${[
          ["Calls since start", formatCount(load.calls)], ["Failed", formatCount(load.errors)], ["Running now", formatCount(load.running)],
          ["Median", formatMs(load.p50_ms)], ["95%", formatMs(load.p95_ms)], ["Memory", formatBytes(load.memory_bytes)], ["Processes", load.processes || ""],
          ["Last failure", load.last_error && html`<span class="foreign">${clip(load.last_error.tool, 80)}: ${clip(load.last_error.error, 80)}, ${formatAgo(load.last_error.at)}</span>`],
        ]} />` : html`<p class="quiet">Figures are for administrators of the gateway.</p>`}
      <//>
    </div>
    ${mayReadLog && html`<${ServerLog} name=${server.server} />`}
    ${server.instructions && html`<${Panel} title="What it tells agents"><p class="foreign"><${LongText} text=${server.instructions} /></p><//>`}
    <${ServerTools} name=${server.server} />`;
}

/** @param {{name: string}} props */
function ServerTools({ name }) {
  const tools = usePagedList("tools", "tools", { server: name }, ["catalog"]);
  return html`<${Panel} title=${`Tools (${formatCount(tools.count)})`}>
    <${ProblemBox} problem=${tools.problem} />
    ${tools.count > 0 ? html`<div class="list-box"><${Table} label="Tools of this server" columns=${TOOL_COLUMNS} count=${tools.count} row=${tools.row} onRange=${tools.ensure}
      href=${(/** @type {any} */ one) => addressOf(["tools", one.tool])} /></div>`
      : !tools.isLoading && html`<${Empty} title="No tools are known of it"><p>It has not been listed yet, or offers none. A restart asks it again.</p><//>`}
  <//>`;
}

/** The latest lines that it wrote, as they come. @param {{name: string}} props */
function ServerLog({ name }) {
  const [lines, setLines] = useState(/** @type {any[]} */ ([]));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const stop = new AbortController();
    let after = 0;
    let timer = 0;
    const read = async () => {
      try {
        const page = document.hidden ? { lines: [] } : await request(`servers/${encodeURIComponent(name)}/log`, { query: { after: after || "" }, signal: stop.signal });
        if (page.lines.length) {
          after = page.lines.at(-1).sequence;
          const isAtEnd = !box.current || box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 40;
          setLines((before) => [...before, ...page.lines].slice(-MAX_LINES));
          if (isAtEnd) requestAnimationFrame(() => box.current?.scrollTo(0, box.current.scrollHeight));
        }
        setProblem(null);
      } catch (error) {
        if (!stop.signal.aborted) setProblem(error);
      }
      if (!stop.signal.aborted) timer = window.setTimeout(read, LOG_MS);
    };
    void read();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [name]);
  return html`<${Panel} title="What it wrote">
    <${ProblemBox} problem=${problem} />
    ${lines.length === 0 && !problem ? html`<p class="quiet">Nothing yet. What a server writes to stderr, and how its state changes, appears here as it happens.</p>`
      : html`<div class="log" ref=${box} tabindex="0" role="log" aria-label="Log of the server">${lines.map((line) => html`<div key=${line.sequence}>
        <time>${formatTime(line.at)}</time>${line.state ? html`<${State} state=${line.state} />` : null}<span class="foreign">${toVisible((line.text || "").slice(0, 2_000))}</span></div>`)}</div>`}
  <//>`;
}
