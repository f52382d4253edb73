/** Which screen is shown: the address below /console. */
import { signal } from "../view.js";

const ROOT = "/console";

/** Parts of the path below /console, decoded. */
export const route = signal(readPath());
/** Parameters of the address. */
export const params = signal(new URLSearchParams(location.search));

function readPath() {
  return location.pathname.slice(ROOT.length).split("/").filter(Boolean).map(decode);
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Return the address of a screen. @param {string[]} parts @param {Record<string, string | number | boolean | undefined>} [query] */
export function addressOf(parts, query) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query || {})) {
    if (value !== undefined && value !== "") search.set(key, String(value));
  }
  const text = search.toString();
  return [ROOT, ...parts.map(encodeURIComponent)].join("/") + (text ? `?${text}` : "");
}

/** Go to an address. @param {string} address @param {{replace?: boolean}} [options] */
export function navigate(address, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  follow();
}

/** Change parameters of this screen without a step in the history. @param {Record<string, string>} changes */
export function setParams(changes) {
  const next = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value) next.set(key, value);
    else next.delete(key);
  }
  const text = next.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), { replace: true });
}

function follow() {
  const before = route.value.join("/");
  const next = readPath();
  params.value = new URLSearchParams(location.search);
  if (next.join("/") !== before) route.value = next;
}

export function startRouter() {
  window.addEventListener("popstate", follow);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = /** @type {Element} */ (event.target).closest?.("a[href]");
    const href = link?.getAttribute("href") || "";
    if (!link || link.hasAttribute("target") || !(href === ROOT || href.startsWith(`${ROOT}/`))) return;
    event.preventDefault();
    navigate(href);
  });
}
