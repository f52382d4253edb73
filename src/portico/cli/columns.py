"""Rows in columns: a table for people, aligned lines for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from portico.cli.screen import Screen

_GAP = "  "


@dataclass(frozen=True)
class Column:
    """A column: its name and format."""

    name: str
    align_right: bool = False
    style: str = ""
    no_wrap: bool = False
    """Never wrapped, for text that is copied."""


def show_rows(
    screen: Screen, columns: Sequence[Column], rows: Iterable[Sequence[str]], indent: int = 0
) -> None:
    """Show rows under their column names; a table wraps on a terminal, other output never does."""
    if screen.is_stdout_terminal:
        screen.write_text(_build_table(columns, rows))
        return
    lines = [[column.name for column in columns], *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = (
            cell.rjust(width) if column.align_right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        screen.write_text(" " * indent + _GAP.join(cells).rstrip())


def _build_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(
            column.name,
            justify="right" if column.align_right else "left",
            style=column.style,
            no_wrap=column.no_wrap,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
