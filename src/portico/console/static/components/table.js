/** A table of any length: only the rows that can be seen are in the page. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../view.js";

const OVERSCAN = 8;

/**
 * @typedef {{key: string, title: string, width: string, align?: "right", wide?: boolean, render: (row: any, index: number) => any}} Column
 *   `wide` columns are left out on phones
 * @param {{columns: Column[], count: number, row: (index: number) => any, href?: (row: any) => string, label: string,
 *   rowHeight?: number, onRange?: (first: number, last: number) => void, fits?: boolean}} props
 *   `fits`: as high as its rows, without a scroller of its own
 */
export function Table({ columns, count, row, href, label, rowHeight = 34, onRange, fits }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const [range, setRange] = useState({ first: 0, last: fits ? count : 40 });
  const isNarrow = useNarrow();
  const shown = isNarrow ? columns.filter((column) => !column.wide) : columns;
  const height = isNarrow ? rowHeight + 8 : rowHeight;
  const template = shown.map((column) => column.width).join(" ");

  const measure = () => {
    const element = scroller.current;
    if (!element || fits) return;
    const first = Math.max(0, Math.floor(element.scrollTop / height) - OVERSCAN);
    const last = Math.ceil((element.scrollTop + element.clientHeight) / height) + OVERSCAN;
    setRange((before) => (before.first === first && before.last === last ? before : { first, last }));
  };
  useLayoutEffect(measure, [count, height]);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (scroller.current) observer.observe(scroller.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => onRange?.(range.first, Math.min(range.last, count)), [range.first, range.last, count]);

  const last = fits ? count : Math.min(range.last, count);
  const indexes = [];
  for (let at = fits ? 0 : Math.min(range.first, last); at < last; at += 1) indexes.push(at);

  // As high as its rows, where the place for it is higher.
  const ownHeight = `calc(${count * height}px + 1.9rem + 2px)`;
  return html`<div class="table" role="table" aria-label=${label} aria-rowcount=${count + 1} style=${fits ? { height: ownHeight } : { maxHeight: ownHeight }}
    tabindex="0" ref=${scroller} onScroll=${measure} onKeyDown=${moveFocus}>
    <div role="rowgroup" class="table-head-group">
      <div class="table-head" role="row" aria-rowindex="1" style=${{ gridTemplateColumns: template }}>
        ${shown.map((column) => html`<div role="columnheader" key=${column.key} class=${column.align || ""}>${column.title}</div>`)}
      </div>
    </div>
    <div class="table-space" role="rowgroup" style=${{ height: `${count * height}px` }}>
      ${indexes.map((at) => {
        const item = row(at);
        const place = { gridTemplateColumns: template, transform: `translateY(${at * height}px)`, height: `${height}px` };
        return html`<div role="row" class="row" key=${item?.rowKey ?? at} aria-rowindex=${at + 2} style=${place}>
          ${shown.map((column, number) => renderCell(column, number, item, at, href))}
        </div>`;
      })}
    </div>
  </div>`;
}

/** @param {Column} column @param {number} number @param {any} item @param {number} at @param {((row: any) => string) | undefined} href */
function renderCell(column, number, item, at, href) {
  if (item === undefined) return html`<div role="cell" key=${column.key} class="waiting"></div>`;
  const content = column.render(item, at);
  const address = number === 0 && href ? href(item) : "";
  return html`<div role="cell" key=${column.key} class=${column.align || ""}>${address ? html`<a class="row-link" href=${address}>${content}</a>` : content}</div>`;
}

/** Arrow keys and j, k move between the links of rows. @param {KeyboardEvent} event */
function moveFocus(event) {
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (!step || /** @type {Element} */ (event.target).closest("input, select, textarea")) return;
  const table = /** @type {Element} */ (event.currentTarget);
  const links = /** @type {HTMLElement[]} */ ([...table.querySelectorAll("a.row-link")]);
  const at = links.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const next = links[at === -1 ? 0 : at + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function useNarrow() {
  const query = useRef(window.matchMedia("(max-width: 720px)"));
  const [isNarrow, setNarrow] = useState(query.current.matches);
  useEffect(() => {
    const follow = () => setNarrow(query.current.matches);
    query.current.addEventListener("change", follow);
    return () => query.current.removeEventListener("change", follow);
  }, []);
  return isNarrow;
}
