/** Bars by day. */
import { html } from "../view.js";

const WIDTH = 600;
const HEIGHT = 96;
const GAP = 2;

/**
 * @typedef {{label: string, value: number, part?: number}} Bar  `part` of the value is drawn in the colour of failures
 * @param {{bars: Bar[], label: string, format: (value: number) => string, describe?: (bar: Bar) => string}} props
 */
export function BarPlot({ bars, label, format, describe }) {
  const largest = Math.max(1, ...bars.map((bar) => bar.value));
  const width = WIDTH / Math.max(1, bars.length);
  const total = bars.reduce((sum, bar) => sum + bar.value, 0);
  return html`<figure class="plot">
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${label}: ${format(total)} in ${bars.length} days, at most ${format(largest)} a day">
      <line class="grid" x1="0" x2=${WIDTH} y1="0.5" y2="0.5" />
      <line class="grid" x1="0" x2=${WIDTH} y1=${HEIGHT / 2} y2=${HEIGHT / 2} />
      ${bars.map((bar, at) => {
        const high = (Math.max(0, bar.value) / largest) * HEIGHT;
        const failed = ((bar.part || 0) / largest) * HEIGHT;
        const text = describe ? describe(bar) : `${bar.label}: ${format(bar.value)}`;
        return html`<g key=${bar.label}>
          <title>${text}</title>
          <rect class="hit" x=${at * width} y="0" width=${width} height=${HEIGHT} />
          <rect class="bar" x=${at * width + GAP / 2} y=${HEIGHT - high} width=${Math.max(1, width - GAP)} height=${high} />
          ${failed > 0 && html`<rect class="failed" x=${at * width + GAP / 2} y=${HEIGHT - failed} width=${Math.max(1, width - GAP)} height=${Math.max(1.5, failed)} />`}
        </g>`;
      })}
      <line class="axis" x1="0" x2=${WIDTH} y1=${HEIGHT - 0.5} y2=${HEIGHT - 0.5} />
    </svg>
    <figcaption><span>${bars[0]?.label || ""}</span><span>at most ${format(largest)} a day</span><span>${bars.at(-1)?.label || ""}</span></figcaption>
  </figure>`;
}

/** The share of each part of a whole, in a line of its own. @param {{parts: {name: any, value: number, text: any}[]}} props */
export function ShareList({ parts }) {
  const largest = Math.max(1, ...parts.map((part) => part.value));
  return html`<ul class="shares">${parts.map((part, at) => html`<li key=${at}>
    <span class="share-name">${part.name}</span>
    <span class="share-text">${part.text}</span>
    <svg viewBox="0 0 100 2" preserveAspectRatio="none" aria-hidden="true"><rect class="bar" x="0" y="0" width=${(Math.max(0, part.value) / largest) * 100} height="2" /></svg>
  </li>`)}</ul>`;
}
