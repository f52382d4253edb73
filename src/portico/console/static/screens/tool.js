/** One tool: what it takes, how it does, and a form to try it. */
import { Empty, Facts, JsonView, LongText, Panel, ProblemBox, Screen, State } from "../components/parts.js";
import { TryForm } from "../components/try_form.js";
import { request, useLoaded } from "../state/api.js";
import { clip, formatCount, formatDate, formatMs } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { session } from "../state/session.js";
import { html } from "../view.js";

const WHOLE = 100_000;

/** @param {{name: string}} props */
export function ToolScreen({ name }) {
  const dot = name.indexOf(".");
  const path = dot > 0 ? `tools/${encodeURIComponent(name.slice(0, dot))}/${encodeURIComponent(name.slice(dot + 1))}` : "";
  const loaded = useLoaded((signal) => request(path || `tools/${encodeURIComponent(name)}/-`, { query: { max_tokens: WHOLE }, signal }), [name], ["catalog"]);
  const tool = loaded.data;
  return html`<${Screen} title=${html`<code class="foreign">${clip(name, 120)}</code>`} note=${tool && html`<${State} state=${tool.state} /> <span class="foreign">${clip(tool.title, 120)}</span>`}
    actions=${tool && html`<a class="button" href=${addressOf(["servers", tool.server])}>${clip(tool.server, 40)}</a>
      ${session.value?.may.see_calls && html`<a class="button" href=${addressOf(["activity"], { tool: tool.tool })}>Its calls</a>`}`}>
    <${ProblemBox} problem=${loaded.problem} />
    ${loaded.problem?.nearest.length ? html`<${Empty} title="Was one of these meant?"><ul>${loaded.problem.nearest.map((one) => html`<li><a href=${addressOf(["tools", one])}>${clip(one)}</a></li>`)}</ul><//>` : null}
    ${tool && html`<${ToolBody} tool=${tool} />`}
  <//>`;
}

/** @param {{tool: any}} props */
function ToolBody({ tool }) {
  const hints = tool.annotations || {};
  const hintNames = [
    hints.readOnlyHint === true && "read-only", hints.destructiveHint === true && "destructive",
    hints.idempotentHint === true && "may be repeated", hints.openWorldHint === true && "reaches beyond its server",
  ].filter(Boolean).join(", ");
  return html`
    <div class="pair">
      <${Panel} title="What it does">
        <p class="foreign prose"><${LongText} text=${tool.description || tool.summary} length=${1_500} /></p>
        ${tool.notes?.map((/** @type {string} */ one) => html`<p class="note foreign">${clip(one)}</p>`)}
        ${tool.warnings?.map((/** @type {string} */ one) => html`<p class="warning foreign">${clip(one)}</p>`)}
        <${Facts} facts=${[
          ["Hints of its server", hintNames], ["Category", tool.category && html`<a href=${addressOf(["tools"], { category: tool.category })}>${clip(tool.category, 60)}</a>`],
          ["Use here", tool.tier], ["Calls", formatCount(tool.usage.calls)], ["In 30 days", tool.usage.calls_30d ? formatCount(tool.usage.calls_30d) : ""],
          ["Success", tool.usage.success_rate === undefined ? "" : `${Math.round(tool.usage.success_rate * 100)}%`],
          ["Median", formatMs(tool.usage.p50_ms)], ["95%", formatMs(tool.usage.p95_ms)], ["Last used", tool.usage.last_used ? formatDate(tool.usage.last_used) : ""],
          ["Definition", html`<code>${clip(tool.hash, 40)}</code>`], ["Listed", tool.listed ? formatDate(tool.listed) : ""],
        ]} />
      <//>
      <${Panel} title="Try it"><${TryForm} tool=${tool} /><//>
    </div>
    <${Panel} title="As an agent sees it"><${JsonView} value=${tool.schema || tool.params || ""} label="typed form" /><//>
    <details class="panel"><summary>Its schema, as its server sent it</summary>
      <${JsonView} value=${tool.input_schema ?? {}} label="input schema" />
      ${tool.output_schema && html`<h3>What it returns</h3><${JsonView} value=${tool.output_schema} label="output schema" />`}
      ${tool.more && html`<h3>Other keys</h3><${JsonView} value=${tool.more} label="other keys" />`}
    </details>`;
}
