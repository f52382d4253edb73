/** Calls that wait for a person, with exactly what they would do, and what was decided. */
import { Empty, Facts, Panel, ProblemBox, Screen, State } from "../components/parts.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatAgo, formatDate, formatLeft, toVisible } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { html, useEffect, useState } from "../view.js";

const TICK_MS = 15_000;
const MAX_DECIDED = 50;

export function Approvals() {
  const loaded = useLoaded((signal) => request("approvals", { signal }), [], ["approval_requested", "approval_decided"]);
  useTick(loaded.reload);
  const all = loaded.data?.approvals || [];
  const pending = all.filter((/** @type {any} */ one) => one.state === "pending");
  const decided = all.filter((/** @type {any} */ one) => one.state !== "pending").reverse();
  return html`<${Screen} title="Approvals" note=${loaded.data ? `${pending.length} ${pending.length === 1 ? "waits" : "wait"} for a decision` : ""}>
    <${ProblemBox} problem=${loaded.problem} retry=${loaded.reload} />
    ${loaded.data && pending.length === 0 && html`<${Empty} title="No call waits for a person">
      <p>A rule with <code>may: ask</code> holds a call until somebody here, at the command line (<code>portico approve</code>) or in the client itself says yes.
        It appears here the moment it is made, with its exact arguments.</p>
      <p>Which calls ask is up to your <a href=${addressOf(["rules"])}>rules</a>.</p><//>`}
    ${pending.map((/** @type {any} */ one) => html`<${Request} key=${one.id} row=${one} reload=${loaded.reload} />`)}
    ${decided.length > 0 && html`<${Panel} title="Decided lately">
      <ul class="decided">${decided.slice(0, MAX_DECIDED).map((/** @type {any} */ one) => html`<li key=${one.id}>
        <${State} state=${one.state} /><code>${clip(one.tool, 90)}</code>
        <span>${describeOutcome(one)}</span>
        <span class="note">${formatAgo(one.decided || one.created)}</span>
        <div class="wide">
          <pre class="arguments" tabindex="0" role="region" aria-label=${`Arguments of ${clip(one.tool, 90)}`}>${one.shown.map((/** @type {string} */ line) => toVisible(line)).join("\n")}</pre>
          <${Facts} facts=${[
            ["Asked by", html`<span class="foreign">${clip(one.person, 80)}${one.client ? `, with ${clip(one.client, 60)}` : ""}</span>`], ["Asked", formatDate(one.created)],
            ["Decided by", one.decided_by && html`<span class="foreign">${clip(one.decided_by, 60)}</span>`], ["Decided", one.decided && formatDate(one.decided)],
            ["Reason", one.reason && html`<span class="foreign">${clip(one.reason, 400)}</span>`],
          ]} />
        </div>
      </li>`)}</ul>
    <//>`}
  <//>`;
}

/** What became of a decision. @param {any} one */
function describeOutcome(one) {
  if (one.state === "approved") return html`It runs when the client asks again, until ${formatDate(one.expires)}.`;
  if (one.state === "used") return html`It ran${one.used ? ` ${formatAgo(one.used)}` : ""}: <a href=${addressOf(["activity"], { tool: one.tool, person: one.person })}>its call</a> in Activity.`;
  return html`It is not made; the caller reads the reason.`;
}

/** One call that waits. @param {{row: any, reload: () => void}} props */
function Request({ row, reload }) {
  const [reason, setReason] = useState("");
  const [state, setState] = useState(/** @type {{isBusy: boolean, problem: any}} */ ({ isBusy: false, problem: null }));
  const decide = async (/** @type {"approve" | "deny"} */ decision) => {
    setState({ isBusy: true, problem: null });
    try {
      await request(`approvals/${row.id}`, { method: "POST", body: { decision, reason } });
      setState({ isBusy: false, problem: null });
    } catch (problem) {
      setState({ isBusy: false, problem });
    }
    reload();
  };
  const id = `reason-${row.id}`;
  return html`<section class="panel request" aria-label=${`Call of ${clip(row.tool, 90)}`}>
    <header><h2 class="request-title"><a href=${addressOf(["tools", row.tool])}><code>${clip(row.tool, 120)}</code></a></h2>
      <span class="note">${formatAgo(row.created)}, ends in ${formatLeft(row.expires)}</span></header>
    ${row.say && html`<p class="warning foreign">${clip(row.say, 500)}</p>`}
    <h3>With exactly these arguments</h3>
    <pre class="arguments" tabindex="0" role="region" aria-label="Arguments">${row.shown.map((/** @type {string} */ line) => toVisible(line)).join("\n")}</pre>
    <${Facts} facts=${[
      ["Asked by", html`<span class="foreign">${clip(row.person, 80)}</span>`], ["Client", row.client && html`<span class="foreign">${clip(row.client, 60)}</span>`],
      ["Via", row.via], ["Profile", row.profile], ["Rule that asks", html`<a href=${addressOf(["rules"])}><code>${clip(row.rule, 40)}</code></a> <span class="note">by its place when it asked</span>`],
      ["Ends", formatDate(row.expires)], ["Id", html`<code>${row.id}</code>`],
    ]} />
    <div class="decision">
      <label for=${id}>Reason <span class="note">(optional; a caller that is denied reads it)</span></label>
      <input id=${id} value=${reason} maxlength="400" autocomplete="off" onInput=${(/** @type {any} */ event) => setReason(event.target.value)} />
      <div class="buttons">
        <button class="primary" disabled=${state.isBusy} onClick=${() => decide("approve")}>Approve, once</button>
        <button class="danger" disabled=${state.isBusy} onClick=${() => decide("deny")}>Deny</button>
        <span role="status">${state.isBusy ? "working …" : ""}</span>
      </div>
      <${ProblemBox} problem=${state.problem} />
    </div>
  </section>`;
}

/** Call again from time to time: approvals end by themselves. @param {() => void} call */
function useTick(call) {
  useEffect(() => {
    const timer = setInterval(() => document.hidden || call(), TICK_MS);
    return () => clearInterval(timer);
  }, []);
}
