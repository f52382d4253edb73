/** How a client is pointed at this gateway, and whether one has connected. */
import { ChangeReview } from "../components/change_review.js";
import { CopyButton, Empty, JsonView, Panel, ProblemBox, Screen } from "../components/parts.js";
import { QrCode } from "../components/qr_code.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatAgo, formatCount } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { session } from "../state/session.js";
import { html, useState } from "../view.js";

/** Names of this machine that no other one can use. */
const LOOPBACK = /^(localhost|127\.[\d.]+|\[::1\])$/;

export function Connect() {
  const mayWrite = session.value?.may.change_config;
  const address = `${location.origin}/mcp`;
  const header = session.value?.required ? ' --header "Authorization: Bearer KEY"' : "";
  const clients = useLoaded((signal) => (mayWrite ? request("clients", { signal }) : Promise.resolve({ clients: [] })), []);
  return html`<${Screen} title="Connect">
    <${ProblemBox} problem=${clients.problem} retry=${clients.reload} />
    <div class="pair">
      <${Panel} title="By its address">
        <div class="code-box"><${CopyButton} text=${address} label="Copy the address" /><pre tabindex="0" role="region" aria-label="Address">${address}</pre></div>
        <p>Use the address for clients that speak HTTP, or run elsewhere; the button of a client below writes an entry by which that client starts Portico itself (stdio).</p>
        <p class="note">Every client that speaks MCP over HTTP connects here.${session.value?.required ? html` It sends a key as <code>Authorization: Bearer …</code>: <a href=${addressOf(["people"])}>People and keys</a> makes one.` : " On this machine it needs no key."}</p>
        <p class="note">Claude Code: <code>claude mcp add --transport http portico ${address}${header}</code></p>
      <//>
      <${Connected} />
    </div>
    <${OtherDevice} address=${address} />
    ${mayWrite ? html`<${Panel} title="Clients of this machine">
      <ul class="clients">${clients.data?.clients.slice().sort(compare).map((/** @type {any} */ one) => html`<${ClientRow} key=${one.name} client=${one} reload=${clients.reload} />`)}</ul><//>`
      : html`<p class="note">The user of the gateway's machine can have clients' files written here, or by <code>portico install CLIENT</code>.</p>`}
  <//>`;
}

/** The address as a code to scan, for clients elsewhere. @param {{address: string}} props */
function OtherDevice({ address }) {
  const isLocal = LOOPBACK.test(location.hostname);
  const [text, setText] = useState(isLocal ? "" : address);
  const scanned = toAddress(text);
  return html`<${Panel} title="From another device"><div class="other-device">
    <div class="field"><label for="other-address">Address that the device reaches</label>
      <input id="other-address" type="url" inputmode="url" spellcheck="false" autocomplete="off" maxlength="180" placeholder="address of the gateway from there" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      ${isLocal && html`<p class="note"><code>${location.host}</code> is this machine's alone. Put a proxy with TLS or a tunnel in front, name its host under <code>gateway.allowed_hosts</code>, and write its address here.</p>`}
      <p class="note">The code has the address and no key: whoever scans it still signs in, or sends a key.</p></div>
    ${scanned ? html`<figure class="qr-box"><${QrCode} text=${scanned} label=${`QR code of ${scanned}`} /><figcaption><code class="foreign">${clip(scanned, 180)}</code> <${CopyButton} text=${scanned} label="Copy the address of the code" /></figcaption></figure>`
      : text && html`<p class="warning" role="status">Write the whole address, https first, without a name or a password in it.</p>`}
  </div><//>`;
}

/** The address of the endpoint at what was typed; empty if that is none. @param {string} text */
function toAddress(text) {
  try {
    const url = new URL(text.trim());
    if (!["https:", "http:"].includes(url.protocol) || url.username || url.password) return "";
    return url.pathname === "/" ? `${url.origin}/mcp` : `${url.origin}${url.pathname}`;
  } catch {
    return "";
  }
}

/** Those that are here first. @param {any} one @param {any} other */
function compare(one, other) {
  return Number(other.installed) - Number(one.installed) || Number(other.here) - Number(one.here) || one.title.localeCompare(other.title);
}

/** @param {{client: any, reload: () => void}} props */
function ClientRow({ client, reload }) {
  const [review, setReview] = useState(/** @type {any} */ (null));
  const install = () => setReview({ title: `Connect ${client.title}`, path: `clients/${client.name}`, body: {} });
  const remove = () => setReview({ title: `Take Portico out of ${client.title}`, path: `clients/${client.name}`, body: { remove: true }, words: "Take it out" });
  return html`<li>
    <div class="client-head"><h3>${client.title}</h3>
      <span class="state" data-tone=${client.installed ? "ok" : "off"}>${client.installed ? "points here" : client.here ? "not connected" : "not found here"}</span>
      <span class="note foreign">${clip(client.file, 160)}</span>
      <span class="buttons">${client.installed ? html`<button onClick=${remove} aria-label=${`Undo ${client.title}`}>Undo</button>` : html`<button class=${client.here ? "primary" : ""} onClick=${install} aria-label=${`Connect ${client.title}`}>Connect</button>`}</span></div>
    ${client.problem && html`<p class="warning foreign">${clip(client.problem, 400)}</p>`}
    <details><summary>By hand</summary>
      <p class="note">It starts Portico itself:</p><${JsonView} value=${client.entry} label=${`entry of ${client.title}`} />
      ${client.url_entry && Object.keys(client.url_entry).length ? html`<p class="note">Or over HTTP${session.value?.required ? html`, with the header <code>Authorization: Bearer KEY</code> added` : ""}:</p><${JsonView} value=${client.url_entry} label=${`HTTP entry of ${client.title}`} />` : html`<p class="note">${clip(client.url_advice, 400)}</p>`}
      <p class="note">${clip(client.reload_advice, 400)}</p>
    </details>
    ${review && html`<${ChangeReview} ...${review} close=${() => setReview(null)} done=${reload} />`}
  </li>`;
}

/** Clients that have connected, as they do. */
function Connected() {
  const tokens = useLoaded((signal) => request("stats/tokens", { query: { limit: 50 }, signal }), [], ["ledger"]);
  /** @type {Map<string, any>} */
  const latest = new Map();
  for (const one of tokens.data?.sessions || []) if (!latest.has(one.client)) latest.set(one.client, one);
  return html`<${Panel} title="Has it connected?">
    <${ProblemBox} problem=${tokens.problem} retry=${tokens.reload} />
    ${tokens.data && latest.size === 0 && html`<${Empty} title="No client was here yet"><p>The first one appears here by itself when it lists its tools. Leave this page open, and start the client again.</p><//>`}
    <ul class="connected">${[...latest.values()].slice(0, 8).map((one) => html`<li key=${one.client}><span class="state" data-tone="ok">connected</span><strong class="foreign">${clip(one.client || "without a name", 60)}</strong>
      <span>${formatCount(one.saved)} tokens saved</span><span class="note">${formatAgo(one.last)}</span></li>`)}</ul>
  <//>`;
}
