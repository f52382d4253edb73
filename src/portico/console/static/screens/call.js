/** One call in full: who, what, where its time went, what the audit log has of it. */
import { CallGraph } from "../components/call_graph.js";
import { Empty, Facts, JsonView, LongText, Outcome, Panel, ProblemBox, Screen } from "../components/parts.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatDate, formatMs } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { session } from "../state/session.js";
import { html } from "../view.js";
import { REFUSALS, REFUSED_PREFIX } from "./activity.js";

const STAGES = /** @type {Record<string, string>} */ ({
  admission: "waited for the gateway", preparation: "checked and prepared", start: "its server started", server_queue: "waited for its server", tool: "the tool",
});

/** @param {{name: string}} props */
export function CallScreen({ name }) {
  return name.startsWith(REFUSED_PREFIX) ? html`<${RefusedCall} id=${name.slice(REFUSED_PREFIX.length)} />` : html`<${RecordedCall} name=${name} />`;
}

/** A call that was refused before its tool was run. @param {{id: string}} props */
function RefusedCall({ id }) {
  const loaded = useLoaded((signal) => request("calls/refused", { signal }), [id]);
  const call = loaded.data?.calls.find((/** @type {any} */ one) => one.call === id);
  const why = call && (REFUSALS[call.error] || call.error);
  return html`<${Screen} title=${call ? html`<code class="foreign">${clip(call.tool, 120)}</code>` : "Call"} note=${call && html`<${Outcome} ok=${false} refused=${why} />`}>
    <${ProblemBox} problem=${loaded.problem} retry=${loaded.reload} />
    ${loaded.data && !call && html`<${Empty} title="This refused call is no longer known"><p>The latest refused calls are kept in memory, until the gateway restarts.</p><//>`}
    ${call && html`<${Message} text=${call.message} />
      <${Panel} title="Who and when"><${Facts} facts=${[
        ["When", formatDate(call.at)], ["Person", html`<span class="foreign">${clip(call.person, 120)}</span>`], ["Client", html`<span class="foreign">${clip(call.client, 120)}</span>`],
        ["Profile", call.profile], ["Via", call.via], ["Outcome", `refused: ${clip(why, 80)}`], ["Id", html`<code>${clip(call.call, 60)}</code>`],
      ]} /><//>
      <p class="note">The tool was not run, and the arguments are not kept here.${call.error === "approval_required" && session.value?.may.approve ? html` <a href=${addressOf(["approvals"])}>Approvals</a> shows what waits.` : ""}</p>`}
  <//>`;
}

/** What the client was told of a failure. @param {{text: string}} props */
function Message({ text }) {
  return html`<${Panel} title="What the client was told">
    ${text ? html`<pre tabindex="0" role="region" aria-label="What the client was told"><${LongText} text=${text} /></pre>`
      : html`<p class="quiet">The message is no longer known: those of the latest failures are kept in memory, until the gateway restarts. Results are stored nowhere.</p>`}
  <//>`;
}

/** A call on record. @param {{name: string}} props */
function RecordedCall({ name }) {
  const loaded = useLoaded((signal) => request(`calls/${encodeURIComponent(name)}`, { signal }), [name]);
  const call = loaded.data;
  return html`<${Screen} title=${call ? html`<code class="foreign">${clip(call.tool, 120)}</code>` : "Call"}
    note=${call && html`<${Outcome} ok=${call.ok} error=${call.error} cancelled=${call.cancelled} /> in ${formatMs(call.ms)}`}
    actions=${call && html`<a class="button" href=${addressOf(["tools", call.tool])}>The tool</a><a class="button" href=${addressOf(["activity"], { tool: call.tool })}>Its other calls</a>`}>
    <${ProblemBox} problem=${loaded.problem} retry=${loaded.reload} />
    ${call && html`
      ${!call.ok && !call.cancelled && html`<${Message} text=${call.message} />`}
      <div class="pair">
        <${Panel} title="Who and when"><${Facts} facts=${[
          ["When", formatDate(call.at)], ["Person", html`<span class="foreign">${clip(call.person, 120)}</span>`], ["Client", html`<span class="foreign">${clip(call.client, 120)}</span>`],
          ["Profile", call.profile], ["Via", call.via], ["Outcome", call.ok ? "ok" : clip(call.error || "failed", 80)],
          ["Rule that decided", call.audit?.rule && html`<a href=${addressOf(["rules"])}><code>${clip(call.audit.rule, 40)}</code></a> <span class="note">by its place at that time</span>`],
          ["Definition", call.hash && html`<code>${clip(call.hash, 40)}</code>`], ["Id", call.call && html`<code>${clip(call.call, 60)}</code>`],
        ]} /><//>
        <${Panel} title="Where its time went"><${Waterfall} stages=${call.stages || []} /><//>
      </div>
      ${call.run?.length > 0 && html`<${Run} calls=${call.run} current=${call.id} via=${call.via} />`}
      <${Panel} title="In the audit log">
        <p class="note">${describeArguments(call.audit)} Results are stored nowhere.</p>
        ${call.audit && Object.keys(call.audit).length ? html`<${JsonView} value=${call.audit} label="audit line" />` : null}
      <//>`}
  <//>`;
}

/** What is kept of a call's arguments, and which setting says so. @param {any} audit its line of the audit log, if there is one */
function describeArguments(audit) {
  const setting = html`<code>audit.arguments</code>`;
  if (!audit || !Object.keys(audit).length) return html`It has no line in the audit log, so its arguments are not kept. With <code>audit.enabled</code>, ${setting} says what is: a keyed hash, or the arguments with secrets redacted.`;
  if (audit.arguments === undefined || audit.arguments === null) return html`Arguments are not kept: ${setting} says so, or it had none.`;
  if (typeof audit.arguments === "string") return html`Arguments are not kept: ${setting} keeps a keyed hash of them, by which equal ones are recognised. <code>redacted</code> would keep them without secrets.`;
  return html`Arguments are kept with secrets redacted, as ${setting} says.`;
}

/** All calls of a script or workflow over time: what ran after what, and what at once. @param {{calls: any[], current: number, via: string}} props */
function Run({ calls, current, via }) {
  const whole = Math.max(1, ...calls.map((one) => one.start_ms + one.ms));
  return html`<${Panel} title=${`The ${clip(via, 20)} it belongs to: ${calls.length} ${calls.length === 1 ? "call" : "calls"} in ${formatMs(whole)}`}>
    ${calls.length > 1 && html`<${CallGraph} calls=${calls} current=${current} />`}
    <ol class="run">${calls.map((one) => html`<li key=${one.id} aria-current=${one.id === current ? "true" : undefined}>
      <a href=${addressOf(["activity", String(one.id)])}><code class="foreign">${clip(one.tool, 90)}</code></a>
      <${Outcome} ok=${one.ok} error=${one.error} cancelled=${one.cancelled} />
      <svg viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label=${`from ${formatMs(one.start_ms)}, for ${formatMs(one.ms)}`}><rect class="track" width="100" height="4" />
        <rect class=${one.ok ? "bar" : "failed"} x=${(one.start_ms / whole) * 100} width=${Math.max(0.6, (one.ms / whole) * 100)} height="4" /></svg>
      <span class="right">${formatMs(one.ms)}</span></li>`)}</ol>
  <//>`;
}

/** Stages one after the other. @param {{stages: {stage: string, ms: number}[]}} props */
function Waterfall({ stages }) {
  const total = stages.reduce((sum, one) => sum + one.ms, 0);
  if (!total) return html`<p class="quiet">It was not measured.</p>`;
  let before = 0;
  return html`<ol class="waterfall">${stages.map((one) => {
    const start = (before / total) * 100;
    before += one.ms;
    return html`<li key=${one.stage}>
      <span>${STAGES[one.stage] || clip(one.stage, 40)}</span><span class="right">${formatMs(one.ms)}</span>
      <svg viewBox="0 0 100 2" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" height="2" /><rect class="bar" x=${start} width=${Math.max(0.6, (one.ms / total) * 100)} height="2" /></svg>
    </li>`;
  })}</ol>`;
}
