/** A QR code of a short text (ISO/IEC 18004): bytes, error correction M, versions 1 to 9. */
import { html, useMemo } from "../view.js";

/** By version, from 1: code words in all, those for correction in each block, and blocks. @type {[number, number, number][]} */
const VERSIONS = [[26, 10, 1], [44, 16, 1], [70, 26, 1], [100, 18, 2], [134, 24, 2], [172, 16, 4], [196, 18, 4], [242, 22, 4], [292, 22, 5]];
/** Bits before the text: its kind and length. */
const HEAD_BITS = 12;
const QUIET_ZONE = 4;
/** Of the Galois field of the correction, and of the two codes for format and version. */
const FIELD = 0x11d;
const FORMAT_CODE = 0x537;
const FORMAT_MASK = 0x5412;
const VERSION_CODE = 0x1f25;
/** Where each mask turns a module. @type {((row: number, column: number) => boolean)[]} */
const MASKS = [
  (row, column) => (row + column) % 2 === 0,
  (row) => row % 2 === 0,
  (_, column) => column % 3 === 0,
  (row, column) => (row + column) % 3 === 0,
  (row, column) => (Math.floor(row / 2) + Math.floor(column / 3)) % 2 === 0,
  (row, column) => ((row * column) % 2) + ((row * column) % 3) === 0,
  (row, column) => (((row * column) % 2) + ((row * column) % 3)) % 2 === 0,
  (row, column) => (((row + column) % 2) + ((row * column) % 3)) % 2 === 0,
];

/** @typedef {{size: number, modules: Uint8Array, fixed: Uint8Array}} Grid  `fixed` are modules that no data may take */

/** @param {{text: string, label: string}} props nothing is drawn of a text that is too long */
export function QrCode({ text, label }) {
  const rows = useMemo(() => encodeQr(text), [text]);
  if (!rows) return null;
  const size = rows.length + 2 * QUIET_ZONE;
  const path = rows.flatMap((row, at) => row.map((dark, column) => (dark ? `M${column + QUIET_ZONE} ${at + QUIET_ZONE}h1v1h-1z` : ""))).join("");
  return html`<svg class="qr" viewBox="0 0 ${size} ${size}" role="img" aria-label=${label} shape-rendering="crispEdges">
    <rect class="qr-light" width=${size} height=${size} /><path class="qr-dark" d=${path} /></svg>`;
}

/** Rows of modules, true for dark ones; null for a text of more than 180 bytes. @param {string} text @returns {boolean[][] | null} */
export function encodeQr(text) {
  const bytes = new TextEncoder().encode(text);
  const version = VERSIONS.findIndex(([total, correction, blocks]) => (total - correction * blocks) * 8 >= HEAD_BITS + bytes.length * 8) + 1;
  if (!version) return null;
  const words = addCorrection(toCodeWords(bytes, version), version);
  const grid = drawFixed(version);
  placeWords(grid, words);
  /** @type {Grid | null} */
  let best = null;
  let least = Infinity;
  for (let mask = 0; mask < MASKS.length; mask += 1) {
    const masked = applyMask(grid, mask);
    const penalty = rate(masked);
    if (penalty < least) [best, least] = [masked, penalty];
  }
  const chosen = /** @type {Grid} */ (best);
  return Array.from({ length: grid.size }, (_, row) => Array.from(chosen.modules.subarray(row * grid.size, (row + 1) * grid.size), Boolean));
}

/** @param {Uint8Array} bytes @param {number} version */
function toCodeWords(bytes, version) {
  const [total, correction, blocks] = VERSIONS[version - 1] || [0, 0, 0];
  const words = new Uint8Array(total - correction * blocks);
  // Four bits of its kind, eight of its length, the bytes, four of the end: all shifted by half a word.
  const halves = [4, bytes.length >> 4, bytes.length & 15, ...[...bytes].flatMap((byte) => [byte >> 4, byte & 15]), 0];
  for (let at = 0; at * 2 < halves.length && at < words.length; at += 1) words[at] = ((halves[at * 2] || 0) << 4) | (halves[at * 2 + 1] || 0);
  for (let at = Math.ceil(halves.length / 2), turn = 0; at < words.length; at += 1, turn += 1) words[at] = turn % 2 ? 0x11 : 0xec;
  return words;
}

/** Split words into blocks, and interleave them with their correction. @param {Uint8Array} words @param {number} version */
function addCorrection(words, version) {
  const [, correction, count] = VERSIONS[version - 1] || [0, 0, 1];
  const short = Math.floor(words.length / count);
  const shortBlocks = count - (words.length % count);
  const divisor = makeDivisor(correction);
  const blocks = Array.from({ length: count }, (_, at) => {
    const first = at * short + Math.max(0, at - shortBlocks);
    return words.subarray(first, first + short + (at >= shortBlocks ? 1 : 0));
  });
  const corrections = blocks.map((block) => divide(block, divisor));
  const found = [];
  for (let at = 0; at <= short; at += 1) for (const block of blocks) if (at < block.length) found.push(block[at] || 0);
  for (let at = 0; at < correction; at += 1) for (const block of corrections) found.push(block[at] || 0);
  return found;
}

/** @param {number} one @param {number} other */
function multiply(one, other) {
  let product = 0;
  for (let bit = 7; bit >= 0; bit -= 1) {
    product = (product << 1) ^ ((product >> 7) * FIELD);
    if ((other >> bit) & 1) product ^= one;
  }
  return product;
}

/** @param {number} degree */
function makeDivisor(degree) {
  const divisor = new Uint8Array(degree);
  divisor[degree - 1] = 1;
  let root = 1;
  for (let turn = 0; turn < degree; turn += 1) {
    for (let at = 0; at < degree; at += 1) divisor[at] = multiply(divisor[at] || 0, root) ^ (divisor[at + 1] || 0);
    root = multiply(root, 2);
  }
  return divisor;
}

/** The remainder of a Reed-Solomon division. @param {Uint8Array} block @param {Uint8Array} divisor */
function divide(block, divisor) {
  const rest = new Uint8Array(divisor.length);
  for (const word of block) {
    const factor = word ^ (rest[0] || 0);
    rest.copyWithin(0, 1);
    rest[rest.length - 1] = 0;
    divisor.forEach((value, at) => (rest[at] = (rest[at] || 0) ^ multiply(value, factor)));
  }
  return rest;
}

/** A grid with everything but data. @param {number} version @returns {Grid} */
function drawFixed(version) {
  const size = version * 4 + 17;
  const grid = { size, modules: new Uint8Array(size * size), fixed: new Uint8Array(size * size) };
  for (let at = 0; at < size; at += 1) {
    setFixed(grid, 6, at, at % 2 === 0);
    setFixed(grid, at, 6, at % 2 === 0);
  }
  for (const [row, column] of /** @type {[number, number][]} */ ([[3, 3], [3, size - 4], [size - 4, 3]])) drawSquares(grid, row, column, 4);
  const centers = version === 1 ? [] : version < 7 ? [6, size - 7] : [6, (size - 1) / 2, size - 7];
  for (const row of centers) {
    for (const column of centers) {
      const isTaken = row + column < size && (row === column ? row === 6 : Math.abs(row - column) === size - 13);
      if (!isTaken) drawSquares(grid, row, column, 2);
    }
  }
  drawFormat(grid, 0);
  if (version >= 7) drawVersion(grid, version);
  return grid;
}

/** @param {Grid} grid @param {number} row @param {number} column @param {boolean | number} isDark */
function setFixed(grid, row, column, isDark) {
  if (row < 0 || column < 0 || row >= grid.size || column >= grid.size) return;
  grid.modules[row * grid.size + column] = Number(isDark);
  grid.fixed[row * grid.size + column] = 1;
}

/** Squares in each other: of a corner (radius 4), or to align by (radius 2). @param {Grid} grid @param {number} row @param {number} column @param {number} radius */
function drawSquares(grid, row, column, radius) {
  for (let down = -radius; down <= radius; down += 1) {
    for (let right = -radius; right <= radius; right += 1) {
      const distance = Math.max(Math.abs(down), Math.abs(right));
      setFixed(grid, row + down, column + right, radius === 4 ? distance !== 2 && distance !== 4 : distance !== 1);
    }
  }
}

/** The remainder of a number by a code, behind it. @param {number} value @param {number} bits of the remainder @param {number} code */
function addRemainder(value, bits, code) {
  let rest = value;
  for (let at = 0; at < bits; at += 1) rest = (rest << 1) ^ ((rest >> (bits - 1)) * code);
  return (value << bits) | rest;
}

/** Correction (M is 0) and mask, twice. @param {Grid} grid @param {number} mask */
function drawFormat(grid, mask) {
  const bits = addRemainder(mask, 10, FORMAT_CODE) ^ FORMAT_MASK;
  const { size } = grid;
  for (let at = 0; at < 15; at += 1) {
    const isDark = (bits >> at) & 1;
    if (at < 6) setFixed(grid, at, 8, isDark);
    else if (at < 8) setFixed(grid, at + 1, 8, isDark);
    else setFixed(grid, 8, at === 8 ? 7 : 14 - at, isDark);
    if (at < 8) setFixed(grid, 8, size - 1 - at, isDark);
    else setFixed(grid, size - 15 + at, 8, isDark);
  }
  setFixed(grid, size - 8, 8, true);
}

/** @param {Grid} grid @param {number} version */
function drawVersion(grid, version) {
  const bits = addRemainder(version, 12, VERSION_CODE);
  for (let at = 0; at < 18; at += 1) {
    const far = grid.size - 11 + (at % 3);
    const near = Math.floor(at / 3);
    setFixed(grid, near, far, (bits >> at) & 1);
    setFixed(grid, far, near, (bits >> at) & 1);
  }
}

/** Place the data: two columns at a time from the right, up and down in turns. @param {Grid} grid @param {number[]} words */
function placeWords(grid, words) {
  const { size } = grid;
  let bit = 0;
  for (let right = size - 1; right >= 1; right -= 2) {
    if (right === 6) right = 5;
    for (let step = 0; step < size; step += 1) {
      const row = ((right + 1) & 2) === 0 ? size - 1 - step : step;
      for (const column of [right, right - 1]) {
        const at = row * size + column;
        if (grid.fixed[at] || bit >= words.length * 8) continue;
        grid.modules[at] = ((words[bit >> 3] || 0) >> (7 - (bit & 7))) & 1;
        bit += 1;
      }
    }
  }
}

/** @param {Grid} grid @param {number} mask @returns {Grid} */
function applyMask(grid, mask) {
  const turns = /** @type {(row: number, column: number) => boolean} */ (MASKS[mask]);
  const modules = grid.modules.map((dark, at) => (!grid.fixed[at] && turns(Math.floor(at / grid.size), at % grid.size) ? 1 - dark : dark));
  const masked = { ...grid, modules };
  drawFormat(masked, mask);
  return masked;
}

/** How hard a grid is to read; the mask with the least is taken. @param {Grid} grid */
function rate(grid) {
  const { size, modules } = grid;
  let penalty = 0;
  let dark = 0;
  for (let row = 0; row < size; row += 1) {
    let across = "";
    let down = "";
    for (let column = 0; column < size; column += 1) {
      const here = modules[row * size + column];
      dark += here || 0;
      across += here;
      down += modules[column * size + row];
      if (row && column && [-1, -size, -size - 1].every((step) => modules[row * size + column + step] === here)) penalty += 3;
    }
    penalty += rateLine(across) + rateLine(down);
  }
  return penalty + Math.floor(Math.abs(dark * 20 - size * size * 10) / (size * size)) * 10;
}

/** Long runs of one colour, and what looks like a corner. @param {string} line */
function rateLine(line) {
  const runs = [...line.matchAll(/0{5,}|1{5,}/g)].reduce((sum, found) => sum + found[0].length - 2, 0);
  const corners = [...line.matchAll(/(?=00001011101|10111010000)/g)].length;
  return runs + corners * 40;
}
