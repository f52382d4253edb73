"""Changes of a script's text at positions of the parser, with the lines that they came from."""

import ast
from dataclasses import dataclass

LAST_RANK = 1_000_000


@dataclass(frozen=True)
class RewrittenScript:
    code: str
    modules: tuple[str, ...] = ()
    """Modules of `SUBSTITUTES` that it uses."""
    line_numbers: tuple[int, ...] = ()
    """The script's line of each line of `code`; empty if they are the same."""

    def to_script_line(self, line: int | None) -> int | None:
        if line is None or not 1 <= line <= len(self.line_numbers):
            return line
        return self.line_numbers[line - 1]


class SourceEdits:
    """Changes of a text at positions of the parser, applied together."""

    def __init__(self, code: str) -> None:
        self.source = code.encode()
        self._line_starts = [0]
        for line in self.source.split(b"\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self._edits: list[tuple[int, int, int, str]] = []
        """Start, rank among those with this start, end, text."""

    def get_start(self, node: ast.expr | ast.stmt) -> int:
        return self._line_starts[node.lineno - 1] + node.col_offset

    def get_end(self, node: ast.expr | ast.stmt) -> int:
        return self._line_starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def get_indent(self, node: ast.stmt) -> str:
        return self.source[self._line_starts[node.lineno - 1] : self.get_start(node)].decode()

    def replace(self, start: int, end: int, text: str) -> None:
        self._edits.append((start, 2 * LAST_RANK, end, text))

    def insert(self, position: int, rank: int, text: str) -> None:
        self._edits.append((position, rank, position, text))

    def insert_after(self, node: ast.expr, depth: int, text: str) -> None:
        """Insert after a node; what is deeper and ends there comes before it."""
        self.insert(self.get_end(node), -depth, text)

    def wrap(self, node: ast.expr, depth: int, before: str, after: str) -> None:
        """Insert around a node; what is deeper and begins there comes after `before`."""
        self.insert(self.get_start(node), LAST_RANK + depth, before)
        self.insert_after(node, depth, after)

    def apply(self, modules: tuple[str, ...]) -> RewrittenScript:
        pieces: list[bytes] = []
        line_numbers = [1]
        line = 1
        position = 0
        for start, _, end, text in [*sorted(self._edits), (len(self.source), 0, 0, "")]:
            unchanged = self.source[position:start]
            pieces += [unchanged, text.encode()]
            newlines = unchanged.count(b"\n")
            line_numbers += range(line + 1, line + 1 + newlines)
            line += newlines
            line_numbers += [line] * text.count("\n")
            line += self.source.count(b"\n", start, max(start, end))
            position = max(position, start, end)
        return RewrittenScript(b"".join(pieces).decode(), modules, tuple(line_numbers))
