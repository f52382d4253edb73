/** Light or dark: as the system says, or as chosen here. */
import { signal } from "../view.js";

const KEY = "portico.theme";
const CHOICES = ["system", "light", "dark"];

export const theme = signal(localStorage.getItem(KEY) || "system");

export function applyTheme() {
  if (theme.value === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme.value);
}

export function chooseNextTheme() {
  theme.value = CHOICES[(CHOICES.indexOf(theme.value) + 1) % CHOICES.length];
  localStorage.setItem(KEY, theme.value);
  applyTheme();
}
