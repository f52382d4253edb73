"""A catalog of any size that still looks real: recorded tools, then varied copies of them on other
servers.

In a copy, every third word of the description and one word of the name are exchanged for words of
other tools, so that the vocabulary and its skew stay real. Its vector is its source's with noise,
renormalised and put in 8 bits again: encoding 100,000 texts would take a quarter of an hour and
change no time that is measured.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any

import numpy as np

from portico.search import SearchDocument, Vector, compute_fingerprint
from portico.search.dense.encoder import quantise

_LIKENESS = 0.8
"""The cosine of a copy and its source: near enough to be of its kind, too far to be its twin."""
_BLOCK = 4_096


def enlarge(real: Sequence[SearchDocument], size: int) -> list[SearchDocument]:
    """The first `size` of the real documents and, beyond them, of their varied copies."""
    found = list(real[:size])
    chance = random.Random(7)
    pool = [word for it in real for word in it.description.split()[:40]] or ["tool"]
    while len(found) < size:
        source = real[len(found) % len(real)]
        copy = len(found) // len(real)
        found.append(vary_document(source, f"{source.group}-{copy}", chance, pool))
    return found


def vary_document(
    source: SearchDocument, server: str, chance: random.Random, pool: Sequence[str]
) -> SearchDocument:
    """A tool like `source` on another server, saying it in other words."""
    name, description = _in_other_words(source.name, source.description, chance, pool)
    return replace(
        source,
        id=f"{server}/{name}",
        hash=compute_fingerprint(server, name, description),
        group=server,
        server=server,
        name=name,
        description=description,
    )


def enlarged_fleet(real: Sequence[Mapping[str, Any]], size: int) -> Iterator[Mapping[str, Any]]:
    """The recorded servers, then copies of them with varied tools, until there are `size` tools in
    all."""
    chance = random.Random(7)
    pool = [
        word
        for server in real
        for tool in server["tools"]
        for word in _get_words(tool).split()[:40]
    ]
    left = size
    for copy, server in chain.from_iterable(
        ((number, server) for server in real) for number in count()
    ):
        tools = server["tools"][:left]
        if copy:
            tools = [_varied_definition(tool, chance, pool) for tool in tools]
        yield {
            **server,
            "slug": f"{server['slug']}-{copy}" if copy else server["slug"],
            "tools": tools,
        }
        left -= len(tools)
        if not left:
            return


def _varied_definition(
    source: Mapping[str, Any], chance: random.Random, pool: Sequence[str]
) -> Mapping[str, Any]:
    name, description = _in_other_words(source["name"], _get_words(source), chance, pool)
    return {**source, "name": name, "description": description}


def _get_words(tool: Mapping[str, Any]) -> str:
    return tool.get("description") or ""


def _in_other_words(
    name: str, description: str, chance: random.Random, pool: Sequence[str]
) -> tuple[str, str]:
    words = [
        chance.choice(pool) if place % 3 == 2 else word
        for place, word in enumerate(description.split())
    ]
    return f"{name}_{chance.choice(pool).strip('.,:()`').lower()}", " ".join(words)


def vectors_for(
    documents: Sequence[SearchDocument], real: Mapping[str, Vector]
) -> dict[str, Vector]:
    """Vectors for what `enlarged` made of the documents of `real`, which holds one of each in their
    order."""
    sources = np.array(list(real.values()))
    chance = np.random.default_rng(7)
    found = {it.id: real[it.id] for it in documents[: len(sources)]}
    for at in range(len(sources), len(documents), _BLOCK):
        block = documents[at : at + _BLOCK]
        rows = _noisy(sources[np.arange(at, at + len(block)) % len(sources)], chance)
        found.update(zip((it.id for it in block), rows, strict=True))
    return found


def noisy_copies(keys: Sequence[str], real: Sequence[Vector]) -> Iterator[Mapping[str, Vector]]:
    """Vectors for copies of real tools, by key, a block at a time: the real ones first, then with
    noise, in turn."""
    sources = np.array(real)
    chance = np.random.default_rng(7)
    yield dict(zip(keys, sources, strict=False))
    for at in range(len(sources), len(keys), _BLOCK):
        block = keys[at : at + _BLOCK]
        yield dict(
            zip(
                block,
                _noisy(sources[np.arange(at, at + len(block)) % len(sources)], chance),
                strict=True,
            )
        )


def _noisy(rows: np.ndarray, chance: np.random.Generator) -> Iterator[Vector]:
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    noise = chance.standard_normal(rows.shape)
    # Random directions of a high dimension are all but at right angles, so lengths alone decide the
    # cosine.
    noise *= np.sqrt(1 / _LIKENESS**2 - 1) / np.linalg.norm(noise, axis=1, keepdims=True)
    mixed = units + noise
    return iter(quantise((mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32)))
