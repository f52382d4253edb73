/** What servers say differently than when they were trusted, side by side, and trusting it. */
import { ActionButton, Empty, Facts, Panel, ProblemBox, Screen } from "../components/parts.js";
import { Sides } from "../components/sides.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatAgo, formatCount } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { loadChanges } from "../state/waiting.js";
import { html, useState } from "../view.js";

const MAX_SHOWN = 50;

/** @param {{name?: string}} props of one server, or of all */
export function Changes({ name }) {
  const loaded = useLoaded((signal) => request("changes", { signal }), [], ["catalog", "config"]);
  const all = loaded.data?.servers || [];
  const servers = name ? all.filter((/** @type {any} */ one) => one.server === name) : all;
  const count = servers.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.changes.length, 0);
  const reload = () => {
    loaded.reload();
    void loadChanges();
  };
  return html`<${Screen} title=${name ? html`Changes of <span class="foreign">${clip(name, 60)}</span>` : "Changes"}
    note=${loaded.data && count ? `${formatCount(count)} to look at` : ""} actions=${name && html`<a class="button" href=${addressOf(["changes"])}>All servers</a>`}>
    <${ProblemBox} problem=${loaded.problem} retry=${loaded.reload} />
    ${loaded.data && count === 0 && html`<${Checked} servers=${(loaded.data.checked || []).filter((/** @type {any} */ one) => !name || one.server === name)} />
      <${Empty} title="Nothing has changed since it was trusted">
      <p>What a server says of its tools on the first day is trusted. When a description, a schema or a hint changes later, the tool is held back until
        you have seen the difference here, or with <code>portico trust NAME --diff</code>.</p><//>`}
    ${servers.map((/** @type {any} */ one) => html`<${ServerChanges} key=${one.server} server=${one.server} changes=${one.changes} reload=${reload} />`)}
  <//>`;
}

/** When each server was last listed, and so compared. @param {{servers: any[]}} props */
function Checked({ servers }) {
  if (!servers.length) return null;
  return html`<${Panel} title="When each server was checked"><${Facts} facts=${servers.map((one) => [
    html`<a href=${addressOf(["servers", one.server])}>${clip(one.server, 60)}</a>`,
    one.listed ? `no changes, ${formatAgo(one.listed)}` : "never listed, so nothing of it is trusted yet",
  ])} /><//>`;
}

/** @param {{server: string, changes: any[], reload: () => void}} props */
export function ServerChanges({ server, changes, reload }) {
  const trust = async (/** @type {any[]} */ chosen) => {
    await request(`changes/${encodeURIComponent(server)}`, { method: "POST", body: { digests: chosen.map((one) => one.digest) } });
    reload();
  };
  const [shown, setShown] = useState(MAX_SHOWN);
  const seen = changes.slice(0, shown);
  return html`<${Panel} title=${html`<a href=${addressOf(["servers", server])}>${clip(server, 60)}</a>`}
    actions=${changes.length > 1 && changes.length <= shown && html`<${ActionButton} run=${() => trust(changes)}>Trust all ${changes.length}<//>`}>
    <ul class="changes">${seen.map((change) => html`<li key=${change.digest}><${Change} change=${change} trust=${() => trust([change])} /></li>`)}</ul>
    ${changes.length > shown && html`<button onClick=${() => setShown(shown + MAX_SHOWN)}>Show ${Math.min(MAX_SHOWN, changes.length - shown)} more of ${formatCount(changes.length)}</button>`}
  <//>`;
}

/** @param {{change: any, trust: () => Promise<void>}} props */
function Change({ change, trust }) {
  const fields = change.fields || [];
  return html`<div class="change-head">
      <h3><span class="note">${change.kind}</span> ${change.name ? html`<code class="foreign">${clip(change.name, 90)}</code>` : "what the server says of itself"}
        <span class="state" data-tone=${change.held ? "bad" : "calm"}>${change.held ? "held back" : "in use"}</span></h3>
      <${ActionButton} run=${trust}>Trust this<//>
    </div>
    ${change.renamed_from && html`<p>It was <code class="foreign">${clip(change.renamed_from, 90)}</code> before.</p>`}
    ${change.notes?.length ? html`<p class="note foreign">${change.notes.map((/** @type {string} */ one) => clip(one, 200)).join("; ")}</p>` : null}
    ${change.findings?.map((/** @type {any} */ one, /** @type {number} */ at) => html`<p key=${at} class="warning">Suspicious: it ${clip(one.meaning, 120)}${one.path ? html` in <code class="foreign">${clip(one.path, 120)}</code>` : ""}: <q class="foreign">${clip(one.excerpt, 300)}</q></p>`)}
    ${fields.map((/** @type {any} */ one, /** @type {number} */ at) => html`<div key=${at} class="changed-field">
      <p class="note"><code class="foreign">${clip(one.path || "definition", 200)}</code>${one.harmless ? " (harmless)" : ""}</p>
      <${Sides} before=${one.before || ""} after=${one.after || ""} /></div>`)}`;
}
