/** Before anything is drawn, outside of the modules: the colours that were chosen here. */
{
  const chosen = localStorage.getItem("portico.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.setAttribute("data-theme", chosen);
}
