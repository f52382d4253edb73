/** Keys of the console: what they do, and the list of them. */
import { html, useEffect, useState } from "../view.js";
import { addressOf, navigate } from "../state/router.js";
import { Dialog } from "./dialog.js";

const LETTER_MS = 1_200;

/** @param {{screens: {name: string, title: string, letter: string}[]}} props */
export function Keys({ screens }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    let wentAt = 0;
    /** @param {KeyboardEvent} event */
    const listen = (event) => {
      const target = /** @type {Element} */ (event.target);
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
      if (event.key === "/") {
        event.preventDefault();
        document.getElementById("search")?.focus();
      } else if (event.key === "?") {
        setOpen(true);
      } else if (event.key === "g") {
        wentAt = Date.now();
        return;
      } else if (Date.now() - wentAt < LETTER_MS) {
        const screen = screens.find((one) => one.letter === event.key);
        if (screen) navigate(addressOf([screen.name]));
      }
      wentAt = 0;
    };
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, [screens]);
  const rows = [["/", "search for tools"], ["?", "this list"], ...screens.map((screen) => [`g ${screen.letter}`, screen.title]),
    ["↑ ↓ or k j", "move in a list"], ["Enter", "open what is marked"], ["Esc", "leave a field, close a dialog"]];
  return html`<button class="plain" onClick=${() => setOpen(true)} aria-label="Keys" title="Keys (?)">?</button>
    ${isOpen && html`<${Dialog} title="Keys" close=${() => setOpen(false)}>
      <dl class="keys">${rows.map(([keys, text]) => html`<div key=${keys}><dt>${keys?.split(" ").map((one) => (one === "or" ? " or " : html`<kbd>${one}</kbd> `))}</dt><dd>${text}</dd></div>`)}</dl>
    <//>`}`;
}
