"""Makes the words of `portico.search.lexical/actions.txt`, and measures how certain their absence is.

    python -m training.actions [--data DIR]… [--write]

An action is a word that begins both the names and the descriptions of tools, each on at least three
servers, and that servers which can do it use: of the requests of `queries/` that begin with it, few
are for a tool of a server none of whose tools has the word or one of its concept. The second table
counts the same for concepts: where such requests are almost none, absence alone says that a server
cannot do it (`_CERTAIN_CONCEPTS`).
"""  # noqa: E501

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.chosen_sets import sources
from benchmarks.tool_sets import document, read_tools

from portico.search import SearchDocument
from portico.search.lexical import tokens

_WORDS = Path(tokens.__file__).with_name("actions.txt")
_QUERIES = Path(__file__).with_name("queries")
_MIN_SERVERS = 3
_MIN_REQUESTS = 100
_MAX_ABSENT = 0.25
"""Largest share of requests for a server without the word, one more of each kind assumed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, action="append", metavar="DIR")
    parser.add_argument("--write", action="store_true", help="replace the words that ship")
    options = parser.parse_args()
    files = dict.fromkeys(source.tools for source in sources(options.data))
    documents = [document(tool) for file in files for tool in read_tools(file)]
    counts = count_absent(documents)
    words = [word for word in list_actions(documents) if is_telling(*counts[tokens.stem(word)])]
    print(len(words), "actions:", *words)
    if options.write:
        _WORDS.write_text("\n".join(words) + "\n", encoding="utf-8")
    for concept, (requests, absent) in sorted(counts.items()):
        if concept.startswith(tokens.CONCEPT_PREFIX) and requests >= _MIN_REQUESTS:
            print(f"{concept}: {requests:,} requests, {absent} for a server without it")
    return 0


def list_actions(documents: list[SearchDocument]) -> list[str]:
    """Return the words that begin names and descriptions, in their most common spelling."""
    in_names: defaultdict[str, set[str]] = defaultdict(set)
    in_texts: defaultdict[str, set[str]] = defaultdict(set)
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for it in documents:
        server = set(tokens.extract_word_terms(it.group))
        parts = [part for part in tokens.split_word(it.name).parts if part not in server]
        first = tokens.extract_words(it.description)[:1]
        for part in parts[:1]:
            in_names[part].add(it.group)
        for word in first:
            if word.isascii() and word.isalpha():
                in_texts[tokens.stem(word.casefold())].add(it.group)
                spellings[tokens.stem(word.casefold())][word.casefold()] += 1
    return sorted(
        spellings[stem].most_common(1)[0][0]
        for stem, servers in in_texts.items()
        if min(len(servers), len(in_names[stem])) >= _MIN_SERVERS
    )


def is_telling(requests: int, absent: int) -> bool:
    return (absent + 1) / (requests + 2) <= _MAX_ABSENT


def count_absent(documents: list[SearchDocument]) -> defaultdict[str, tuple[int, int]]:
    """Return by term and concept the requests that begin with it, and those that find it absent."""
    group_by_id = {it.id: it.group for it in documents}
    offered: defaultdict[str, set[str]] = defaultdict(set)
    for it in documents:
        for term in tokens.extract_terms(" ".join((it.name, it.title, it.description, *it.enums))):
            offered[it.group].update((term, *tokens.CONCEPTS.get(term, ())))
    counts: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for query, id_ in read_requests():
        first = next(iter(tokens.extract_terms(query)), "")
        if first and id_ in group_by_id:
            spellings = (first, *tokens.CONCEPTS.get(first, ()))
            is_absent = offered[group_by_id[id_]].isdisjoint(spellings)
            for spelling in spellings:
                requests, absent = counts[spelling]
                counts[spelling] = (requests + 1, absent + is_absent)
    return counts


def read_requests() -> Iterator[tuple[str, str]]:
    for path in sorted(_QUERIES.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield from ((query, row["id"]) for query in row.get("queries", ()))


if __name__ == "__main__":
    raise SystemExit(main())
