/** Keys, which are made, replaced and revoked here, and the people and programs that were seen. */
import { Dialog } from "../components/dialog.js";
import { ActionButton, CopyButton, Empty, Panel, ProblemBox, Screen, State } from "../components/parts.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatAgo, formatCount, formatDate } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { html, useState } from "../view.js";

export function People() {
  const keys = useLoaded((signal) => request("keys", { signal }), []);
  const people = useLoaded((signal) => request("people", { signal }), [], ["call_ended"]);
  const rules = useLoaded((signal) => request("rules", { signal }), [], ["config"]);
  const [made, setMade] = useState(/** @type {any} */ (null));
  const [isAdding, setAdding] = useState(false);
  const show = (/** @type {any} */ key) => {
    setAdding(false);
    setMade(key);
    keys.reload();
  };
  return html`<${Screen} title="People and keys" actions=${html`<button class="primary" onClick=${() => setAdding(true)}>Make a key</button>`}>
    <${ProblemBox} problem=${keys.problem || people.problem} retry=${keys.reload} />
    <${Panel} title="Keys">
      ${keys.data?.keys.length === 0 && html`<${Empty} title="There are no keys">
        <p>On this machine none is needed. A key lets a person or a program in from elsewhere: with its own name in the record of calls, all or certain profiles,
          read-only or not, and an end. From the first one on, every request over HTTP needs a key.</p><//>`}
      <ul class="cards">${keys.data?.keys.map((/** @type {any} */ key) => html`<${KeyRow} key=${key.id} row=${key} show=${show} reload=${keys.reload} />`)}</ul>
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
    ${made && html`<${NewKey} made=${made} close=${() => setMade(null)} />`}
  <//>`;
}

/** A person as a rule is tested for it. @param {string} person */
export function toRuleName(person) {
  if (person === "local user") return "local";
  if (person === "gateway token") return "token";
  return person.startsWith("key ") ? `key:${person.slice(4)}` : person;
}

/** @param {{row: any, show: (key: any) => void, reload: () => void}} props */
function KeyRow({ row, show, reload }) {
  const rotate = async () => show(await request(`keys/${encodeURIComponent(row.id)}/rotate`, { method: "POST", body: {} }));
  const revoke = async () => {
    await request(`keys/${encodeURIComponent(row.id)}`, { method: "DELETE" });
    reload();
  };
  const [isSure, setSure] = useState(false);
  return html`<li class="card-row" data-off=${row.state !== "valid"}>
    <div><strong>${clip(row.name, 64)}</strong> <code class="note">${row.id}</code>${" "}
      <span class="note">${row.profiles?.length ? `opens ${row.profiles.map((/** @type {string} */ one) => clip(one, 40)).join(", ")}` : "opens everything"}${row.read_only ? ", read-only" : ""}</span></div>
    <span><${State} state=${row.state} /> <span class="note">${row.state === "valid" ? (row.expires ? `ends ${formatDate(row.expires)}` : "no end") : ""}</span></span>
    <span class="note">${row.last_used ? `used ${formatAgo(row.last_used)}` : "never used"}</span>
    <span class="buttons">${row.state === "valid" && html`<${ActionButton} run=${rotate}>Rotate<//>
      ${isSure ? html`<${ActionButton} kind="danger" run=${revoke}>Revoke now<//><button onClick=${() => setSure(false)}>Keep</button>` : html`<button onClick=${() => setSure(true)}>Revoke</button>`}`}</span>
  </li>`;
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

/** @param {{made: any, close: () => void}} props */
function NewKey({ made, close }) {
  return html`<${Dialog} title=${`The key of ${clip(made.name, 64)}`} close=${close}>
    <p>It is shown this once: only a digest is kept.</p>
    <div class="code-box new-key"><${CopyButton} text=${made.key} label="Copy the key" /><pre tabindex="0" role="region" aria-label="Key">${made.key}</pre></div>
    <p class="note">A client sends it as <code>Authorization: Bearer …</code>. <a href=${addressOf(["connect"])} onClick=${close}>Connect</a> shows where it goes.</p>
    ${made.replaced?.length ? html`<p class="note">The key before it stays valid for an hour.</p>` : null}
    <div class="buttons"><button class="primary" onClick=${close}>I have it</button></div>
  <//>`;
}
