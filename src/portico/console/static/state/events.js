/** The gateway's event stream, read by fetch: a request by cookie needs its header. */
import { signal } from "../view.js";
import { endSession, isUnreachable, proofHeaders, session } from "./session.js";

const PATH = "/api/v1/events";
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 10_000;
/** Browsers open six connections to a host: hidden pages must not hold them all. */
const HIDDEN_MS = 5_000;
const MAX_PENDING_CHARACTERS = 1 << 20;

/** Whether events arrive. */
export const connection = signal(/** @type {"off" | "connecting" | "live" | "lost"} */ ("off"));

/** @typedef {(data: any, name: string) => void} Handler */
/** @type {Map<string, Set<Handler>>} */
const handlers = new Map();
let lastId = "";
/** @type {AbortController | null} */
let stream = null;
let hiddenTimer = 0;

/** Listen to events by their names; `again` is sent when everything has to be read again. Returns how to stop.
 * @param {string[]} names @param {Handler} handler */
export function onEvents(names, handler) {
  for (const name of names) {
    if (!handlers.has(name)) handlers.set(name, new Set());
    handlers.get(name)?.add(handler);
  }
  return () => {
    for (const name of names) handlers.get(name)?.delete(handler);
  };
}

/** @param {string} name @param {any} data */
function publish(name, data) {
  for (const handler of [...(handlers.get(name) || [])]) handler(data, name);
}

/** Keep a stream open from now on, except while nobody looks. */
export function startEvents() {
  if (stream) return;
  document.addEventListener("visibilitychange", followVisibility);
  // A page that was left is kept by the browser for a while, with its open requests.
  window.addEventListener("pagehide", pause);
  window.addEventListener("pageshow", followVisibility);
  void keepOpen();
}

export function stopEvents() {
  document.removeEventListener("visibilitychange", followVisibility);
  window.removeEventListener("pagehide", pause);
  window.removeEventListener("pageshow", followVisibility);
  pause();
  connection.value = "off";
}

function pause() {
  stream?.abort();
  stream = null;
}

function followVisibility() {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = window.setTimeout(pause, HIDDEN_MS);
  } else if (!stream && session.value?.signed_in) {
    void keepOpen();
  }
}

async function keepOpen() {
  const own = new AbortController();
  stream = own;
  let wait = FIRST_WAIT_MS;
  let wasLost = false;
  while (!own.signal.aborted) {
    if (connection.value !== "lost") connection.value = "connecting";
    try {
      const headers = proofHeaders();
      if (lastId) headers["Last-Event-ID"] = lastId;
      const reply = await fetch(PATH, { headers, signal: own.signal, cache: "no-store" });
      if (reply.status === 401) return endSession();
      if (!reply.ok || !reply.body) throw new Error(`status ${reply.status}`);
      connection.value = "live";
      isUnreachable.value = false;
      wait = FIRST_WAIT_MS;
      if (wasLost) publish("again", {});
      wasLost = false;
      await readStream(reply.body);
    } catch {
      // Lost; below.
    }
    if (own.signal.aborted) break;
    wasLost = true;
    connection.value = "lost";
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 2, MAX_WAIT_MS);
  }
}

/** @param {ReadableStream<Uint8Array>} body */
async function readStream(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let pending = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    pending += decoder.decode(value, { stream: true });
    const blocks = pending.split("\n\n");
    pending = blocks.pop() || "";
    if (pending.length > MAX_PENDING_CHARACTERS) throw new Error("an event is too long");
    for (const block of blocks) readEvent(block);
  }
}

/** @param {string} block */
function readEvent(block) {
  let name = "";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) lastId = line.slice(4);
    else if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (!name) return;
  const event = JSON.parse(data || "{}");
  if (name === "lagged" || (name === "hello" && event.missed)) publish("again", {});
  publish(name, event);
}
