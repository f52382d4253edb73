/** A dialog above the screen; Escape closes it. */
import { html, useLayoutEffect, useRef } from "../view.js";

/** @param {{title: string, close: () => void, children?: any}} props */
export function Dialog({ title, close, children }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  // Before anything else happens: a key that is pressed next is for the dialog.
  useLayoutEffect(() => {
    dialog.current?.showModal();
  }, []);
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="dialog-title">
    <header><h2 id="dialog-title">${title}</h2><button onClick=${() => dialog.current?.close()} aria-label="Close">✕</button></header>
    ${children}
  </dialog>`;
}
