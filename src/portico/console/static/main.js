/** Start of the console. */
import { App } from "./app.js";
import { onEvents, startEvents, stopEvents } from "./state/events.js";
import { startRouter } from "./state/router.js";
import { loadSession, openSession, session } from "./state/session.js";
import { applyTheme } from "./state/theme.js";
import { effect, html, render } from "./view.js";

applyTheme();
startRouter();
const place = /** @type {Element} */ (document.getElementById("app"));
place.replaceChildren(); // the same frame is drawn again, by the application
render(html`<${App} />`, place);
effect(() => {
  if (session.value?.signed_in) startEvents();
  else stopEvents();
});
// The stream also ends when a credential begins to be required.
onEvents(["again"], () => void loadSession());
void openSession();
