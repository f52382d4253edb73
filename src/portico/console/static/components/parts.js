/** Small parts of screens: states, empty lists, problems, foreign texts. */
import { html, useState } from "../view.js";
import { clip, toVisible } from "../state/format.js";

const TONES = /** @type {Record<string, string>} */ ({
  ready: "ok", known: "calm", configured: "calm", starting: "busy", degraded: "warn", down: "bad", quarantined: "bad",
  disabled: "off", "needs sign-in": "warn", valid: "ok", expired: "off", revoked: "off", hot: "ok", warm: "calm", allow: "ok",
  ask: "warn", deny: "bad", pending: "warn", approved: "ok", used: "ok", denied: "bad", depends: "warn",
});

/** What states mean, where the word does not say it. */
const MEANINGS = /** @type {Record<string, string>} */ ({
  known: "Listed before, starts with its first call.", configured: "In the configuration, not listed yet.",
  quarantined: "Not tried for a while after many failures. Restart lifts it at once.",
  hot: "Used most: among the first that are shown.", standard: "Used now and then.", warm: "Used now and then.", cold: "Used rarely or long ago.",
});

/** A state in a word, with a mark whose shape says the same as its colour. @param {{state: string, tone?: string}} props */
export function State({ state, tone }) {
  return html`<span class="state" data-tone=${tone || TONES[state] || "calm"} title=${MEANINGS[state]}>${clip(state, 40)}</span>`;
}

/** @param {{ok: boolean, error?: string, refused?: string, cancelled?: boolean, running?: boolean}} props */
export function Outcome({ ok, error, refused, cancelled, running }) {
  if (running) return html`<span class="state" data-tone="busy">running</span>`;
  if (cancelled) return html`<span class="state" data-tone="off">cancelled</span>`;
  if (refused) return html`<span class="state" data-tone="warn">refused: ${clip(refused, 40)}</span>`;
  return html`<span class="state" data-tone=${ok ? "ok" : "bad"}>${ok ? "ok" : clip(error || "failed", 40)}</span>`;
}

/** What went wrong, and what to do. @param {{problem: any, retry?: () => void}} props */
export function ProblemBox({ problem, retry }) {
  if (!problem) return null;
  return html`<div class="problem" role="alert">
    <p><strong>${clip(problem.message || problem.detail, 1_000)}</strong></p>
    ${problem.advice && html`<p>${clip(problem.advice, 1_000)}</p>`}
    ${problem.problems?.map((/** @type {string} */ one) => html`<p>${clip(one)}</p>`)}
    ${problem.stderr?.length ? html`<pre>${clip(problem.stderr.join("\n"), 4_000)}</pre>` : null}
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

/** What a list without items is for, and how it gets some. @param {{title: string, children?: any}} props */
export function Empty({ title, children }) {
  return html`<div class="empty"><h3>${title}</h3>${children}</div>`;
}

/** A foreign text of any length: its beginning, and more on request. @param {{text: unknown, length?: number}} props */
export function LongText({ text, length = 2_000 }) {
  const [shown, setShown] = useState(length);
  const whole = String(text ?? "");
  const rest = whole.length - shown;
  return html`<span class="foreign">${toVisible(whole.slice(0, shown))}${rest > 0 &&
    html`<button class="more" onClick=${() => setShown(shown + 20_000)}>… ${rest.toLocaleString("en-US")} more characters</button>`}</span>`;
}

/** A value as JSON, with a button that copies it. @param {{value: unknown, label: string}} props */
export function JsonView({ value, label }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "";
  return html`<div class="code-box">
    <${CopyButton} text=${text} label=${`Copy ${label}`} />
    <pre tabindex="0" role="region" aria-label=${label}><${LongText} text=${text} length=${6_000} /></pre>
  </div>`;
}

/** @param {{text: string, label?: string}} props */
export function CopyButton({ text, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await copyText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1_500);
  };
  return html`<button class="copy" onClick=${copy} aria-label=${label}>${isDone ? "Copied" : "Copy"}</button>`;
}

/** Pages that are not served by HTTPS or loopback have no clipboard; a selection does. @param {string} text */
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).catch(() => undefined);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** Facts in two columns; those without a value are left out. @param {{facts: [any, any][]}} props */
export function Facts({ facts }) {
  const present = facts.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return html`<dl class="facts">${present.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A screen: its heading, actions and content. @param {{title: any, note?: any, actions?: any, fills?: boolean, children?: any}} props */
export function Screen({ title, note, actions, fills, children }) {
  return html`<section class=${fills ? "screen fills" : "screen"}>
    <header class="screen-head">
      <h1 tabindex="-1">${title}</h1>
      ${note && html`<p class="note">${note}</p>`}
      <div class="actions">${actions}</div>
    </header>
    ${children}
  </section>`;
}

/** @param {{title: string, actions?: any, children?: any}} props */
export function Panel({ title, actions, children }) {
  return html`<section class="panel"><header><h2>${title}</h2>${actions}</header>${children}</section>`;
}

/** A button whose work may fail: it says what happens, and that it failed.
 * @param {{run: () => Promise<any>, done?: string, kind?: string, children?: any}} props */
export function ActionButton({ run, done, kind = "", children }) {
  const [state, setState] = useState({ isBusy: false, problem: null, done: "" });
  const act = async () => {
    setState({ isBusy: true, problem: null, done: "" });
    try {
      await run();
      setState({ isBusy: false, problem: null, done: done || "" });
    } catch (problem) {
      setState({ isBusy: false, problem: /** @type {any} */ (problem), done: "" });
    }
  };
  return html`<span class="action">
    <button class=${kind} onClick=${act} disabled=${state.isBusy}>${children}</button>
    <span role="status">${state.isBusy ? "working …" : state.done}</span>
    <${ProblemBox} problem=${state.problem} />
  </span>`;
}
