/** A list of the API that is loaded where it is looked at. */
import { useCallback, useEffect, useRef, useState } from "../view.js";
import { request } from "../state/api.js";
import { onEvents } from "../state/events.js";

const PAGE = 100;
const TOKENS = 20_000;

/**
 * Items of `path` by their index; those that are not there yet are undefined.
 *
 * @param {string} path @param {string} key of the items in an answer @param {Record<string, any>} query
 * @param {string[]} events after which the list is read again
 */
export function usePagedList(path, key, query, events = []) {
  const items = useRef(/** @type {any[]} */ ([]));
  const loading = useRef(new Set());
  const [state, setState] = useState({ count: 0, isLoading: true, problem: /** @type {any} */ (null), head: /** @type {any} */ (null) });
  const inputs = JSON.stringify([path, query]);
  const current = useRef(inputs);
  const range = useRef([0, 40]);

  const load = useCallback(async (/** @type {number} */ first, /** @type {boolean} */ isFresh = false) => {
    const mark = `${inputs} ${first}`;
    if (loading.current.has(mark)) return;
    loading.current.add(mark);
    try {
      const size = path.startsWith("tools") && !path.includes("/") ? { limit: PAGE } : { page_size: PAGE };
      const body = await request(path, { query: { ...query, ...size, offset: first, max_tokens: TOKENS } });
      if (current.current !== inputs) return;
      if (isFresh) items.current = [];
      body[key].forEach((/** @type {any} */ item, /** @type {number} */ at) => (items.current[first + at] = item));
      setState({ count: body.pagination.total_count, isLoading: false, problem: null, head: body });
    } catch (problem) {
      if (current.current === inputs) setState((before) => ({ ...before, isLoading: false, problem }));
    } finally {
      loading.current.delete(mark);
    }
  }, [inputs]);

  useEffect(() => {
    current.current = inputs;
    items.current = [];
    setState((before) => ({ ...before, isLoading: true, problem: null }));
    void load(0, true);
    return onEvents([...events, "again"], () => void load(0, true));
  }, [inputs]);

  const ensure = useCallback((/** @type {number} */ first, /** @type {number} */ last) => {
    range.current = [first, last];
    for (let at = first; at < last; at += 1) {
      if (items.current[at] === undefined) return void load(at);
    }
  }, [load]);
  // What did not fit an answer is asked for next, until everything that can be seen is there.
  useEffect(() => ensure(range.current[0], Math.min(range.current[1], state.count)), [state]);

  return { ...state, row: (/** @type {number} */ at) => items.current[at], ensure };
}
