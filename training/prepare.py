"""Everything training needs, tokenised, in one folder.

    python -m training.prepare OUT --base DIR --servers F --texts F --pairs F [--vocabulary F] [--set NAME=F,F …]

What goes in, and whose it is, stands in `training/README.md`. Our queries are in
`training/queries/`; the texts of the tools they were written for are other people's and are given
from outside: `--servers` takes recorded listings,
`--texts` lines of `{id, text}` for tools that no listing has. Queries whose tool has no text are
left out and counted.
"""  # noqa: E501

import argparse
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from portico.search.document import DOCUMENT_TOKENS, QUERY_TOKENS, compose_text
from training.base import read_base
from training.examples import (
    QUERIES,
    Example,
    bare,
    examples,
    ours,
    read_given,
    read_lines,
    read_recorded,
)
from training.languages import LANGUAGES
from training.noise import misspelt
from training.tokenising import Tokeniser, tokeniser
from training.vocabulary import grow, parts_of

NEW_PIECES = 24_000
_TRAINING_QUERY_LIMIT = 96
_STRING_LIMIT = 64
_PAIRS_PER_LANGUAGE = 50_000
_MISSPELT_STRINGS = 150_000
_SEED = 7

Translation = tuple[str, str, str]
"""Language, English, translation."""


def read_pairs(path: Path, chance: random.Random) -> list[Translation]:
    """Return what `training.gather` wrote, no more of any language than others can match."""
    found: dict[str, list[Translation]] = {language: [] for language in LANGUAGES}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            language, english, other, *_ = line.rstrip("\n").split("\t")
            if language in found:
                found[language].append((language, english, other))
    sizes = {language: min(len(rows), _PAIRS_PER_LANGUAGE) for language, rows in found.items()}
    return [
        pair for language, rows in found.items() for pair in chance.sample(rows, sizes[language])
    ]


def pair_columns(
    pairs: list[Translation], tokens: Tokeniser, chance: random.Random
) -> dict[str, Any]:
    """English strings once each, what stands for them, and how often each is to be seen."""
    english = {text: number for number, text in enumerate(dict.fromkeys(pair[1] for pair in pairs))}
    strings = list(english)
    noisy = [
        ("en", text, misspelt(text, chance))
        for text in chance.choices(strings, k=_MISSPELT_STRINGS)
    ]
    everything = [*pairs, *(pair for pair in noisy if pair[1] != pair[2])]
    sizes = Counter(language for language, _, _ in everything)
    return {
        **tokens.ragged(strings, _STRING_LIMIT).columns("english"),
        **tokens.ragged((pair[2] for pair in everything), _STRING_LIMIT).columns("others"),
        "english_of": np.array([english[pair[1]] for pair in everything], dtype=np.int32),
        "weights": np.array([sizes[pair[0]] ** -0.5 for pair in everything], dtype=np.float32),
    }


def tool_columns(
    texts: Mapping[str, str], rows: list[Example], catalog: Iterable[str], tokens: Tokeniser
) -> dict[str, Any]:
    """Documents, queries and what joins them; `catalog` are the tools that held queries are judged
    among."""
    number = {tool: at for at, tool in enumerate(texts)}
    servers = {
        server: at
        for at, server in enumerate(dict.fromkeys(tool.partition("/")[0] for tool in texts))
    }
    return {
        **tokens.ragged(texts.values(), DOCUMENT_TOKENS).columns("documents"),
        **tokens.ragged((row.query for row in rows), _TRAINING_QUERY_LIMIT).columns("queries"),
        "document_of": np.array([number[row.tool] for row in rows], dtype=np.int32),
        "server_of": np.array(
            [servers[row.tool.partition("/")[0]] for row in rows], dtype=np.int32
        ),
        "weights": np.array([row.weight for row in rows], dtype=np.float32),
        "foreign": np.array([row.foreign for row in rows]),
        "noisy": np.array([row.noisy for row in rows]),
        "held": np.array([row.held for row in rows]),
        "catalog": np.array([number[tool] for tool in catalog], dtype=np.int32),
    }


def set_columns(
    name: str, tools: list[dict[str, Any]], queries: list[dict[str, Any]], tokens: Tokeniser
) -> tuple[dict[str, Any], dict[str, Any]]:
    """An evaluation set, and its right answers by place."""
    place = {tool["id"]: at for at, tool in enumerate(tools)}
    asked = [query for query in queries if query["groups"]]
    texts = (
        compose_text(tool["server"] or "", tool["name"], tool["description"] or "")
        for tool in tools
    )
    columns = {
        **tokens.ragged(texts, DOCUMENT_TOKENS).columns(f"{name}.documents"),
        **tokens.ragged((query["query"] for query in asked), QUERY_TOKENS).columns(
            f"{name}.queries"
        ),
    }
    groups = [
        [[place[tool] for tool in group if tool in place] for group in query["groups"]]
        for query in asked
    ]
    return columns, {"groups": groups}


def without_text(texts: Mapping[str, str]) -> int:
    """Return how many of our queries cannot be used, because their tool's text was not given."""
    rows = (
        row
        for path in QUERIES.glob("*.jsonl")
        for row in read_lines(path)
        if row["id"] not in texts
    )
    return sum(len(row.get("queries", ())) + len(row.get("other", ())) for row in rows)


def new_pieces(vocabulary: Path, base: list[str]) -> list[str]:
    """The pieces that an existing vocabulary has after the base's."""
    known = _pieces(vocabulary)
    if known[: len(base)] != base:
        raise SystemExit(
            f"{vocabulary} does not begin with the base's vocabulary: it was grown from "
            "another base"
        )
    return known[len(base) :]


def _pieces(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def main() -> None:
    """Read, tokenise, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--base",
        type=Path,
        required=True,
        help="folder of the base model: model.safetensors, vocab.txt",
    )
    parser.add_argument(
        "--servers", type=Path, required=True, help="recorded listings, one server a line"
    )
    parser.add_argument(
        "--texts", type=Path, required=True, help="texts of other tools: {id, text} a line"
    )
    parser.add_argument("--pairs", type=Path, required=True, help="what training.gather wrote")
    parser.add_argument(
        "--vocabulary", type=Path, help="use this one, grown before, instead of growing one"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=TOOLS,QUERIES",
        help="evaluate on this too",
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chance = random.Random(_SEED)
    listed = read_recorded(options.servers)
    texts = {**bare({**read_given(options.texts), **ours()}), **listed}
    rows = list(examples(texts, chance))
    pairs = read_pairs(options.pairs, chance)
    base = _pieces(options.base / "vocab.txt")
    if options.vocabulary:
        pieces = new_pieces(options.vocabulary, base)
    else:
        foreign = [("queries", row.query) for row in rows if row.foreign]
        pieces = grow(
            base, [*((language, text) for language, _, text in pairs), *foreign], NEW_PIECES
        )
    vocabulary = [*base, *pieces]
    (options.out / "vocabulary.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    sets: dict[str, Any] = {}
    with tokeniser(vocabulary) as tokens:
        columns = tool_columns(texts, rows, listed, tokens)
        for named in options.set:
            name, _, files = named.partition("=")
            tools, queries = (read_lines(Path(file)) for file in files.split(","))
            more, sets[name] = set_columns(name, tools, queries, tokens)
            columns.update(more)
        np.savez_compressed(options.out / "tools.npz", **columns)
        np.savez_compressed(options.out / "pairs.npz", **pair_columns(pairs, tokens, chance))
    weights = read_base(options.base / "model.safetensors")
    halved: dict[str, Any] = {name: value.astype(np.float16) for name, value in weights.items()}
    np.savez(options.out / "base.npz", **halved)
    (options.out / "facts.json").write_text(
        json.dumps({"parts": parts_of(base, pieces), "sets": sets})
    )
    kinds = Counter("other" if row.foreign else "noisy" if row.noisy else "English" for row in rows)
    print(
        f"{len(texts):,} tools, {dict(kinds)} queries ({without_text(texts):,} left "
        "out: no text of their tool), "
        f"{len(pairs):,} pairs, {len(pieces):,} new pieces"
    )


if __name__ == "__main__":
    main()
