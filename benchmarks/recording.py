"""Records a terminal: runs commands on the demo servers in a pseudo-terminal and draws what they
printed, as an SVG.

    python -m benchmarks.recording docs/pictures/terminal.svg

The lines are what the commands wrote, colours included; they appear one after the other, each
command after the answer to the one before. Where motion is not wanted, all of them stand there at
once.
"""

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from rich.color_triplet import ColorTriplet
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

from benchmarks import processes

COLUMNS = 100
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("search", "how far is a marathon in km", "--limit", "3"),
    ("call", "units.convert_units", "value=26.2", "from_unit=miles", "to_unit=km"),
    ("tokens",),
)
MOST_LINES = 19
"""Of one command; a first screen has no room for more."""
LINE_H, CHAR_W, EDGE, TOP = 19, 8.43, 18, 44
TYPED_S, BETWEEN_S, PAUSE_S = 0.9, 0.06, 0.7
_CONTROL = re.compile(r"\x1b\[\?25[lh]|\x1b\[\d*[AK]|\x1b\[2K")


def record_command(arguments: Sequence[str], folder: Path) -> list[Text]:
    """Return what a command shows on a terminal; the progress it wipes out again is left out."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {
        **os.environ,
        "PORTICO_DATA_DIR": str(folder / "data"),
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
    }
    command = [*processes.portico(), *arguments]
    with subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.DEVNULL, cwd=folder, env=environment
    ) as program:
        os.close(theirs)
        written = b"".join(_until_closed(ours))
        os.close(ours)
    if program.returncode:
        raise SystemExit(f"portico {' '.join(arguments)} ended with {program.returncode}")
    text = _CONTROL.sub("", written.decode()).replace("\r\n", "\n")
    return [Text.from_ansi(line) for line in text.rstrip("\n").split("\n")]


def _until_closed(handle: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(handle, 65_536)
        except OSError:  # how Linux says that the other end has closed
            return
        if not piece:
            return
        yield piece


def render_command(arguments: Sequence[str], lines: Sequence[Text]) -> list[Text]:
    """The prompt with its command, and as much of the answer as there is room for."""
    words = " ".join(f'"{word}"' if " " in word else word for word in arguments)
    prompt = Text.assemble(("$ ", "bold green"), (f"portico {words}", "bold"))
    cut = list(lines[:MOST_LINES])
    while cut and not cut[-1].plain.strip():
        cut.pop()
    return [prompt, *cut, Text("")]


def draw_recording(blocks: Sequence[Sequence[Text]]) -> str:
    """The recording."""
    rows, at = [], 0.3
    for block in blocks:
        for place, line in enumerate(block):
            y = TOP + (len(rows) + 1) * LINE_H
            rows.append(
                f'<text x="{EDGE}" y="{y}" style="animation-delay:{at:.2f}s">{_spans(line)}</text>'
            )
            at += TYPED_S if place == 0 else BETWEEN_S
        at += PAUSE_S
    width, height = int(2 * EDGE + COLUMNS * CHAR_W), TOP + (len(rows) + 1) * LINE_H
    background, text = _hex(MONOKAI.background_color), _hex(MONOKAI.foreground_color)
    dots = "".join(
        f'<circle cx="{EDGE + 4 + 20 * place}" cy="20" r="6" fill="{colour}"/>'
        for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    style = (
        f"text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; "
        f"fill: {text}; "
        "white-space: pre; }\n"
        "    @keyframes appear { to { opacity: 1; } }\n"
        "    @media (prefers-reduced-motion: no-preference) { text { opacity: 0; "
        "animation: appear .01s linear "
        "forwards; } }"
    )
    body = "\n  ".join(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" '
        'role="img" xml:space="preserve" aria-label="A terminal: Portico searches, '
        'calls and counts tokens">\n'
        f"  <style>\n    {style}\n  </style>\n"
        f'  <rect width="{width}" height="{height}" rx="9" fill="{background}"/>{dots}\n'
        f"  {body}\n</svg>\n"
    )


def _spans(line: Text) -> str:
    parts: list[str] = []
    for piece in line.divide(
        sorted({offset for span in line.spans for offset in (span.start, span.end)})
    ):
        if not piece.plain:
            continue
        styles = [
            Style.parse(one.style) if isinstance(one.style, str) else one.style
            for one in piece.spans
        ]
        style = Style.combine([Style.null(), *styles])
        looks = _looks(style)
        words = escape(piece.plain.rstrip("\n"))
        parts.append(f'<tspan style="{looks}">{words}</tspan>' if looks else words)
    return "".join(parts)


def _looks(style: Style) -> str:
    looks: list[str] = []
    if style.color is not None and not style.color.is_default:
        looks.append(f"fill:{_hex(style.color.get_truecolor(MONOKAI))}")
    if style.bold:
        looks.append("font-weight:700")
    if style.dim:
        looks.append("fill-opacity:.6")
    return ";".join(looks)


def _hex(colour: ColorTriplet) -> str:
    return colour.hex


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="the SVG to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        blocks = [render_command(one, record_command(one, Path(folder))) for one in COMMANDS]
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(draw_recording(blocks), encoding="utf-8")
    print(f"{options.file}: {sum(map(len, blocks))} lines of {len(blocks)} commands")
    return 0


if __name__ == "__main__":
    sys.exit(main())
