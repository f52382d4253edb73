/** Signing in with a key or the gateway's token. */
import { ProblemBox } from "../components/parts.js";
import { signIn, signInProblem } from "../state/session.js";
import { html, useEffect, useRef, useState } from "../view.js";

export function SignIn() {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Sign in · Portico";
    field.current?.focus();
  }, []);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    await signIn({ credential: field.current?.value || "" });
    setBusy(false);
  };
  return html`<main class="alone">
    <h1>Portico</h1>
    <form onSubmit=${submit} class="sign-in">
      <label for="credential">Key, or the gateway's token</label>
      <input type="text" name="username" autocomplete="username" value="portico" hidden readonly />
      <input id="credential" ref=${field} type="password" autocomplete="current-password" required maxlength="4096" spellcheck="false" />
      <button class="primary" disabled=${isBusy}>Sign in</button>
    </form>
    <${ProblemBox} problem=${signInProblem.value} />
    <p class="note">On the gateway's machine <code>portico console</code> opens this page signed in.
      Elsewhere you need a key: <code>portico keys add NAME</code> makes one.</p>
    <p class="note">A gateway that has had a key goes on asking for one, also when all were revoked and after a restart.</p>
  </main>`;
}
