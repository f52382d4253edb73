/** Requests of the REST API, and loading what a screen shows. */
import { useCallback, useEffect, useRef, useState } from "../view.js";
import { onEvents } from "./events.js";
import { endSession, isUnreachable, proofHeaders } from "./session.js";

const V1 = "/api/v1";
const RELOAD_MS = 2_000;

/** What went wrong, and what to do about it. */
export class Problem extends Error {
  /** @param {number} status @param {any} body */
  constructor(status, body) {
    super(body.detail || "the request failed");
    this.status = status;
    /** @type {string} */
    this.advice = body.advice || "";
    /** @type {string[]} */
    this.nearest = body.nearest || [];
    /** @type {string[]} */
    this.problems = body.problems || [];
    /** @type {string[]} */
    this.stderr = body.stderr || [];
  }
}

/** @param {Record<string, string | number | boolean | null | undefined>} [query] */
export function buildPath(/** @type {string} */ path, query) {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query || {})) {
    if (value !== undefined && value !== null && value !== "") params.set(key, String(value));
  }
  const text = params.toString();
  return (path.startsWith("/") ? path : `${V1}/${path}`) + (text ? `?${text}` : "");
}

/**
 * @param {string} path below /api/v1, or a whole one
 * @param {{method?: string, body?: unknown, query?: Record<string, any>, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function request(path, options = {}) {
  const headers = proofHeaders();
  const method = options.method || "GET";
  if (method !== "GET") headers["Content-Type"] = "application/json";
  let reply;
  try {
    reply = await fetch(buildPath(path, options.query), {
      method,
      headers,
      cache: "no-cache",
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    isUnreachable.value = true;
    throw new Problem(0, { detail: "the gateway does not answer", advice: "It is asked again when it is back." });
  }
  isUnreachable.value = false;
  const body = await reply.json().catch(() => ({ detail: "the answer cannot be read" }));
  if (reply.status === 401) endSession();
  if (!reply.ok) throw new Problem(reply.status, body);
  return body;
}

/**
 * Load something now, when `inputs` change, and when one of `events` happens; what was loaded stays
 * until the next is there, so that nothing blinks.
 *
 * @param {(signal: AbortSignal) => Promise<any>} load
 * @param {any[]} inputs
 * @param {string[]} [events]
 * @returns {{data: any, problem: Problem | null, isLoading: boolean, reload: () => void}}
 */
export function useLoaded(load, inputs, events = []) {
  const [state, setState] = useState({ data: null, problem: null, isLoading: true });
  const [turn, setTurn] = useState(0);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  const key = JSON.stringify(inputs);
  const loadedKey = useRef("");
  useEffect(() => {
    const stop = new AbortController();
    if (loadedKey.current !== key) setState({ data: null, problem: null, isLoading: true });
    load(stop.signal).then(
      (data) => {
        if (stop.signal.aborted) return;
        loadedKey.current = key;
        setState({ data, problem: null, isLoading: false });
      },
      (problem) => {
        if (!stop.signal.aborted) setState((before) => ({ ...before, problem, isLoading: false }));
      },
    );
    return () => stop.abort();
  }, [key, turn]);
  useEffect(() => onEvents([...events, "again"], throttle(reload, RELOAD_MS)), []);
  return { ...state, reload };
}

/** Call at most once in `ms`: at once, and again at the end if more came. @param {() => void} call @param {number} ms */
export function throttle(call, ms) {
  let timer = 0;
  let isDue = false;
  const run = () => {
    call();
    isDue = false;
    timer = window.setTimeout(() => {
      timer = 0;
      if (isDue) run();
    }, ms);
  };
  return () => {
    isDue = true;
    if (!timer) run();
  };
}
