/** Who is signed in. The cookie is the browser's; the proof is kept for this origin alone. */
import { signal } from "../view.js";

/**
 * @typedef {{see_use: boolean, see_calls: boolean, see_logs: boolean, restart: boolean, approve: boolean, administer: boolean, change_config: boolean}} Rights
 * @typedef {{signed_in: boolean, required: boolean, id: string, name: string, kind: string, profiles: string[],
 *   read_only: boolean, may: Rights, version: string, kept?: boolean}} Session
 * `kept`: while nothing is required, whether this session stays valid when keys begin to be.
 */

const PATH = "/console/session";
const PROOF_KEY = "portico.proof";

/** The session; null until it is known. @type {{value: Session | null}} */
export const session = signal(null);
/** Why signing in did not work. @type {{value: {detail: string, advice: string} | null}} */
export const signInProblem = signal(null);
/** A key that was just made, shown until it is closed, whatever happens to the session. @type {{value: any}} */
export const newKey = signal(null);
/** Whether the gateway does not answer. */
export const isUnreachable = signal(false);

/** @returns {Record<string, string>} */
export function proofHeaders() {
  // Without a sign-in too: it says that the console asks.
  return { "X-Portico-Proof": localStorage.getItem(PROOF_KEY) || "none" };
}

/** Sign in by the code in the address if there is one, and find out who is signed in. */
export async function openSession() {
  const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    await signIn({ code });
  } else {
    await loadSession();
  }
}

export async function loadSession() {
  try {
    const reply = await fetch(PATH, { headers: proofHeaders(), cache: "no-store" });
    if (reply.ok) session.value = await reply.json();
    isUnreachable.value = !reply.ok;
  } catch {
    isUnreachable.value = true;
  }
}

/** @param {{code?: string, credential?: string}} given */
export async function signIn(given) {
  signInProblem.value = null;
  try {
    const reply = await fetch(PATH, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...proofHeaders() },
      body: JSON.stringify(given),
    });
    const body = await reply.json();
    if (reply.ok) localStorage.setItem(PROOF_KEY, body.proof);
    else signInProblem.value = { detail: body.detail, advice: body.advice };
  } catch {
    signInProblem.value = { detail: "the gateway does not answer", advice: "Is it running? `portico status` says so." };
  }
  await loadSession();
}

export async function signOut() {
  await fetch(PATH, { method: "DELETE", headers: proofHeaders() }).catch(() => null);
  localStorage.removeItem(PROOF_KEY);
  await loadSession();
}

/** Show the sign-in form: the gateway did not take the session any more. */
export function endSession() {
  if (session.value?.signed_in) session.value = { ...session.value, signed_in: false, required: true };
}
