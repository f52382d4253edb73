/** Signing in to a server, in another window of this browser. */
import { ProblemBox } from "./parts.js";
import { request, useLoaded } from "../state/api.js";
import { clip } from "../state/format.js";
import { html, useState } from "../view.js";

/** What a server that needs a sign-in offers. @param {{name: string}} props */
export function ServerSignIn({ name }) {
  const path = `servers/${encodeURIComponent(name)}/sign-in`;
  const loaded = useLoaded((signal) => request(path, { signal }), [name], ["sign_in"]);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const begin = async () => {
    setProblem(null);
    try {
      await request(path, { method: "POST", body: {} });
      loaded.reload();
    } catch (error) {
      setProblem(error);
    }
  };
  const status = loaded.data;
  const failure = problem || (status?.state === "failed" ? { message: status.problem, advice: status.advice } : null);
  return html`<section class="panel sign-in-panel">
    <p>This server wants to know who you are: its own page asks you, in this browser. Your agents use it as you from then on.</p>
    ${status?.state === "waiting" && isWeb(status.url)
      ? html`<p><a class="button primary" href=${status.url} target="_blank" rel="noopener noreferrer">Open ${clip(new URL(status.url).host, 80)}</a> <span role="status">It is waited for, for ten minutes.</span></p>`
      : html`<p><button class="primary" onClick=${begin}>Sign in</button></p>`}
    <${ProblemBox} problem=${failure} />
    <p class="note">Not on the gateway's machine? <code>portico login ${clip(name, 80)} --paste</code> there does it.</p>
  </section>`;
}

/** @param {string} url */
function isWeb(url) {
  return ["https:", "http:"].includes(new URL(url).protocol);
}
