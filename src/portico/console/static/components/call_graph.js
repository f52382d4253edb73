/** The calls of a script or workflow as a graph: which could only run after which. */
import { clip, formatMs } from "../state/format.js";
import { addressOf } from "../state/router.js";
import { html, useMemo } from "../view.js";

const MAX_CALLS = 60;
const WIDTH = 168;
const HEIGHT = 44;
const GAP_X = 44;
const GAP_Y = 12;
const MARGIN = 4;
const NAME_CHARACTERS = 22;
/** Of the shorter of two calls: so much they may overlap, since starts are known to about a millisecond. */
const OVERLAP = 0.2;

/** @typedef {{call: any, column: number, row: number, after: number[]}} Node */

/** @param {{calls: any[], current: number}} props */
export function CallGraph({ calls, current }) {
  const nodes = useMemo(() => placeCalls(calls.slice(0, MAX_CALLS)), [calls]);
  const columns = 1 + Math.max(0, ...nodes.map((node) => node.column));
  const rows = 1 + Math.max(0, ...nodes.map((node) => node.row));
  const width = 2 * MARGIN + columns * (WIDTH + GAP_X) - GAP_X;
  const height = 2 * MARGIN + rows * (HEIGHT + GAP_Y) - GAP_Y;
  return html`<div class="call-graph" tabindex="0" role="region" aria-label="Which call ran after which">
    <svg width=${width} height=${height} viewBox="0 0 ${width} ${height}" role="group" aria-label=${`${nodes.length} calls in ${columns} ${columns === 1 ? "step" : "steps"}`}>
      ${nodes.flatMap((node, at) => node.after.map((before) => html`<path key=${`${before} ${at}`} class="edge" d=${drawEdge(/** @type {Node} */ (nodes[before]), node)} />`))}
      ${nodes.map((node) => drawNode(node, current))}
    </svg></div>
    ${calls.length > MAX_CALLS && html`<p class="note">The first ${MAX_CALLS} of ${calls.length} calls are drawn.</p>`}`;
}

/** @param {Node} node @param {number} current */
function drawNode({ call, column, row }, current) {
  const text = `${call.tool}, ${call.ok ? "ok" : call.error || "failed"}, ${formatMs(call.ms)}`;
  return html`<a key=${call.id} href=${addressOf(["activity", String(call.id)])} class="call-node" data-failed=${!call.ok} aria-current=${call.id === current ? "true" : undefined}
      aria-label=${clip(text, 200)} transform="translate(${MARGIN + column * (WIDTH + GAP_X)} ${MARGIN + row * (HEIGHT + GAP_Y)})">
    <title>${clip(text, 200)}</title>
    <rect width=${WIDTH} height=${HEIGHT} rx="5" />
    <text x="10" y="18">${clip(call.tool, NAME_CHARACTERS)}</text>
    <text x="10" y="35" class="call-note">${call.ok ? "" : `${clip(call.error || "failed", 14)}, `}${formatMs(call.ms)}</text></a>`;
}

/** @param {Node} from @param {Node} to */
function drawEdge(from, to) {
  const x = MARGIN + from.column * (WIDTH + GAP_X) + WIDTH;
  const y = MARGIN + from.row * (HEIGHT + GAP_Y) + HEIGHT / 2;
  const endX = MARGIN + to.column * (WIDTH + GAP_X);
  const endY = MARGIN + to.row * (HEIGHT + GAP_Y) + HEIGHT / 2;
  const bend = GAP_X / 2;
  return `M${x} ${y}C${x + bend} ${y} ${endX - bend} ${endY} ${endX} ${endY}`;
}

/**
 * Give each call its column, one after those that ended before it began, and its row there.
 * `after` are the last of those; calls before them are reached through them.
 *
 * @param {any[]} calls by their starts @returns {Node[]}
 */
export function placeCalls(calls) {
  /** @type {Node[]} */
  const nodes = [];
  const rows = /** @type {number[]} */ ([]);
  calls.forEach((call) => {
    const before = nodes.flatMap((node, at) => (hasEnded(node.call, call) ? [at] : []));
    const column = before.length ? 1 + Math.max(...before.map((at) => nodes[at]?.column ?? 0)) : 0;
    const after = before.filter((at) => !before.some((other) => hasEnded(nodes[at]?.call, nodes[other]?.call)));
    nodes.push({ call, column, row: rows[column] ?? 0, after });
    rows[column] = (rows[column] ?? 0) + 1;
  });
  return nodes;
}

/** Whether a call had ended when another began. @param {any} one @param {any} other */
function hasEnded(one, other) {
  if (one === other) return false;
  return one.start_ms + one.ms - other.start_ms <= OVERLAP * Math.min(one.ms, other.ms);
}
