/** The configuration in use, where each value came from, and changing it in its file. */
import { ChangeReview } from "../components/change_review.js";
import { Dialog } from "../components/dialog.js";
import { Empty, Panel, ProblemBox, Screen } from "../components/parts.js";
import { request, useLoaded } from "../state/api.js";
import { clip } from "../state/format.js";
import { params, setParams } from "../state/router.js";
import { session } from "../state/session.js";
import { html, useState } from "../view.js";

const MAX_ROWS = 400;

export function Settings() {
  const config = useLoaded((signal) => request("config", { signal }), [], ["config"]);
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  const [review, setReview] = useState(/** @type {any} */ (null));
  const mayChange = session.value?.may.change_config;
  const text = (params.value.get("filter") || "").toLowerCase();
  const isAll = params.value.get("all") === "1";
  const rows = config.data ? flatten(config.data.config).map(([key, value]) => ({ key, value, source: findSource(config.data.sources, key) })) : [];
  const found = rows.filter((row) => (text ? `${row.key} ${JSON.stringify(row.value)}`.toLowerCase().includes(text) : isAll || (row.source !== "default" && !isNothing(row.value))));
  return html`<${Screen} title="Settings" note=${config.data?.files?.length ? config.data.files.map((/** @type {string} */ one) => clip(one, 120)).join(", ") : ""}
    actions=${mayChange && html`<button onClick=${() => setReview({ title: "Undo the last change", path: "config/undo", body: {}, words: "Undo it" })}>Undo the last change</button>`}>
    <${ProblemBox} problem=${config.problem} retry=${config.reload} />
    ${config.data?.problem && html`<div class="problem"><p><strong>What is in the file is not in use</strong></p><p class="foreign">${clip(config.data.problem, 2_000)}</p></div>`}
    ${(config.data?.warnings || []).map((/** @type {string} */ one) => html`<p class="warning foreign" key=${one}>${clip(one, 500)}</p>`)}
    ${config.data && !config.data.files?.length && html`<${Empty} title="No configuration was found"><p>These are the demo servers. <code>portico adopt</code> writes a configuration with the servers your clients have, <code>portico add</code> begins one.</p><//>`}
    <${Panel} title="In use" actions=${html`<span class="filters"><label class="check"><input type="checkbox" checked=${isAll} onChange=${(/** @type {any} */ event) => setParams({ all: event.target.checked ? "1" : "" })} /> Defaults too</label>
      <input type="search" aria-label="Filter settings" placeholder="Filter" value=${text} onInput=${(/** @type {any} */ event) => setParams({ filter: event.target.value })} /></span>`}>
      <ul class="settings">${found.slice(0, MAX_ROWS).map((row) => html`<li key=${row.key}>
        <code class="foreign">${clip(row.key, 120)}</code><span class="foreign value">${clip(showValue(row.value), 300)}</span><span class="note">${clip(row.source, 120)}</span>
        ${mayChange && isEditable(row.key, config.data.editable) ? html`<button class="small" onClick=${() => setEditing(row)}>Change</button>` : html`<span></span>`}</li>`)}</ul>
      ${found.length === 0 && config.data && html`<p class="quiet">${text ? "No setting has that in its name or value." : "Everything has its default."}</p>`}
      ${found.length > MAX_ROWS && html`<p class="note">The first ${MAX_ROWS} of ${found.length}: a filter finds others.</p>`}
    <//>
    <p class="note">${mayChange ? "What can be changed here has a button; commands, secrets, addresses and the audit log are changed in the file itself." : "The user of the gateway's machine changes settings: in the file, or here after portico console."}</p>
    ${editing && html`<${EditValue} row=${editing} close=${() => setEditing(null)} next=${(/** @type {any} */ body) => {
      setEditing(null);
      setReview({ title: `Change ${clip(body.key, 80)}`, body });
    }} />`}
    ${review && html`<${ChangeReview} ...${review} close=${() => setReview(null)} done=${config.reload} />`}
  <//>`;
}

/** Dotted keys with their values; lists are values. @param {any} value @param {string} prefix @returns {[string, any][]} */
function flatten(value, prefix = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value) || !Object.keys(value).length) return [[prefix, value]];
  return Object.entries(value).flatMap(([key, inner]) => flatten(inner, prefix ? `${prefix}.${key}` : key));
}

/** Where a value came from: its own key, a short form around it, or one below it. @param {Record<string, string>} sources @param {string} key */
function findSource(sources, key) {
  const hasKeysBelow = (/** @type {string} */ at) => Object.keys(sources).some((one) => one.startsWith(`${at}.`));
  for (let at = key; at; at = at.includes(".") ? at.slice(0, at.lastIndexOf(".")) : "") {
    // A value around it that has keys of its own in the file does not have this one.
    if (sources[at] && sources[at] !== "default" && (at === key || !hasKeysBelow(at))) return sources[at] || "";
  }
  const below = Object.keys(sources).find((one) => (one.startsWith(`${key}.`) || one.startsWith(`${key}[`)) && sources[one] !== "default");
  return below ? sources[below] || "" : "default";
}

/** @param {any} value */
function isNothing(value) {
  return value === null || value === "" || (typeof value === "object" && !Object.keys(value).length);
}

/** @param {any} value */
function showValue(value) {
  if (typeof value === "string") return value;
  if (value === null) return "none";
  return JSON.stringify(value);
}

/** @param {string} key @param {string[]} editable */
function isEditable(key, editable = []) {
  const parts = key.split(".");
  return editable.some((one) => (one.startsWith("servers.*.") ? parts[0] === "servers" && parts[2] === one.slice(10) : parts[0] === one));
}

/** @param {{row: any, close: () => void, next: (body: any) => void}} props */
function EditValue({ row, close, next }) {
  const isText = typeof row.value === "string";
  const [text, setText] = useState(isText ? row.value : JSON.stringify(row.value));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      next({ kind: "set", key: row.key, value: isText ? text : JSON.parse(text) });
    } catch {
      setProblem(new Error("That is not JSON: texts are in quotes, lists in brackets."));
    }
  };
  return html`<${Dialog} title="Change a setting" close=${close}><form class="try" onSubmit=${submit}>
    <div class="field"><label for="setting"><code>${clip(row.key, 120)}</code> <span class="required">${isText ? "" : "as JSON"}</span></label>
      <input id="setting" value=${text} spellcheck="false" autocomplete="off" onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></div>
    <${ProblemBox} problem=${problem} />
    <div class="buttons"><button class="primary">Show the change</button>
      <button type="button" onClick=${() => next({ kind: "reset", key: row.key })}>Back to the default</button><button type="button" onClick=${close}>Cancel</button></div>
  </form><//>`;
}
