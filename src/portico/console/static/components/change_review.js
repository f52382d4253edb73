/** A change of the configuration's file: shown as a difference, then written. */
import { request } from "../state/api.js";
import { clip, toVisible } from "../state/format.js";
import { html, useEffect, useState } from "../view.js";
import { Dialog } from "./dialog.js";
import { ProblemBox } from "./parts.js";

const TONES = /** @type {Record<string, string>} */ ({ "+": "added", "-": "removed", "@": "place" });

/** A unified diff. @param {{lines: string[]}} props */
export function Diff({ lines }) {
  return html`<pre class="diff" tabindex="0" role="region" aria-label="Difference">${lines.map((line, at) => html`<span key=${at} data-line=${at < 2 ? "file" : TONES[line[0] || ""]}>${toVisible(line) || " "}</span>`)}</pre>`;
}

/**
 * @param {{title: string, path?: string, body: Record<string, any>, close: () => void, done?: () => void, words?: string, effect?: any}} props
 *   `path` of the API, which answers a difference, and writes it when it is given its `seen`
 */
export function ChangeReview({ title, path = "config/changes", body, close, done, words = "Write it", effect }) {
  const [state, setState] = useState(/** @type {{answer: any, problem: any, isBusy: boolean}} */ ({ answer: null, problem: null, isBusy: true }));
  const ask = async (/** @type {string} */ seen) => {
    setState((before) => ({ ...before, isBusy: true, problem: null }));
    try {
      const answer = await request(path, { method: "POST", body: { ...body, seen } });
      setState({ answer, problem: null, isBusy: false });
      if (answer.written) done?.();
    } catch (problem) {
      setState((before) => ({ ...before, problem, isBusy: false }));
    }
  };
  useEffect(() => void ask(""), []);
  const answer = state.answer;
  return html`<${Dialog} title=${title} close=${close}>
    <div class="review" role="status">
      ${effect && html`<p class=${effect.dangerous ? "warning" : "note"}>${effect.dangerous ? html`<strong>Dangerous: </strong>` : ""}<span class="foreign">${clip(effect.sentence, 900)}</span></p>`}
      ${answer && html`<p class="note foreign">${clip(answer.file, 300)}</p>`}
      ${answer && (answer.changes ? html`<${Diff} lines=${answer.diff} />` : html`<p>Nothing to do: it says so already.</p>`)}
      ${answer?.remarks?.map((/** @type {string} */ one, /** @type {number} */ at) => html`<p key=${at} class="note">${clip(one, 600)}</p>`)}
      <${ProblemBox} problem=${state.problem} />
      ${answer?.written && html`<p class="done">${answer.advice && `Written. ${answer.backup ? `The file as it was is kept in ${clip(answer.backup, 300)}. ` : ""}${clip(answer.advice, 400)}` || html`Written. A running gateway takes it over by itself; <code>portico undo</code>, or Undo under Settings, undoes it.`}</p>`}
    </div>
    <div class="buttons">
      ${answer?.changes && !answer.written && html`<button class=${effect?.dangerous ? "danger" : "primary"} disabled=${state.isBusy} onClick=${() => ask(answer.seen)}>${words}</button>`}
      <button onClick=${close}>${answer?.written ? "Close" : "Cancel"}</button>
    </div>
  <//>`;
}
