/** Keys, which are made, replaced and revoked here, and the people and programs that were seen. */
import { Dialog } from "../components/dialog.js";
import { ActionButton, Empty, Panel, ProblemBox, Screen, State } from "../components/parts.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatAgo, formatCount, formatDate } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { loadSession, newKey, session } from "../state/session.js";
import { html, useState } from "../view.js";

const DAY_MS = 86_400_000;
const STAYS_CLOSED = "Without a valid key the gateway stays closed: every client without another credential is refused until you make a key, after a restart too.";

export function People() {
  const keys = useLoaded((signal) => request("keys", { signal }), []);
  const people = useLoaded((signal) => request("people", { signal }), [], ["call_ended"]);
  const rules = useLoaded((signal) => request("rules", { signal }), [], ["config"]);
  const [isAdding, setAdding] = useState(false);
  const show = (/** @type {any} */ key) => {
    setAdding(false);
    newKey.value = key;
    void loadSession();
    keys.reload();
  };
  const valid = (keys.data?.keys || []).filter((/** @type {any} */ key) => key.state === "valid");
  return html`<${Screen} title="People and keys" actions=${html`<button class="primary" onClick=${() => setAdding(true)}>Make a key</button>`}>
    <${ProblemBox} problem=${keys.problem || people.problem} retry=${keys.reload} />
    <${Panel} title="Keys">
      ${keys.data?.keys.length === 0 && html`<${Empty} title="There are no keys">
        <p>On this machine none is needed. A key lets a person or a program in from elsewhere: with its own name in the record of calls, all or certain profiles,
          read-only or not, and an end. From the first one on, every request over HTTP needs a key.</p><//>`}
      ${keys.data?.keys.length > 0 && valid.length === 0 && html`<p class="warning" role="status">No key is valid. ${STAYS_CLOSED}</p>`}
      <ul class="cards">${keys.data?.keys.map((/** @type {any} */ key) => html`<${KeyRow} key=${key.id} row=${key} isLast=${valid.length === 1} show=${show} reload=${keys.reload} />`)}</ul>
    <//>
    <${Panel} title="Who was seen">
      ${people.data?.people.length === 0 && html`<${Empty} title="Nobody has called anything yet"><p>Everybody whose calls are on record is listed here.</p><//>`}
      <ul class="cards">${people.data?.people.slice(0, 200).map((/** @type {any} */ one) => html`<li key=${one.person} class="card-row">
        <div><a class="foreign" href=${addressOf(["activity"], { person: one.person })}>${clip(one.person || "without a name", 80)}</a>${" "}
          <span class="note foreign">${(one.clients || []).slice(0, 4).map((/** @type {string} */ client) => clip(client, 30)).join(", ")}</span></div>
        <span>${formatCount(one.calls)} calls${one.failures ? html`, <span data-tone="bad">${formatCount(one.failures)} failed</span>` : ""}</span>
        <span class="note">${formatAgo(one.last)}</span>
        <a class="button" href=${addressOf(["rules"], { who: toRuleName(one.person) })}>What it sees</a>
      </li>`)}</ul>
    <//>
    ${isAdding && html`<${AddKey} close=${() => setAdding(false)} done=${show} profiles=${rules.data?.profiles || []} />`}
  <//>`;
}

/** A person as a rule is tested for it. @param {string} person */
export function toRuleName(person) {
  if (person === "local user") return "local";
  if (person === "gateway token") return "token";
  return person.startsWith("key ") ? `key:${person.slice(4)}` : person;
}

/** @param {{row: any, isLast: boolean, show: (key: any) => void, reload: () => void}} props */
function KeyRow({ row, isLast, show, reload }) {
  const rotate = async () => {
    show(await request(`keys/${encodeURIComponent(row.id)}/rotate`, { method: "POST", body: {} }));
    setSure("");
  };
  const revoke = async () => {
    await request(`keys/${encodeURIComponent(row.id)}`, { method: "DELETE" });
    reload();
  };
  const [sure, setSure] = useState(/** @type {"" | "rotate" | "revoke"} */ (""));
  return html`<li class="card-row" data-off=${row.state !== "valid"}>
    <div><strong>${clip(row.name, 64)}</strong> <code class="note">${row.id}</code>${" "}
      <span class="note">${row.profiles?.length ? `opens ${row.profiles.map((/** @type {string} */ one) => clip(one, 40)).join(", ")}` : "opens everything"}${row.read_only ? ", read-only" : ""}</span></div>
    <span><${State} state=${row.state} /> <span class="note">${row.state === "valid" ? (row.expires ? `ends ${formatDate(row.expires)}` : "no end") : ""}</span></span>
    <span class="note">${row.last_used ? `used ${formatAgo(row.last_used)}` : "never used"}</span>
    <span class="buttons">${row.state === "valid" && html`${sure === "rotate" && html`<${ActionButton} run=${rotate}>Rotate now<//>`}${sure === "revoke" && html`<${ActionButton} kind="danger" run=${revoke}>Revoke now<//>`}
      ${sure ? html`<button onClick=${() => setSure("")}>Keep</button>` : html`<button onClick=${() => setSure("rotate")}>Rotate</button><button onClick=${() => setSure("revoke")}>Revoke</button>`}`}</span>
    ${sure === "rotate" && html`<p class="note" role="status">Another key takes its place. This one stays valid for an hour: until then its client has to get the new one.</p>`}
    ${sure === "revoke" && html`<p class="warning" role="status">Its client is refused from then on.${isLast ? ` It is the last valid key. ${STAYS_CLOSED}` : ""}</p>`}
  </li>`;
}

/** What the first key changes for everybody. */
function FirstKey() {
  const tokens = useLoaded((signal) => request("stats/tokens", { query: { limit: 50 }, signal }), []);
  const lately = (tokens.data?.sessions || []).filter((/** @type {any} */ one) => Date.now() - Date.parse(one.last) < DAY_MS);
  const names = [...new Set(lately.map((/** @type {any} */ one) => clip(one.client || "one without a name", 40)))];
  return html`<div class="warning" role="status"><p>This is the first key: from now on every client that connects over HTTP needs a key, and is refused without one.
      ${tokens.data && (names.length ? html` Here in the last day: <span class="foreign">${names.slice(0, 8).join(", ")}${names.length > 8 ? ` and ${names.length - 8} more` : ""}</span>.` : " No client was here in the last day.")}</p>
    ${!session.value?.kept && html`<p>This page was not opened by <code>portico console</code>: it will ask you to sign in. <code>portico console</code> on this machine then opens it signed in.</p>`}</div>`;
}

/** @param {{close: () => void, done: (key: any) => void, profiles: string[]}} props */
function AddKey({ close, done, profiles }) {
  const [form, setForm] = useState({ name: "", expires: "90d", read_only: false, profiles: /** @type {string[]} */ ([]) });
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const set = (/** @type {any} */ change) => setForm({ ...form, ...change });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      done(await request("keys", { method: "POST", body: form }));
    } catch (error) {
      setProblem(error);
    }
  };
  const toggle = (/** @type {string} */ name) => set({ profiles: form.profiles.includes(name) ? form.profiles.filter((one) => one !== name) : [...form.profiles, name] });
  return html`<${Dialog} title="Make a key" close=${close}><form class="try" onSubmit=${submit}>
    ${session.value?.required === false && html`<${FirstKey} />`}
    <div class="field"><label for="key-name">Name <span class="required">of a person or program</span></label>
      <input id="key-name" required maxlength="64" autocomplete="off" placeholder="ana, ci, laptop" value=${form.name} onInput=${(/** @type {any} */ event) => set({ name: event.target.value })} /></div>
    <div class="field"><label for="key-end">Ends after</label>
      <select id="key-end" value=${form.expires} onChange=${(/** @type {any} */ event) => set({ expires: event.target.value })}>
        ${[["1d", "a day"], ["30d", "30 days"], ["90d", "90 days"], ["52w", "a year"], ["", "never"]].map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></div>
    ${profiles.length > 0 && html`<fieldset class="field"><legend>Opens <span class="required">none chosen: everything</span></legend>
      ${profiles.map((name) => html`<label class="check" key=${name}><input type="checkbox" checked=${form.profiles.includes(name)} onChange=${() => toggle(name)} /> ${clip(name, 60)}</label>`)}</fieldset>`}
    <label class="check"><input type="checkbox" checked=${form.read_only} onChange=${(/** @type {any} */ event) => set({ read_only: event.target.checked })} /> Only tools that are known to be read-only</label>
    <${ProblemBox} problem=${problem} />
    <div class="buttons"><button class="primary">Make it</button><button type="button" onClick=${close}>Cancel</button></div>
  </form><//>`;
}
