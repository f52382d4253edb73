/** All tools; or what a search finds, as an agent sees it, and why. */
import { Empty, ProblemBox, Screen, State } from "../components/parts.js";
import { usePagedList } from "../components/paged_list.js";
import { Table } from "../components/table.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatCount, formatMs } from "../state/format.js";
import { addressOf, params, setParams } from "../state/router.js";
import { session } from "../state/session.js";
import { html, useState } from "../view.js";

const RESULTS = 20;
const TOKENS = 20_000;
/** Results that an agent looks at first. */
const SHORT_LIST = 5;
/** How sure the search is, as the answer to an agent has it. */
const FITS = /** @type {Record<string, {state: string, tone: string}>} */ ({
  good: { state: "best matches", tone: "ok" }, unsure: { state: "not sure", tone: "warn" }, none: { state: "nothing fits", tone: "bad" },
});
const FIT_WORDS = /** @type {Record<string, string>} */ ({
  good: "An agent is told that these are the best matches.", unsure: "An agent is told that these are possible matches, and not a sure one.",
});

export const TOOL_COLUMNS = [
  { key: "tool", title: "Tool", width: "minmax(12rem, 1.3fr)", render: (/** @type {any} */ one) => html`<code>${clip(one.tool, 90)}</code>` },
  { key: "description", title: "What it does", width: "minmax(10rem, 2.4fr)", wide: true, render: (/** @type {any} */ one) => html`<span class="foreign">${clip(one.description, 200)}</span>` },
  { key: "tier", title: "Use", width: "5rem", render: (/** @type {any} */ one) => (one.tier ? html`<${State} state=${one.tier} />` : "") },
  { key: "p50", title: "Median", width: "5rem", align: /** @type {const} */ ("right"), wide: true, render: (/** @type {any} */ one) => formatMs(one.p50_ms) },
  { key: "success", title: "Success", width: "5rem", align: /** @type {const} */ ("right"), wide: true, render: (/** @type {any} */ one) => (one.success_rate === undefined ? "" : `${Math.round(one.success_rate * 100)}%`) },
];

export function Tools() {
  const query = params.value.get("q") || "";
  return query ? html`<${SearchResults} query=${query} />` : html`<${AllTools} />`;
}

function AllTools() {
  const category = params.value.get("category") || "";
  const server = params.value.get("server") || "";
  const filters = { category, server };
  const tools = usePagedList("tools", "tools", filters, ["catalog"]);
  return html`<${Screen} title="Tools" fills=${true} note=${tools.isLoading ? "" : `${formatCount(tools.count)}, the most used first. A search above says why each was found, and why one was not.`} actions=${html`<${CategoryChoice} chosen=${category} />`}>
    <${ProblemBox} problem=${tools.problem} />
    ${tools.count > 0 && html`<${Table} label="Tools" columns=${TOOL_COLUMNS} count=${tools.count} row=${tools.row} onRange=${tools.ensure}
      href=${(/** @type {any} */ one) => addressOf(["tools", one.tool])} />`}
    ${tools.count === 0 && !tools.isLoading && !tools.problem && html`<${Empty} title="There are no tools here">
      <p>${category || server ? html`None passes these filters. <a href=${addressOf(["tools"])}>Show all</a>` : html`They come with servers: <code>portico adopt</code> or <code>portico add</code>.`}</p><//>`}
  <//>`;
}

/** @param {{chosen: string}} props */
function CategoryChoice({ chosen }) {
  const categories = useLoaded((signal) => request("tools/categories", { signal }), [], ["catalog"]);
  return html`<select aria-label="Category" value=${chosen} onChange=${(/** @type {any} */ event) => setParams({ category: event.target.value })}>
    <option value="">All categories</option>
    ${(categories.data?.categories || []).map((/** @type {any} */ one) => html`<option key=${one.category} value=${one.category}>${clip(one.title || one.category, 40)} (${formatCount(one.tools)})</option>`)}
  </select>`;
}

/** @param {{query: string}} props */
function SearchResults({ query }) {
  const expected = params.value.get("expect") || "";
  const [showsReasons, setReasons] = useState(true);
  const found = useLoaded(
    (signal) => request("tools", { query: { query, explain: true, expect: expected, limit: RESULTS, max_tokens: TOKENS }, signal }),
    [query, expected],
    ["catalog"],
  );
  const body = found.data;
  const [shown, setShown] = useState(SHORT_LIST);
  return html`<${Screen} title="Search" note=${html`as an agent sees it: <q class="foreign">${clip(query, 120)}</q>`}
    actions=${html`<label class="check"><input type="checkbox" checked=${showsReasons} onChange=${() => setReasons(!showsReasons)} /> why</label>
      <a class="button" href=${addressOf(["tools"])}>All tools</a>`}>
    <${ProblemBox} problem=${found.problem} retry=${found.reload} />
    ${body && html`
      <p class="fit"><${State} ...${FITS[body.fit] || FITS.none} /> ${clip(body.verdict || FIT_WORDS[body.fit] || "", 400)}</p>
      ${body.unlisted?.length ? html`<p class="warning">Not searched, because not listed yet: ${body.unlisted.map((/** @type {string} */ one) => html`<a href=${addressOf(["servers", one])}>${clip(one, 60)}</a> `)}</p>` : null}
      ${body.note && html`<p class="note">${clip(body.note, 400)}</p>`}
      ${showsReasons && body.explanation && html`<p class="note">${clip(body.explanation, 800)}</p>`}
      <${ExpectedTool} expected=${expected} answer=${body.expected} />
      ${body.tools.length === 0 && html`<${Empty} title="An agent gets no tool for this">
        ${body.near_servers?.length ? html`<p>Servers near it: ${body.near_servers.map((/** @type {any} */ one) => html`<a href=${addressOf(["servers", one.server])}>${clip(one.server, 40)}</a> `)}</p>` : null}
        ${body.nearest?.length ? html`<p>Names spelt alike: ${body.nearest.map((/** @type {string} */ one) => html`<a href=${addressOf(["tools", one])}>${clip(one, 80)}</a> `)}</p>` : null}
        <p>Say it in other words, or ask below why a certain tool was not found.</p><//>`}
      <ol class="results">${body.tools.slice(0, shown).map((/** @type {any} */ one, /** @type {number} */ at) => html`<li key=${one.tool}>
        <span class="rank">${at + 1}</span>
        <div>
          <a href=${addressOf(["tools", one.tool])}><code>${clip(one.tool, 120)}</code></a> <span class="params foreign">${clip(one.params, 160)}</span>
          <p class="foreign">${clip(one.description, 300)}</p>
          ${one.also?.length ? html`<p class="note">the same on ${one.also.map((/** @type {string} */ other) => html`<a href=${addressOf(["tools", other])}>${clip(other, 80)}</a> `)}</p>` : null}
          ${showsReasons && one.why?.length ? html`<ul class="why">${one.why.map((/** @type {string} */ reason, /** @type {number} */ number) => html`<li key=${number}>${clip(reason, 300)}</li>`)}</ul>` : null}
        </div>
      </li>`)}</ol>
      ${body.tools.length > shown && html`<p><button onClick=${() => setShown(RESULTS)}>${formatCount(body.tools.length - shown)} more</button></p>`}`}
  <//>`;
}

/** A name whose server is not known has no state. @param {any} problem */
function ignoreUnknown(problem) {
  if (problem.status === 404) return null;
  throw problem;
}

/** Where a tool ranks that should have been found. @param {{expected: string, answer?: string[]}} props */
function ExpectedTool({ expected, answer }) {
  const [text, setText] = useState(expected);
  const names = useLoaded((signal) => request("tools", { query: { limit: 100, max_tokens: TOKENS }, signal }), [], ["catalog"]);
  const server = expected.split(".")[0] || "";
  const state = useLoaded((signal) => (server ? request(`servers/${encodeURIComponent(server)}`, { signal }).catch(ignoreUnknown) : Promise.resolve(null)), [server], ["server"]);
  const troubled = state.data?.reason ? state.data : null;
  const ask = (/** @type {Event} */ event) => {
    event.preventDefault();
    setParams({ expect: text.trim() });
  };
  return html`<form class="expected" onSubmit=${ask}>
    <label for="expect">Why was this one not found?</label>
    <input id="expect" placeholder="server.tool" list="expect-names" autocomplete="off" value=${text} maxlength="1024" onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
    <datalist id="expect-names">${(names.data?.tools || []).map((/** @type {any} */ one) => html`<option key=${one.tool} value=${one.tool}></option>`)}</datalist>
    <button>Say why</button>
    ${troubled && html`<p class="why">Its server ${clip(troubled.server, 60)} is ${clip(troubled.state, 30)}: <span class="foreign">${clip(troubled.reason, 300)}</span></p>`}
    ${expected && answer?.length ? html`<ul class="why">${answer.map((line, at) => html`<li key=${at}>${clip(line, 400)}</li>`)}
      ${session.value?.may.administer && html`<li>A rule can hide a tool too: <a href=${addressOf(["rules"], { tool: expected })}>test it</a></li>`}</ul>` : null}
  </form>`;
}
