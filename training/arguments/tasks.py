"""Tasks with gold calls as training material: which words are for which step, and their values.

A task of several steps is used only where it can be told which words are for which step: the
network that ships says where steps may begin, values and meaning say whether that is so.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portico.catalog.tool import Tool
from portico.search import Encoder
from portico.workflows.planning.argument_reader import ArgumentReader, describe_choice
from portico.workflows.planning.name_matching import compute_cosine
from portico.workflows.planning.said_words import SaidWords

LEAST_BEGINNING = 0.02
MAX_BEGINNINGS = 14


@dataclass(frozen=True)
class TaskStep:
    """One step of a task: the words that are for it, and the tools that do it."""

    said: SaidWords
    clause: tuple[int, int]
    begins: Sequence[int]
    """Where steps of the task begin, but for the first."""
    tools: Sequence[str]
    arguments: Mapping[str, Mapping[str, Any]]
    servers: Sequence[str]
    """All that the task is about."""
    task: str


def read_tasks(
    path: Path, inputs_path: Path, tools: Mapping[str, Tool], reader: ArgumentReader
) -> Iterator[TaskStep]:
    """Yield the steps of all tasks, from words alone and from intent and inputs; a task that
    nothing serves is one without tools."""
    encoder = Encoder()
    inputs = {line["id"]: line for line in map(json.loads, inputs_path.read_text().splitlines())}
    for line in map(json.loads, path.read_text().splitlines()):
        steps = line["gold"]
        servers = sorted({tool.split("/")[0] for step in steps for tool in step["any_of"]})
        given = inputs.get(line["id"])
        forms = [(line["task"], {})]
        if given:
            forms.append((given["intent"], given["inputs"]))
        for text, values in forms:
            said = reader.read_words(text, values)
            if not said.spans:
                continue
            begins = find_step_beginnings(said, steps, tools, reader, encoder)
            if begins is None:
                continue
            ends = [*(begin - 1 for begin in begins[1:]), len(said.spans) - 1]
            for step, first, last in zip(steps or [{}], begins, ends, strict=True):
                names = [name for name in step.get("any_of", ()) if name in tools]
                yield TaskStep(
                    said,
                    (first, last),
                    begins[1:],
                    names,
                    step.get("args", {}),
                    servers,
                    line["id"],
                )


def find_step_beginnings(
    said: SaidWords,
    steps: Sequence[Mapping[str, Any]],
    tools: Mapping[str, Tool],
    reader: ArgumentReader,
    encoder: Encoder,
) -> list[int] | None:
    """Return the word at which each step begins, the first at 0; None where that is not sure."""
    if len(steps) < 2:
        return [0]
    likely = reader.find_beginnings(said)
    places = [at for at, share in enumerate(likely) if at and share > LEAST_BEGINNING]
    places = sorted(sorted(places, key=lambda at: -likely[at])[:MAX_BEGINNINGS])
    values = [list(iter_texts(step["args"])) for step in steps]
    described = [describe_choice(tools[step["any_of"][0]]) for step in steps]
    best: tuple[float, list[int]] | None = None
    for chosen in itertools.islice(itertools.combinations(places, len(steps) - 1), 2_000):
        begins = [0, *chosen]
        ends = [*(begin - 1 for begin in chosen), len(said.spans) - 1]
        parts = [said.get_text(a, b) for a, b in zip(begins, ends, strict=True)]
        score = sum(likely[at] for at in chosen)
        for number, part in enumerate(parts):
            score += sum(text in part.lower() for text in values[number])
        if best is None or score > best[0]:
            best = (score, begins)
    if best is None:
        return None
    begins = best[1]
    ends = [*(begin - 1 for begin in begins[1:]), len(said.spans) - 1]
    parts = [said.get_text(a, b) for a, b in zip(begins, ends, strict=True)]
    near = [
        [
            compute_cosine(encoder.encode_query(part), encoder.encode_query(text)) or 0.0
            for text in described
        ]
        for part in parts
    ]
    is_one_kind = len({tuple(step["any_of"]) for step in steps}) < len(steps)
    fits = all(row[at] >= max(row) - 0.05 for at, row in enumerate(near))
    return begins if fits or is_one_kind else None


def iter_texts(value: Any) -> Iterator[str]:
    """Yield the scalars within a value, as they may be said."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from iter_texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from iter_texts(part)
    elif not isinstance(value, bool):
        yield str(value).lower()
