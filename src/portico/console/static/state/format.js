/** Numbers, times and foreign texts as people read them. */

const DAY_S = 86_400;
// Made once: each of them takes longer to make than all rows of a table to write.
const TIME = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short" });
const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const COUNT = new Intl.NumberFormat("en-US");
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** @param {number | null | undefined} value */
export function formatCount(value) {
  return value === null || value === undefined ? "" : COUNT.format(value);
}

/** A large number in few characters: 1.2k, 34M. @param {number} value */
export function formatShort(value) {
  for (const [unit, size] of /** @type {[string, number][]} */ ([["B", 1e9], ["M", 1e6], ["k", 1e3]])) {
    if (Math.abs(value) >= size) return `${(value / size).toFixed(Math.abs(value) >= 100 * size ? 0 : 1)}${unit}`;
  }
  return String(value);
}

/** @param {number | null | undefined} ms */
export function formatMs(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms >= 60_000) return `${(ms / 60_000).toFixed(1)} min`;
  if (ms >= 1_000) return `${(ms / 1_000).toFixed(ms >= 10_000 ? 0 : 1)} s`;
  return `${ms >= 10 ? Math.round(ms) : ms.toFixed(1)} ms`;
}

/** @param {number} bytes */
export function formatBytes(bytes) {
  if (!bytes) return "";
  return bytes >= 2 ** 30 ? `${(bytes / 2 ** 30).toFixed(1)} GB` : `${Math.round(bytes / 2 ** 20)} MB`;
}

/** @param {number} part @param {number} whole */
export function formatShare(part, whole) {
  if (!whole) return "";
  const share = (part / whole) * 100;
  return `${share >= 10 || share === 0 ? Math.round(share) : share.toFixed(1)}%`;
}

/** How long ago, in words. @param {string | number} at ISO time, or seconds since 1970 */
export function formatAgo(at, now = Date.now()) {
  const seconds = Math.max(0, (now - toDate(at).getTime()) / 1_000);
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3_600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < DAY_S) return `${Math.round(seconds / 3_600)} h ago`;
  return `${Math.round(seconds / DAY_S)} d ago`;
}

/** How long until then, in words. @param {string | number} at */
export function formatLeft(at, now = Date.now()) {
  const seconds = Math.max(0, (toDate(at).getTime() - now) / 1_000);
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5_400) return `${Math.round(seconds / 60)} min`;
  return seconds < 2 * DAY_S ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / DAY_S)} d`;
}

/** @param {string | number} at */
export function formatTime(at) {
  const date = toDate(at);
  const isToday = date.toDateString() === new Date().toDateString();
  const time = TIME.format(date);
  return isToday ? time : `${DAY.format(date)} ${time}`;
}

/** @param {string | number} at */
export function formatDate(at) {
  return DATE.format(toDate(at));
}

/** @param {string | number} at */
function toDate(at) {
  return new Date(typeof at === "number" ? at * 1_000 : at);
}

/** Return a foreign text with everything that is invisible or turns the direction made visible. @param {unknown} text */
export function toVisible(text) {
  return String(text ?? "").replace(HIDDEN, (found) => `⟨${found.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Shorten a text to one line of so many characters. @param {unknown} text @param {number} length */
export function clip(text, length = 300) {
  const whole = String(text ?? "");
  return toVisible(whole.length > length ? `${whole.slice(0, length)}…` : whole);
}
