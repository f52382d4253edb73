/** What waits for a person: calls to approve, and definitions that changed. */
import { signal } from "../view.js";
import { request, throttle } from "./api.js";
import { onEvents } from "./events.js";
import { session } from "./session.js";

const RELOAD_MS = 2_000;

/** How many wait, by screen. */
export const waiting = signal({ approvals: 0, changes: 0 });
/** Approvals that wait, the oldest first. @type {{value: any[]}} */
export const pendingApprovals = signal([]);
/** Servers with changes. @type {{value: any[]}} */
export const changedServers = signal([]);

/** Follow both while somebody is signed in who may decide. Returns how to stop. */
export function followWaiting() {
  const rights = session.value?.may;
  /** @type {(() => void)[]} */
  const stops = [];
  if (rights?.approve) stops.push(follow(["approval_requested", "approval_decided", "config"], loadApprovals));
  if (rights?.administer) stops.push(follow(["catalog", "config"], loadChanges));
  return () => stops.forEach((stop) => stop());
}

/** @param {string[]} events @param {() => Promise<void>} load */
function follow(events, load) {
  const read = throttle(() => void load().catch(() => undefined), RELOAD_MS);
  read();
  return onEvents([...events, "again"], read);
}

async function loadApprovals() {
  const body = await request("approvals");
  pendingApprovals.value = body.approvals.filter((/** @type {any} */ one) => one.state === "pending");
  waiting.value = { ...waiting.value, approvals: pendingApprovals.value.length };
}

export async function loadChanges() {
  const body = await request("changes");
  changedServers.value = body.servers;
  waiting.value = { ...waiting.value, changes: body.servers.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.changes.length, 0) };
}
