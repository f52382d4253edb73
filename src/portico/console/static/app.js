/** The frame around every screen, and which one is shown. */
import { Keys } from "./components/keys_help.js";
import { NewKey } from "./components/new_key.js";
import { Empty, Screen } from "./components/parts.js";
import { Activity } from "./screens/activity.js";
import { Approvals } from "./screens/approvals.js";
import { CallScreen } from "./screens/call.js";
import { Changes } from "./screens/changes.js";
import { Connect } from "./screens/connect.js";
import { Overview } from "./screens/overview.js";
import { People } from "./screens/people.js";
import { Rules } from "./screens/rules.js";
import { ServerScreen } from "./screens/server.js";
import { Servers } from "./screens/servers.js";
import { Settings } from "./screens/settings.js";
import { SignIn } from "./screens/sign_in.js";
import { ToolScreen } from "./screens/tool.js";
import { Tools } from "./screens/tools.js";
import { connection } from "./state/events.js";
import { clip } from "./state/format.js";
import { addressOf, navigate, params, route } from "./state/router.js";
import { isUnreachable, session, signOut } from "./state/session.js";
import { chooseNextTheme, theme } from "./state/theme.js";
import { followWaiting, waiting } from "./state/waiting.js";
import { html, useEffect, useRef } from "./view.js";

/** @typedef {{name: string, title: string, letter: string, show: any, showOne?: any, right?: keyof import("./state/session.js").Rights}} ScreenEntry */
/** @type {ScreenEntry[]} */
const SCREENS = [
  { name: "overview", title: "Overview", letter: "o", show: Overview },
  { name: "servers", title: "Servers", letter: "s", show: Servers, showOne: ServerScreen },
  { name: "tools", title: "Tools", letter: "t", show: Tools, showOne: ToolScreen },
  { name: "activity", title: "Activity", letter: "a", show: Activity, showOne: CallScreen },
  { name: "approvals", title: "Approvals", letter: "p", show: Approvals, right: "approve" },
  { name: "changes", title: "Changes", letter: "c", show: Changes, showOne: Changes, right: "administer" },
  { name: "connect", title: "Connect", letter: "n", show: Connect, right: "see_use" },
  { name: "rules", title: "Rules", letter: "r", show: Rules, right: "administer" },
  { name: "people", title: "People and keys", letter: "k", show: People, right: "administer" },
  { name: "settings", title: "Settings", letter: "e", show: Settings, right: "administer" },
];

/** Screens that this person may see. */
function listScreens() {
  const rights = session.value?.may;
  return SCREENS.filter((screen) => !screen.right || rights?.[screen.right]);
}

export function App() {
  const who = session.value;
  if (who === null) {
    return isUnreachable.value
      ? html`<main class="alone"><h1>The gateway does not answer</h1><p>It is asked again when this page is loaded again. <code>portico status</code> says whether it runs.</p></main>`
      : html`<div class="frame" aria-busy="true"><nav class="side" aria-label="Screens"><span class="brand">Portico</span></nav>
          <div class="content"><div class="top"></div><main></main></div></div>`;
  }
  if (!who.signed_in) return html`<${SignIn} /><${NewKey} />`;
  const screens = listScreens();
  return html`<div class="frame">
    <a class="skip" href="#main">Skip to the content</a>
    <${Navigation} screens=${screens} />
    <div class="content">
      <${TopBar} screens=${screens} />
      <main id="main"><${CurrentScreen} screens=${screens} /></main>
    </div>
    <${NewKey} />
  </div>`;
}

/** @param {{screens: ScreenEntry[]}} props */
function Navigation({ screens }) {
  const current = route.value[0] || "overview";
  const counts = /** @type {Record<string, number>} */ (waiting.value);
  useEffect(followWaiting, []);
  useEffect(() => document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [current]);
  return html`<nav class="side" aria-label="Screens">
    <a class="brand" href=${addressOf([])}>Portico</a>
    <ul>${screens.map((screen) => html`<li key=${screen.name}>
      <a href=${addressOf([screen.name])} aria-current=${screen.name === current ? "page" : undefined}>${screen.title}${counts[screen.name] ? html` <span class="badge" aria-label=${`${counts[screen.name]} wait`}>${counts[screen.name]}</span>` : ""}</a>
    </li>`)}</ul>
  </nav>`;
}

/** @param {{screens: ScreenEntry[]}} props */
function TopBar({ screens }) {
  const who = session.value;
  const query = route.value[0] === "tools" ? params.value.get("q") || "" : "";
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    if (field.current && document.activeElement !== field.current) field.current.value = query;
  }, [query]);
  const search = (/** @type {Event} */ event) => {
    event.preventDefault();
    navigate(addressOf(["tools"], { q: field.current?.value.trim() || "" }));
  };
  return html`<div class="top">
    <form role="search" onSubmit=${search}>
      <input id="search" ref=${field} type="search" placeholder="Search for tools, as an agent does   /" aria-label="Search for tools" maxlength="4000"
        onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && field.current?.blur()} />
      <button>Search</button>
    </form>
    <span class="connection" data-state=${connection.value} role="status">${describeConnection()}</span>
    <button class="plain" onClick=${chooseNextTheme} aria-label=${`Colours: ${theme.value}`} title="Colours">${{ system: "◐", light: "○", dark: "●" }[theme.value] || "◐"}</button>
    <${Keys} screens=${screens} />
    ${who?.required
      ? html`<button class="plain" onClick=${signOut} title=${`Signed in as ${clip(who.name)}`}>Sign out <span class="who">${clip(who.name, 30)}</span></button>`
      : html`<span class="who" title="No sign-in is needed on this machine while there is no token and no key.">this machine</span>`}
  </div>`;
}

function describeConnection() {
  return { live: "live", connecting: "connecting", lost: "gateway not reached, trying again", off: "" }[connection.value];
}

/** @param {{screens: ScreenEntry[]}} props */
function CurrentScreen({ screens }) {
  const [name = "overview", ...rest] = route.value;
  const place = route.value.join("/");
  const first = useRef(true);
  useEffect(() => {
    const screen = screens.find((one) => one.name === name);
    document.title = screen ? `${screen.title} · Portico` : "Portico";
    if (!first.current) /** @type {HTMLElement | null} */ (document.querySelector("main h1"))?.focus({ preventScroll: true });
    first.current = false;
    document.getElementById("main")?.scrollTo(0, 0);
  }, [place]);
  const screen = screens.find((one) => one.name === name);
  if (screen && rest.length && screen.showOne) return html`<${screen.showOne} key=${place} name=${rest.join("/")} />`;
  if (screen && !rest.length) return html`<${screen.show} key=${name} />`;
  return html`<${Screen} title="Nothing is here"><${Empty} title="There is no such screen, or it is not open to you.">
    <p><a href=${addressOf([])}>Overview</a></p>
  <//><//>`;
}
