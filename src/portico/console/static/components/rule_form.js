/** A form for a new rule. */
import { request } from "../state/api.js";
import { html, useState } from "../view.js";
import { Dialog } from "./dialog.js";
import { ProblemBox } from "./parts.js";

const ALL = "*";

/** @param {{count: number, profiles: string[], close: () => void, next: (body: any, effect: any) => void}} props `next` gets the change to look at, and what it would do */
export function AddRule({ count, close, next }) {
  const [form, setForm] = useState({ for: "", tools: "", may: "deny", say: "", when: "", position: "0" });
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.target.value });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    /** @type {Record<string, any>} */
    const rule = {};
    // A rule for everyone, or about everything, names nobody and nothing.
    if (form.for.trim() !== ALL) rule.for = split(form.for);
    if (form.tools.trim() !== ALL) rule.tools = split(form.tools);
    rule.may = form.may;
    if (form.say.trim()) rule.say = form.say.trim();
    try {
      if (form.when.trim()) rule.when = JSON.parse(form.when);
    } catch {
      return setProblem(new Error("The condition is not JSON. Write it as {\"amount\": {\"maximum\": 10}}."));
    }
    const position = Number(form.position);
    try {
      next({ kind: "add_rule", rule, position }, await request("rules/effect", { method: "POST", body: { rule, position } }));
    } catch (error) {
      setProblem(error);
    }
  };
  const text = (/** @type {"for" | "tools" | "say" | "when"} */ name, /** @type {string} */ label, /** @type {string} */ example, /** @type {string} */ note) => html`<div class="field">
    <label for=${`rule-${name}`}>${label} <span class="required">${note}</span></label>
    <input id=${`rule-${name}`} value=${form[name]} placeholder=${example} required=${name === "for" || name === "tools"} maxlength="2000" spellcheck="false" autocomplete="off" onInput=${set(name)} /></div>`;
  return html`<${Dialog} title="Add a rule" close=${close}><form class="try" onSubmit=${submit}>
    ${text("for", "For", "key:ana, group:dev, person:…, profile:…", "* is everyone, you included")}
    ${text("tools", "Tools", "github.delete_*, *.drop_table", "* is everything")}
    <div class="field"><label for="rule-may">May</label><select id="rule-may" value=${form.may} onChange=${set("may")}>
      <option value="deny">deny: it does not exist for them</option><option value="ask">ask: a person approves each call</option><option value="allow">allow</option></select></div>
    ${text("when", "When", "{\"amount\": {\"maximum\": 10}}", "only calls whose arguments fit, as JSON Schema; may be empty")}
    ${text("say", "Say", "Ask #data.", "what the caller is told; may be empty")}
    <div class="field"><label for="rule-position">Place <span class="required">the first that fits decides</span></label><select id="rule-position" value=${form.position} onChange=${set("position")}>
      <option value="0">first</option>${Array.from({ length: count }, (_, at) => html`<option key=${at} value=${String(at + 1)}>after rules[${at}]</option>`)}</select></div>
    <${ProblemBox} problem=${problem} />
    <div class="buttons"><button class="primary">Show the change</button><button type="button" onClick=${close}>Cancel</button></div>
  </form><//>`;
}

/** @param {string} text */
function split(text) {
  return text.split(",").map((one) => one.trim()).filter(Boolean);
}
