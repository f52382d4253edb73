"""The README's picture: bars of tokens, as an SVG that reads on light and dark pages. Pure.

`python -m benchmarks.tokens --servers FILE --picture docs/pictures/tokens.svg` draws it from what
it has just counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, ROW, BAR = 860, 250, 46, 20
_STYLE = """
    text { font: 15px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
    .figure { font-weight: 600; } .quiet { fill: #59636e; font-size: 12px; }
    .before { fill: #cf4a3c; } .after { fill: #1f883d; }
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .quiet { fill: #9198a1; } }
"""


@dataclass(frozen=True)
class Bar:
    """One figure of the picture."""

    label: str
    tokens: int
    ours: bool


def draw_picture(title: str, bars: Sequence[Bar], note: str) -> str:
    """The picture; the longest bar is as wide as there is room for, the others in proportion."""
    most = max(bar.tokens for bar in bars)
    room = WIDTH - LEFT - 190
    parts = [f'<text x="0" y="22" class="figure">{escape(title)}</text>']
    for place, bar in enumerate(bars):
        y = 44 + place * ROW
        width = max(2.0, bar.tokens / most * room)
        parts += [
            f'<text x="0" y="{y + 15}">{escape(bar.label)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" '
            f'class="{"after" if bar.ours else "before"}"/>',
            f'<text x="{LEFT + width + 10:.1f}" y="{y + 15}" '
            f'class="figure">{bar.tokens:,} tokens</text>',
        ]
    height = 44 + len(bars) * ROW + 26
    parts.append(f'<text x="0" y="{height - 14}" class="quiet">{escape(note)}</text>')
    body = "\n  ".join(parts)
    label = escape(
        "; ".join(f"{bar.label}: {bar.tokens:,} tokens" for bar in bars), {'"': "&quot;"}
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{label}">\n  <style>{_STYLE}  </style>\n  {body}\n</svg>\n'
    )
