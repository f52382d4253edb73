/** Two texts side by side, with the words that differ marked. */
import { toVisible } from "../state/format.js";
import { html } from "../view.js";

const MAX_WORDS = 600;

/** @param {{before: string, after: string}} props */
export function Sides({ before, after }) {
  const [old, now] = compareWords(before, after);
  return html`<div class="sides">
    <div><h4>Trusted</h4><p class="foreign">${before === "" ? html`<span class="quiet">nothing</span>` : old.map((part, at) => (part.differs ? html`<del key=${at}>${toVisible(part.text)}</del>` : toVisible(part.text)))}</p></div>
    <div><h4>Now</h4><p class="foreign">${after === "" ? html`<span class="quiet">nothing</span>` : now.map((part, at) => (part.differs ? html`<ins key=${at}>${toVisible(part.text)}</ins>` : toVisible(part.text)))}</p></div>
  </div>`;
}

/** @typedef {{text: string, differs: boolean}} Part */

/** Split both texts into runs of words that are in both, and that are not. @param {string} before @param {string} after @returns {[Part[], Part[]]} */
export function compareWords(before, after) {
  const old = before.split(/(\s+)/);
  const now = after.split(/(\s+)/);
  let first = 0;
  while (first < old.length && first < now.length && old[first] === now[first]) first += 1;
  let last = 0;
  while (last < old.length - first && last < now.length - first && old.at(-1 - last) === now.at(-1 - last)) last += 1;
  const middles = [old.slice(first, old.length - last), now.slice(first, now.length - last)];
  const [oldKept, nowKept] = findCommon(middles[0] || [], middles[1] || []);
  return [join(old, first, last, oldKept), join(now, first, last, nowKept)];
}

/** Indexes of the longest common subsequence; none where the texts are too long. @param {string[]} old @param {string[]} now @returns {[Set<number>, Set<number>]} */
function findCommon(old, now) {
  /** @type {[Set<number>, Set<number>]} */
  const kept = [new Set(), new Set()];
  if (old.length > MAX_WORDS || now.length > MAX_WORDS) return kept;
  const width = now.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  const at = (/** @type {number} */ row, /** @type {number} */ column) => lengths[row * width + column] || 0;
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = now.length - 1; column >= 0; column -= 1) {
      const isSame = old[row] === now[column];
      lengths[row * width + column] = isSame ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  for (let row = 0, column = 0; row < old.length && column < now.length; ) {
    if (old[row] === now[column]) {
      kept[0].add(row);
      kept[1].add(column);
      row += 1;
      column += 1;
    } else if (at(row + 1, column) >= at(row, column + 1)) row += 1;
    else column += 1;
  }
  return kept;
}

/** @param {string[]} words @param {number} first @param {number} last words at both ends that are the same @param {Set<number>} kept indexes after `first` @returns {Part[]} */
function join(words, first, last, kept) {
  /** @type {Part[]} */
  const parts = [];
  words.forEach((text, at) => {
    const differs = at >= first && at < words.length - last && !kept.has(at - first);
    const latest = parts.at(-1);
    if (latest && latest.differs === differs) latest.text += text;
    else parts.push({ text, differs });
  });
  return parts;
}
