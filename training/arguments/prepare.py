"""Utterances with their arguments, as token numbers and labels: one folder's worth for training.

    python -m training.arguments.prepare SERVERS.jsonl.gz UTTERANCES.jsonl.gz OUT.json

A label says where a parameter's value stands: among its options, in the words, or in an input. A
value that stands nowhere word for word is found by converting spans as the planner converts them;
where that fails too, the parameter is left out of training (`skip`).
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from portico.catalog.tool import Tool, make_tool
from portico.search.dense.wordpiece import Vocabulary, WordPieceTokenizer
from portico.workflows.planning.argument_reader import describe_tool_words, write_option
from portico.workflows.planning.parameters import Leaf, get_at, list_leaves, split_identifier
from portico.workflows.planning.said_words import SaidWords, encode_pieces, read_said_words
from portico.workflows.planning.values import NOTHING, convert_input, convert_text

MAX_SPAN = 6
"""Words of a span that is converted to see whether it means a value."""


def read_tokenizer() -> WordPieceTokenizer:
    """The encoder's tokenizer."""
    model = files("portico.search.dense") / "model"
    return WordPieceTokenizer(Vocabulary((model / "vocabulary.txt").read_bytes()))


def read_tools(path: Path) -> dict[str, Tool]:
    """The tools of recorded servers, by `server/tool`."""
    tools: dict[str, Tool] = {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            server = json.loads(line)
            for definition in server["tools"] or []:
                tool = make_tool(server["slug"], definition)
                tools[f"{server['slug']}/{definition['name']}"] = tool
    return tools


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are one, numbers and texts compared loosely."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) or isinstance(other, dict):
        return one == other
    return str(one).strip().lower().rstrip(".") == str(other).strip().lower().rstrip(".")


def find_label(said: SaidWords, leaf: Leaf, value: Any) -> list[Any] | str:
    """Where a value stands."""
    if not isinstance(value, list | dict):
        for at, option in enumerate(leaf.options):
            if is_same(option, value):
                return ["option", at]
    for at, given in enumerate(said.inputs):
        found = convert_input(given.value, leaf)
        if found is not NOTHING and is_same(found, value):
            return ["input", at]
    for first, last in iter_spans(said, value):
        if is_same(convert_text(said.get_text(first, last), leaf), value):
            return ["words", first, last]
    return "skip"


def iter_spans(said: SaidWords, value: Any) -> Iterator[tuple[int, int]]:
    """The spans that may mean a value: what is written like it, then all short ones."""
    text = said.intent.lower()
    parts = [str(item) for item in value] if isinstance(value, list) else [str(value)]
    places = [(text.find(part.lower().strip()), len(part.strip())) for part in parts]
    if places and all(at >= 0 for at, _ in places):
        start = min(at for at, _ in places)
        end = max(at + size for at, size in places)
        inside = [number for number, (a, b) in enumerate(said.spans) if b > start and a < end]
        if inside:
            yield inside[0], inside[-1]
    for first in range(len(said.spans)):
        for last in range(first, min(first + MAX_SPAN, len(said.spans))):
            yield first, last


def main() -> None:
    """Read everything, write one file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", type=Path)
    parser.add_argument("utterances", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    tokenizer = read_tokenizer()
    tools = read_tools(options.servers)
    known: dict[str, Any] = {}
    examples: list[Any] = []
    counts: Counter[str] = Counter()

    @cache
    def pieces(text: str) -> list[Any]:
        return encode_pieces(tokenizer, text)

    with gzip.open(options.utterances, "rt") as lines:
        for line in lines:
            example = json.loads(line)
            tool = tools[example["tool"]]
            leaves = list_leaves(tool)
            if not leaves:
                continue
            if example["tool"] not in known:
                known[example["tool"]] = describe_tool(tool, pieces)
            said = read_said_words(example["text"], example["inputs"] or {}, tokenizer)
            labels: list[Any] = []
            for leaf in leaves:
                try:
                    value = get_at(example["arguments"], leaf.path)
                except (KeyError, IndexError):
                    labels.append(None)
                    counts["not said"] += 1
                    continue
                label = find_label(said, leaf, value)
                counts[label if isinstance(label, str) else label[0]] += 1
                labels.append(label)
            words = len(said.spans)
            inputs = [
                {
                    "name": pieces(" ".join(split_identifier(given.name))),
                    "value": said.pieces[given.first : given.last + 1],
                }
                for given in said.inputs
            ]
            examples.append(
                {
                    "tool": example["tool"],
                    "words": said.pieces[:words],
                    "inputs": inputs,
                    "labels": labels,
                }
            )
    marks = {name: pieces(name)[0] for name in ["|", "=", ";", ".", ",", "!", "?"]}
    marks |= {word: pieces(word) for word in CONNECTORS}
    special = [tokenizer.encode("", 2)[0], tokenizer.encode("", 2)[1], get_mask(tokenizer)]
    options.out.write_text(
        json.dumps(
            {
                "special": special,
                "unknown": tokenizer.vocabulary["[UNK]"],
                "marks": marks,
                "tools": known,
                "examples": examples,
            }
        )
    )
    print(dict(counts), len(examples))


CONNECTORS = (
    *(". ", ", then ", " and ", ", and ", "; ", ", ", ", and then ", " and also ", ". also, "),
    *(". then ", ". after that, ", ", plus ", ". and ", ". finally, ", ". next, ", " then "),
    *(" und ", ". dann ", ", danach ", " et ", ", puis ", " y ", ", luego ", ". también ", " e "),
)


def get_mask(tokenizer: WordPieceTokenizer) -> int:
    """The number of [MASK]."""
    return tokenizer.vocabulary["[MASK]"]


def describe_tool(tool: Tool, pieces: Any) -> dict[str, Any]:
    """A tool's own words and its parameters."""
    return {
        "words": pieces(describe_tool_words(tool)),
        "parameters": [
            {
                "text": pieces(leaf.describe()),
                "options": [pieces(write_option(option)) for option in leaf.options],
            }
            for leaf in list_leaves(tool)
        ],
    }


if __name__ == "__main__":
    main()
