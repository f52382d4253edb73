"""Utterances with their arguments, as token numbers and labels: one folder's worth for training.

    python -m training.arguments.prepare SERVERS.jsonl.gz UTTERANCES.jsonl.gz OUT.json \
        [--tasks TASKS.jsonl INPUTS.jsonl]… [--questions QUERIES.jsonl]…

A label says where a parameter's value stands: among its options, in the words, or in an input. A
value that stands nowhere word for word is found by converting spans as the planner converts them;
where that fails too, the parameter is left out of training (`skip`).

Tasks are read as utterances of several steps. Utterances, tasks and questions (`{"id":
"server/tool", "queries": […], "other": […]}`) also say which tool is meant, among those that the
search finds for the same words.
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.tool_sets import document
from benchmarks.tool_sets import read_tools as read_set_tools
from benchmarks.vector_cache import default_folder, vectors_of

from portico.catalog.tool import Tool, make_tool
from portico.search import Encoder, Index
from portico.workflows.planning.argument_reader import (
    describe_choice,
    describe_tool_words,
    write_option,
)
from portico.workflows.planning.parameters import Leaf, get_at, list_leaves, split_identifier
from portico.workflows.planning.planner import open_reader
from portico.workflows.planning.said_words import SaidWords, encode_pieces
from portico.workflows.planning.values import NOTHING, convert_input, convert_text
from training.arguments.tasks import TaskStep, read_tasks

MAX_SPAN = 6
"""Words of a span that is converted to see whether it means a value."""


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


class Preparation:
    """Collects examples, and the tools they are of."""

    def __init__(self, tools: dict[str, Tool], servers: Path) -> None:
        self.tools = tools
        self.reader = open_reader()
        self.tokenizer = self.reader.tokenizer
        self.index = build_index(servers)
        self.known: dict[str, Any] = {}
        self.about: dict[str, Any] = {}
        self.examples: list[Any] = []
        self.choices: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.pieces = cache(lambda text: encode_pieces(self.tokenizer, text))

    def add_utterance(self, line: dict[str, Any]) -> None:
        """Add one utterance of one tool."""
        said = self.reader.read_words(line["text"], line["inputs"] or {})
        about = {"servers": [], "task": ""}
        self._add_example(said, line["tool"], line["arguments"], about)
        self._add_choice(said, None, [line["tool"]], about)

    def add_step(self, step: TaskStep) -> None:
        """Add one step of a task."""
        about = {"servers": list(step.servers), "task": step.task}
        place = {"clause": step.clause, "begins": list(step.begins)}
        for name in step.tools:
            # What `any_of` names serves alike; only some of it is written out.
            if name in step.arguments:
                self._add_example(step.said, name, step.arguments[name], {**about, **place})
        self._add_choice(step.said, step.clause, step.tools, {**about, **place})

    def add_question(self, line: dict[str, Any]) -> None:
        """Add what is asked for one tool."""
        if line.get("id") not in self.tools:
            return
        for text in (*line.get("queries", ())[:2], *line.get("other", ())[:1]):
            said = self.reader.read_words(text, {})
            if said.spans:
                self._add_choice(said, None, [line["id"]], {"servers": [], "task": ""})

    def _add_example(
        self, said: SaidWords, name: str, arguments: Mapping[str, Any], about: dict[str, Any]
    ) -> None:
        tool = self.tools[name]
        leaves = list_leaves(tool)
        if not leaves:
            return
        if name not in self.known:
            self.known[name] = describe_tool(tool, self.pieces)
        labels = [find_labels(said, leaf, arguments) for leaf in leaves]
        for label in labels:
            kind = label if isinstance(label, str) else label[0] if label else "not said"
            self.counts[kind] += 1
        self.examples.append({"tool": name, **self._describe(said), "labels": labels, **about})

    def _describe(self, said: SaidWords) -> dict[str, Any]:
        inputs = [
            {
                "name": self.pieces(" ".join(split_identifier(given.name))),
                "value": said.pieces[given.first : given.last + 1],
            }
            for given in said.inputs
        ]
        return {"words": said.pieces[: len(said.spans)], "inputs": inputs}

    def _add_choice(
        self,
        said: SaidWords,
        clause: tuple[int, int] | None,
        right: Sequence[str],
        about: dict[str, Any],
    ) -> None:
        words = said.get_text(*(clause or (0, len(said.spans) - 1)))
        ranking = self.index.search(words, CANDIDATES)
        found = [name for hit in ranking.hits for name in (hit.id, *hit.duplicates)]
        same = {self.tools[name].name for name in right}
        others = [
            name
            for name in found[: 2 * CANDIDATES]
            if name not in right and (about["task"] or self.tools[name].name not in same)
        ]
        for name in (*right, *others):
            if name not in self.about:
                self.about[name] = self.pieces(describe_choice(self.tools[name]))
        self.choices.append({**self._describe(said), "right": right, "others": others, **about})


CANDIDATES = 12
"""Tools that a search finds, among which the one that is meant is to be told."""


def build_index(servers: Path) -> Index:
    """Return the search that ships, over recorded servers; ids are `server/tool`."""
    documents = [document(tool) for tool in read_set_tools(servers)]
    encoder = Encoder()
    vectors = vectors_of(documents, encoder, default_folder())
    return Index.build(documents, encoder=encoder).with_vectors(vectors)


def find_labels(
    said: SaidWords, leaf: Leaf, arguments: Mapping[str, Any]
) -> list[Any] | str | None:
    """Where the value of a parameter stands, the first of those that gold accepts; None where it
    is not said."""
    try:
        value = get_at(arguments, leaf.path)
    except (KeyError, IndexError):
        return "skip" if leaf.path[0] in arguments and len(leaf.path) > 1 else None
    for one in value if isinstance(value, list) and "array" not in leaf.types else [value]:
        label = find_label(said, leaf, one)
        if label != "skip":
            return label
    if isinstance(value, list) and value and isinstance(value[0], list):
        return find_label(said, leaf, value[0])
    return "skip"


def main() -> None:
    """Read everything, write one file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", type=Path)
    parser.add_argument("utterances", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=Path, nargs=2, action="append", default=[])
    parser.add_argument("--questions", type=Path, action="append", default=[])
    options = parser.parse_args()
    tools = read_tools(options.servers)
    made = Preparation(tools, options.servers)
    with gzip.open(options.utterances, "rt") as lines:
        for line in lines:
            made.add_utterance(json.loads(line))
    for tasks, inputs in options.tasks:
        for step in read_tasks(tasks, inputs, tools, made.reader):
            made.add_step(step)
    for path in options.questions:
        for line in path.read_text().splitlines():
            made.add_question(json.loads(line))
    marks: dict[str, Any] = {name: made.pieces(name)[0] for name in "|=;.,!?"}
    marks |= {word: made.pieces(word) for word in CONNECTORS}
    vocabulary = made.tokenizer.vocabulary
    options.out.write_text(
        json.dumps(
            {
                "special": [vocabulary["[CLS]"], vocabulary["[SEP]"], vocabulary["[MASK]"]],
                "unknown": vocabulary["[UNK]"],
                "marks": marks,
                "tools": made.known,
                "about": made.about,
                "examples": made.examples,
                "choices": made.choices,
            }
        )
    )
    print(dict(made.counts), len(made.examples), len(made.choices))


CONNECTORS = (
    *(". ", ", then ", " and ", ", and ", "; ", ", ", ", and then ", " and also ", ". also, "),
    *(". then ", ". after that, ", ", plus ", ". and ", ". finally, ", ". next, ", " then "),
    *(" und ", ". dann ", ", danach ", " et ", ", puis ", " y ", ", luego ", ". también ", " e "),
)


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
