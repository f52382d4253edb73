/** The parts of Preact, htm and signals that the console uses. */
import htm from "./third_party/htm.mjs";
import { Component, Fragment, h, render } from "./third_party/preact.mjs";

export { Component, Fragment, h, render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./third_party/preact-hooks.mjs";
export { batch, computed, effect, signal } from "./third_party/signals.mjs";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(/** @type {any} */ (h));
