/** A key that was just made: shown once, until it is closed. */
import { clip } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { newKey } from "../state/session.js";
import { html } from "../view.js";
import { Dialog } from "./dialog.js";
import { CopyButton } from "./parts.js";

/** Shown above every screen, and above the sign-in page: the key cannot be shown again. */
export function NewKey() {
  const made = newKey.value;
  if (!made) return null;
  const close = () => {
    newKey.value = null;
  };
  return html`<${Dialog} title=${`The key of ${clip(made.name, 64)}`} close=${close}>
    <p>It is shown this once: only a digest is kept.</p>
    <div class="code-box new-key"><${CopyButton} text=${made.key} label="Copy the key" /><pre tabindex="0" role="region" aria-label="Key">${made.key}</pre></div>
    <p class="note">A client sends it as <code>Authorization: Bearer …</code>. <a href=${addressOf(["connect"])} onClick=${close}>Connect</a> shows where it goes.</p>
    ${made.replaced?.length ? html`<p class="note">The key before it stays valid for an hour.</p>` : null}
    <div class="buttons"><button class="primary" onClick=${close}>I have it</button></div>
  <//>`;
}
