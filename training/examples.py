"""Training examples: our queries, and the texts of the tools they were written for."""

import gzip
import json
import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portico.search.document import compose_text, to_words
from training.noise import misspelt

QUERIES = Path(__file__).parent / "queries"
HELD_SHARE = 0.2
"""The part of all servers that `--hold-out` does not train on; those of them in the catalog are
judged."""
BARE_SHARE = 0.2
"""Of the tools that no listing has, the part whose server is unknown: not every catalog has
telling ones."""
WEIGHT, WEIGHT_OTHER, WEIGHT_NOISY, WEIGHT_NAME = 4.0, 5.0, 1.0, 0.7
"""How often one epoch sees a query in English, in another language, misspelt, and a tool's bare
name."""
STRESS = 1.4
_STRESSED = ("products.jsonl", "requests.jsonl")
"""Queries as people put them to an assistant: fewer than the others, and as often asked."""


@dataclass(frozen=True, slots=True)
class Example:
    """A query and the tool that answers it."""

    query: str
    tool: str
    weight: float
    foreign: bool = False
    noisy: bool = False
    held: bool = False


def examples(
    texts: Mapping[str, str], chance: random.Random, queries: Path = QUERIES
) -> Iterator[Example]:
    """Our queries as they are, misspelt copies of the English ones, and every tool's own name."""
    files = {path.name: read_lines(path) for path in sorted(queries.glob("*.jsonl"))}
    stressed = {row["id"] for name in _STRESSED for row in files.get(name, ())}
    for rows in files.values():
        for row in rows:
            if row["id"] not in texts:
                continue
            held, stress = is_held(row["id"]), STRESS if row["id"] in stressed else 1.0
            for query in row.get("queries", ()):
                yield Example(query, row["id"], WEIGHT * stress, held=held)
                if query.isascii():
                    yield Example(
                        misspelt(query, chance), row["id"], WEIGHT_NOISY, noisy=True, held=held
                    )
            for query in row.get("other", ()):
                yield Example(query, row["id"], WEIGHT_OTHER * stress, foreign=True, held=held)
    for tool in texts:
        server, _, name = tool.partition("/")
        query = to_words(name) if chance.random() < 0.5 else f"{to_words(server)} {to_words(name)}"
        yield Example(query, tool, WEIGHT_NAME, noisy=True, held=is_held(tool))


def is_held(tool: str) -> bool:
    """Decide whether a tool's server is set apart: by its name, so that more data does not move
    it."""
    return zlib.crc32(tool.partition("/")[0].encode()) % 1000 < HELD_SHARE * 1000


def bare(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts, some of them without their server."""
    share = BARE_SHARE * 100
    return {
        tool: text.split(": ", 1)[-1] if zlib.crc32(tool.encode()) % 100 < share else text
        for tool, text in texts.items()
    }


def read_recorded(path: Path) -> dict[str, str]:
    """The texts of the tools in recorded listings."""
    return {
        f"{server['slug']}/{tool['name']}": compose_text(
            server["slug"], tool["name"], tool.get("description") or "", tool.get("title") or ""
        )
        for server in read_lines(path)
        for tool in server["tools"]
    }


def read_given(path: Path) -> dict[str, str]:
    """The texts of tools given by id."""
    return {row["id"]: _text(row) for row in read_lines(path)}


def ours(queries: Path = QUERIES) -> dict[str, str]:
    """The texts of the tools we made up ourselves."""
    rows = (
        row for path in sorted(queries.glob("*.jsonl")) for row in read_lines(path) if "text" in row
    )
    return {row["id"]: _text(row) for row in rows}


def _text(row: Mapping[str, str]) -> str:
    server, _, name = row["id"].partition("/")
    return compose_text(server, name, row["text"])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, compressed or not."""
    stored = path.read_bytes()
    text = (gzip.decompress(stored) if path.suffix == ".gz" else stored).decode()
    # Not splitlines: a string may hold one of the rarer line separators.
    return [json.loads(line) for line in text.split("\n") if line]
