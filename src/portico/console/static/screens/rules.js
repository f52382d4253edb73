/** The rules: which there are, what they make of a call, and who sees what. */
import { ChangeReview } from "../components/change_review.js";
import { AddRule } from "../components/rule_form.js";
import { Empty, Panel, ProblemBox, Screen, State } from "../components/parts.js";
import { Table } from "../components/table.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatCount } from "../state/format.js";
import { addressOf, params, setParams } from "../state/router.js";
import { session } from "../state/session.js";
import { html, useEffect, useState } from "../view.js";

const SHOWN = 1_000;

export function Rules() {
  const rules = useLoaded((signal) => request("rules", { signal }), [], ["config"]);
  const keys = useLoaded((signal) => request("keys", { signal }), []);
  const caller = {
    who: params.value.get("who") || "local", groups: (params.value.get("groups") || "").split(",").map((one) => one.trim()).filter(Boolean),
    profile: params.value.get("profile") || "", client: params.value.get("client") || "",
  };
  const names = ["local", "token", ...new Set((keys.data?.keys || []).filter((/** @type {any} */ key) => key.state === "valid").map((/** @type {any} */ key) => `key:${key.name}`))];
  return html`<${Screen} title="Rules" note="The first that fits a request decides it.">
    <${ProblemBox} problem=${rules.problem} retry=${rules.reload} />
    ${rules.data && html`<${RuleList} rules=${rules.data} reload=${rules.reload} />`}
    <${Panel} title="For whom?">
      <div class="filters" role="group" aria-label="Whom a test is for">
        <label>Who <input list="callers" value=${caller.who} maxlength="400" onChange=${(/** @type {any} */ event) => setParams({ who: event.target.value.trim() })} /></label>
        <datalist id="callers">${names.map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>
        <label>Groups <input value=${caller.groups.join(", ")} placeholder="dev, ops" maxlength="400" onChange=${(/** @type {any} */ event) => setParams({ groups: event.target.value })} /></label>
        <label>Profile <select value=${caller.profile} onChange=${(/** @type {any} */ event) => setParams({ profile: event.target.value })}><option value="">none</option>
          ${(rules.data?.profiles || []).map((/** @type {string} */ name) => html`<option key=${name} value=${name}>${clip(name, 60)}</option>`)}</select></label>
        <label>Client <input value=${caller.client} placeholder="any" maxlength="400" onChange=${(/** @type {any} */ event) => setParams({ client: event.target.value.trim() })} /></label>
      </div>
      <p class="note"><code>local</code> is the user of this machine, <code>token</code> who has the gateway's token, <code>key:NAME</code> the holder of a key; anything else is a person of your identity provider.</p>
    <//>
    <div class="pair">
      <${RuleTest} caller=${caller} />
      <${Seen} caller=${caller} />
    </div>
  <//>`;
}

/** @param {{rules: any, reload: () => void}} props */
function RuleList({ rules, reload }) {
  const [review, setReview] = useState(/** @type {any} */ (null));
  const [isAdding, setAdding] = useState(false);
  const mayChange = session.value?.may.change_config;
  const remove = (/** @type {number} */ at) => setReview({ title: `Remove rules[${at}]`, body: { kind: "remove_rule", position: at } });
  return html`<${Panel} title="In their order" actions=${mayChange && html`<button onClick=${() => setAdding(true)}>Add a rule</button>`}>
    ${isAdding && html`<${AddRule} count=${rules.rules.length} profiles=${rules.profiles || []} close=${() => setAdding(false)} next=${(/** @type {any} */ body, /** @type {any} */ effect) => {
      setAdding(false);
      setReview({ title: "Add a rule", body, effect });
    }} />`}
    ${review && html`<${ChangeReview} ...${review} close=${() => setReview(null)} done=${reload} />`}
    ${rules.rules.length === 0 && html`<${Empty} title=${rules.default === "deny" ? "Nothing is allowed: there are no rules, and the default is deny" : "Everything is allowed: there are no rules"}>
      <p>A rule says for whom and for which tools something is allowed, has to be approved by a person, or does not exist:</p>
      <pre>rules:
  - {for: ["key:ana"], tools: ["github.delete_*"], may: deny}
  - {tools: ["*.delete_*"], may: ask, say: "Somebody has to look."}</pre><//>`}
    <ol class="rules">${rules.rules.map((/** @type {any} */ rule, /** @type {number} */ at) => html`<li key=${at}>
      <code class="note">rules[${at}]</code><${State} state=${rule.may || "allow"} />
      <span>${describeRule(rule)}${rule.say ? html` <q class="note foreign">${clip(rule.say, 160)}</q>` : ""}</span>
      ${mayChange && html`<button class="small" onClick=${() => remove(at)} aria-label=${`Remove rules[${at}]`}>Remove</button>`}</li>`)}
      ${rules.rules.length > 0 && html`<li><code class="note">default</code><${State} state=${rules.default} /><span>everything else, for everybody</span></li>`}</ol>
  <//>`;
}

/** A rule in words. @param {any} rule */
function describeRule(rule) {
  const what = ["tools", "resources", "prompts", "servers", "categories"].filter((key) => rule[key]?.length)
    .map((key) => html`<span key=${key}>${key === "tools" ? "" : `${key} `}${rule[key].slice(0, 12).map((/** @type {string} */ one) => html`<code class="foreign">${clip(one, 80)}</code> `)}${rule[key].length > 12 ? `and ${rule[key].length - 12} more ` : ""}</span>`);
  const more = [
    rule.read_only === true && "only read-only tools", rule.read_only === false && "only tools that change something", rule.destructive === true && "only destructive tools",
    rule.destructive === false && "only tools that do not destroy", rule.when && Object.keys(rule.when).length && `when ${Object.keys(rule.when).join(", ")} fit`,
    rule.limit?.calls_per_minute && `at most ${formatCount(rule.limit.calls_per_minute)} calls a minute`, rule.limit?.tokens_per_day && `at most ${formatCount(rule.limit.tokens_per_day)} tokens a day`,
    rule.mask?.length && `${rule.mask.join(", ")} masked in answers`, rule.visible && "still listed",
  ].filter(Boolean).map((one) => clip(one, 200)).join(", ");
  return html`${what.length ? what : "everything "}<span class="note">for</span> ${(rule.for || ["everyone"]).map((/** @type {string} */ one) => html`<code class="foreign">${clip(one, 80)}</code> `)}${more ? html`<span class="note">(${more})</span>` : ""}`;
}

/** @param {{caller: any}} props */
function RuleTest({ caller }) {
  const [target, setTarget] = useState(params.value.get("tool") || "");
  const [given, setGiven] = useState("");
  const [state, setState] = useState(/** @type {{problem: any, verdict: any}} */ ({ problem: null, verdict: null }));
  const test = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const verdict = await request("rules/test", { method: "POST", body: { ...caller, target: target.trim(), arguments: parseArguments(given) } });
      setState({ problem: null, verdict });
    } catch (problem) {
      setState({ problem, verdict: null });
    }
  };
  const verdict = state.verdict;
  return html`<${Panel} title="Test a call"><form class="try" onSubmit=${test}>
    <div class="field"><label for="rule-target">Tool <span class="required">or resource:SERVER.URI, prompt:SERVER.NAME</span></label>
      <input id="rule-target" required maxlength="2000" spellcheck="false" autocomplete="off" placeholder="server.tool" value=${target} onInput=${(/** @type {any} */ event) => setTarget(event.target.value)} /></div>
    <div class="field"><label for="rule-arguments">Arguments <span class="required">as JSON</span></label>
      <textarea id="rule-arguments" rows="3" spellcheck="false" placeholder="{}" value=${given} onInput=${(/** @type {any} */ event) => setGiven(event.target.value)}></textarea></div>
    <div class="buttons"><button class="primary">Test</button><span class="note">Nothing is called.</span></div>
    <div role="status"><${ProblemBox} problem=${state.problem} />
      ${verdict && html`<div class="verdict"><p><${State} state=${verdict.may} /> by <code>${clip(verdict.rule, 40)}</code>${verdict.say ? html`: <q class="foreign">${clip(verdict.say, 300)}</q>` : ""}</p>
        ${!verdict.seen && html`<p class="warning">${clip(verdict.target, 120)} does not exist for this caller: it is not listed, found or described.</p>`}
        ${verdict.near?.length ? html`<h3>Rules that came close</h3><ul>${verdict.near.map((/** @type {any} */ one) => html`<li key=${one.rule}><code>${clip(one.rule, 40)}</code> <${State} state=${one.may} /> ${clip(one.why, 200)}</li>`)}</ul>` : null}</div>`}
    </div>
  </form><//>`;
}

/** @param {string} text */
export function parseArguments(text) {
  if (!text.trim()) return {};
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("The arguments are not JSON. Write them as {\"name\": \"value\"}.");
  }
}

/** @param {{caller: any}} props */
function Seen({ caller }) {
  const [text, setText] = useState("");
  const seen = useLoaded((signal) => request("rules/seen", { method: "POST", body: { ...caller, text, limit: SHOWN }, signal }), [caller, text], ["config", "catalog"]);
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  useEffect(() => {
    if (seen.data) setRows(seen.data.seen.map((/** @type {any} */ one) => ({ ...one, rowKey: `${one.kind} ${one.name}` })));
  }, [seen.data]);
  return html`<${Panel} title=${seen.data ? `What ${clip(caller.who, 40)} sees: ${formatCount(seen.data.total)}` : "What it sees"}
    actions=${html`<input type="search" aria-label="Filter what is seen" placeholder="Filter" value=${text} onChange=${(/** @type {any} */ event) => setText(event.target.value.trim())} />`}>
    <${ProblemBox} problem=${seen.problem} retry=${seen.reload} />
    ${seen.data && html`<p class="note">${seen.data.hidden ? `${formatCount(seen.data.hidden)} more exist, and not for this caller.` : "Nothing is hidden from this caller."}${seen.data.total > SHOWN ? ` The first ${formatCount(SHOWN)} are listed.` : ""}</p>`}
    ${rows.length > 0 && html`<div class="list-box"><${Table} label="What is seen" columns=${SEEN_COLUMNS} count=${rows.length} row=${(/** @type {number} */ at) => rows[at]}
      href=${(/** @type {any} */ one) => (one.kind === "tool" ? addressOf(["tools", one.name]) : "")} /></div>`}
  <//>`;
}

const SEEN_COLUMNS = [
  { key: "name", title: "Name", width: "minmax(9rem, 2fr)", render: (/** @type {any} */ one) => html`<code class="foreign">${clip(one.name, 90)}</code>` },
  { key: "may", title: "May", width: "6rem", render: (/** @type {any} */ one) => html`<${State} state=${one.may} />` },
  { key: "rule", title: "Rule", width: "minmax(5rem, 1fr)", wide: true, render: (/** @type {any} */ one) => html`<code class="note">${clip(one.rule, 60)}</code>` },
];
