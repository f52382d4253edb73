"""Trains the weights of words from labelled servers and tools, measures them on held-out servers,
and writes them.

python -m training.categories.train --shared ../shared            # measure, on servers not trained on
python -m training.categories.train --shared ../shared --write    # train on everything, write the package's file
"""  # noqa: E501

import argparse
import gzip
import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from portico.catalog import category_assignment
from portico.catalog.categories import TAXONOMY
from portico.catalog.category_assignment import (
    WEIGHTS_FILE,
    ZERO_WEIGHT,
    FloatArray,
    WeightedTexts,
    WordWeights,
    build_vectors,
    classify_tools,
    log_softmax,
    weigh_server_texts,
    weigh_tool_texts,
)
from portico.catalog.snapshot import find_most_common
from portico.search.lexical.tokens import extract_terms, extract_word_terms, extract_words

HERE = Path(__file__).parent
KEYS = [category.key for category in TAXONOMY]
NUMBER = {key: number for number, key in enumerate(KEYS)}

SEED_WEIGHT, NAME_WEIGHT = 10.0, 12.0
"""Where the weight of a word chosen by hand starts, and of a product's name."""
PULL = 0.0007
"""How strongly weights are held where they start: what the examples say little about stays as
chosen."""
STEPS = 150
LEAST_SERVERS = 2
"""A word of one server only would be learnt by heart."""
MAX_BYTES = 150_000


@dataclass(frozen=True)
class Labelled:
    """A server with its tools and what a reader says they are."""

    name: str
    labels: tuple[str, ...]
    introduction: str
    tools: Sequence[tuple[str, str, str]]
    tool_labels: Sequence[tuple[str, ...]]
    worth: float = 1.0
    fleet: bool = False


@dataclass
class Seeds:
    """Words and product names chosen by hand."""

    words: dict[str, list[str]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)


def rows_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines() if line]


def lines_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as lines:
        return [json.loads(line) for line in lines]


def fleet(shared: Path) -> list[Labelled]:
    """The recorded servers; every tool is its server's kind unless a line of tools.tsv says
    otherwise."""
    labels = {name: tuple(kinds.split("|")) for name, kinds in rows_of(HERE / "servers.tsv")}
    exceptions = [(glob, tuple(kinds.split("|"))) for glob, kinds in rows_of(HERE / "tools.tsv")]
    found: list[Labelled] = []
    for record in lines_of(shared / "fleet" / "servers.jsonl.gz"):
        name, hello = record["slug"], record["initialize"]
        tools = [
            (it["name"], it.get("title") or "", it.get("description") or "")
            for it in record["tools"]
        ]
        of_tools = [
            next(
                (kinds for glob, kinds in exceptions if fnmatchcase(f"{name}.{tool}", glob)),
                labels[name],
            )
            for tool, _, _ in tools
        ]
        found.append(
            Labelled(
                name,
                labels[name],
                category_assignment.extract_introduction(hello),
                tools,
                of_tools,
                fleet=True,
            )
        )
    return found


def others(shared: Path) -> list[Labelled]:
    """Public collections, labelled by server, by tool, or by field."""
    found: list[Labelled] = []
    labels = dict(rows_of(HERE / "livemcp.tsv"))
    servers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for tool in lines_of(shared / "retrieval" / "livemcp" / "tools.jsonl.gz"):
        servers[tool["server"]].append(tool)
    for name, members in servers.items():
        if name in labels:
            about = (
                f"{members[0].get('server_title') or ''} "
                f"{members[0].get('server_description') or ''}"
            )
            found.append(_label(name, labels[name], about, members, 1.0))
    labels = dict(rows_of(HERE / "metatool.tsv"))
    found += [
        _label(tool["name"], labels[tool["name"]], "", [tool], 0.5)
        for tool in lines_of(shared / "retrieval" / "metatool" / "tools.jsonl.gz")
        if tool["name"] in labels
    ]
    labels = dict(rows_of(HERE / "sealtools.tsv"))
    fields: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for tool in lines_of(shared / "retrieval" / "sealtools" / "tools.jsonl.gz"):
        fields[tool["server"].split("/")[0]].append(tool)
    for name, members in fields.items():
        if name in labels:
            found.append(_label(name, labels[name], "", members, 0.3))
    return found


def _label(
    name: str, label: str, about: str, members: list[dict[str, Any]], worth: float
) -> Labelled:
    tools = [(tool["name"], "", tool.get("description") or "") for tool in members]
    return Labelled(name, (label,), about, tools, [(label,)] * len(tools), worth)


def seeds(without: Iterable[str] = ()) -> Seeds:
    """The words chosen by hand, less the product names in `without`."""
    barred = {term for name in without for term in extract_terms(name)}
    chosen = Seeds()
    for line in (HERE / "seeds.txt").read_text().splitlines():
        kind, sign, *given = line.split()
        if sign == "=":
            chosen.words[kind] = given
        else:
            chosen.names[kind] = [name for name in given if not barred & set(extract_terms(name))]
    return chosen


def _seed_terms(given: Iterable[str]) -> Counter[str]:
    """A compound gives its whole and, more weakly, its parts."""
    found: Counter[str] = Counter()
    for word in given:
        said = extract_terms(word)
        for term in said if len(said) == 1 else said[-1:]:
            found[term] = 2
        for term in said[:-1] if len(said) > 1 else ():
            found[term] = max(found[term], 1)
    return found


def train(examples: Sequence[Labelled], chosen: Seeds) -> WordWeights:
    """Weights from labelled servers, starting from the words chosen by hand."""
    numbers, rarity = _vocabulary(examples, chosen)
    start = np.zeros((len(numbers), len(KEYS)), dtype=np.float32)
    for kinds, worth in ((chosen.words, SEED_WEIGHT), (chosen.names, NAME_WEIGHT)):
        for kind, given in kinds.items():
            for term, strength in _seed_terms(given).items():
                at = numbers[term], NUMBER[kind]
                start[at] = max(start[at], worth * strength / 2)
    # A word chosen for several categories says less for each.
    start /= np.maximum(1, (start > 0).sum(axis=1, keepdims=True)) ** 0.5
    words = WordWeights(numbers, rarity, start)
    inputs, targets, worths = _examples(words, examples)
    return _descend(words, start, inputs, targets, worths / worths.sum())


def _vocabulary(examples: Sequence[Labelled], chosen: Seeds) -> tuple[dict[str, int], FloatArray]:
    servers: dict[str, set[str]] = defaultdict(set)
    for it in examples:
        texts = [
            _count_terms(weigh_server_texts(it.name, it.introduction)),
            *(_count_terms(weigh_tool_texts(*tool)) for tool in it.tools),
        ]
        # Twins under another name (a reference server and its successor) count as one.
        for term in {term for text in texts for term in text}:
            servers[term].add(it.name.split("-")[0])
    wanted = {
        term
        for kinds in (chosen.words, chosen.names)
        for given in kinds.values()
        for term in _seed_terms(given)
    }
    kept = sorted(
        {term for term, where in servers.items() if len(where) >= LEAST_SERVERS and len(term) > 1}
        | wanted
    )
    total = len({it.name.split("-")[0] for it in examples})
    rarity = [math.log(1 + total / (1 + len(servers[term]))) for term in kept]
    return {term: number for number, term in enumerate(kept)}, np.array(rarity, dtype=np.float32)


def _examples(
    words: WordWeights, examples: Sequence[Labelled]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    inputs: list[FloatArray] = []
    targets: list[FloatArray] = []
    worths: list[float] = []
    for it in examples:
        whole, own = build_vectors(words, it.name, it.introduction, it.tools)
        # A collection of fields has no servers, only tools.
        if it.worth > 0.3:
            inputs.append(whole)
            targets.append(_target(it.labels))
            worths.append(3.0 * it.worth)
        each = (
            it.worth
            * (4.0 if it.worth <= 0.3 else 1.0)
            * len(it.tools) ** 0.5
            / max(1, len(it.tools))
        )
        for (at, worth), labels in zip(own, it.tool_labels, strict=True):
            row = np.zeros(len(words.word_numbers), dtype=np.float32)
            row[at] = worth
            inputs.append(row)
            targets.append(_target(labels))
            worths.append(each)
    return np.stack(inputs), np.stack(targets), np.array(worths, dtype=np.float32)


def _target(labels: tuple[str, ...]) -> FloatArray:
    """The reader's choice, with a little for what would do as well."""
    target = np.zeros(len(KEYS), dtype=np.float32)
    for place, label in enumerate(labels):
        target[NUMBER[label]] = (
            0.2 / (len(labels) - 1) if place else 0.8 if len(labels) > 1 else 1.0
        )
    return target


def _descend(
    words: WordWeights,
    start: FloatArray,
    inputs: FloatArray,
    targets: FloatArray,
    worths: FloatArray,
) -> WordWeights:
    """Adam over all examples at once: small enough, and the same every time."""
    weights = start.copy()
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        errors = (np.exp(log_softmax(inputs @ weights)) - targets) * worths[:, None]
        slope = inputs.T @ errors + PULL * (weights - start)
        mean = 0.9 * mean + 0.1 * slope
        square = 0.99 * square + 0.01 * slope**2
        rate = 0.2 * (1 - step / (STEPS + 1))
        weights -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-6)
    return WordWeights(words.word_numbers, words.rarity, weights)


def held_out(name: str) -> bool:
    """A third of the servers, by their names: never looked at while choosing how to train."""
    return hashlib.blake2b(name.encode(), digest_size=4).digest()[0] % 3 == 0


@dataclass
class Score:
    """Describes how many of how many, strictly and counting what would do as well."""

    first: int = 0
    fine: int = 0
    total: int = 0

    def add(self, said: str, labels: tuple[str, ...]) -> None:
        self.first += said == labels[0]
        self.fine += said in labels
        self.total += 1

    def __str__(self) -> str:
        return (
            f"{self.first / self.total:.1%} ({self.fine / self.total:.1%} with what would "
            f"do as well) of {self.total}"
        )


def measure(
    words: WordWeights,
    tested: Sequence[Labelled],
    read: set[tuple[str, str]],
    tell: Callable[[str], None] = print,
) -> tuple[Score, Score, Score]:
    """Servers, tools that a reader looked at one by one, and all tools."""
    servers, looked_at, every = Score(), Score(), Score()
    for it in tested:
        if not it.tools:
            continue
        kinds = classify_tools(words, it.name, it.introduction, it.tools)
        main = find_most_common(Counter(kinds))
        servers.add(main, it.labels)
        if main not in it.labels:
            tell(f"  {it.name}: {main}, not {'|'.join(it.labels)}")
        for kind, labels, (tool, _, _) in zip(kinds, it.tool_labels, it.tools, strict=True):
            every.add(kind, labels)
            if (it.name, tool) in read:
                looked_at.add(kind, labels)
                if kind not in labels and main in it.labels:
                    tell(f"    {it.name}.{tool}: {kind}, not {'|'.join(labels)}")
    return servers, looked_at, every


def read_sample() -> set[tuple[str, str]]:
    return {
        (address.partition(".")[0], address.partition(".")[2])
        for (address,) in rows_of(HERE / "read.tsv")
    }


def write(words: WordWeights, path: Path) -> None:
    """The weights as one character each, a word a line; the words that say least are left out."""
    strongest = np.abs(words.weights).max(axis=1)
    scale = round(float(np.percentile(strongest, 99.5)) / 45, 6)
    names = list(words.word_numbers)
    lines: list[str] = []
    size = 0
    for at in np.argsort(-strongest * words.rarity, kind="stable").tolist():
        row = [round(float(words.rarity[at]), 2), _pack_weights(words.weights[at], scale)]
        line = f"{_compact(names[at])}:{_compact(row)}"
        size += len(line.encode()) + 2
        if size > MAX_BYTES - 1_000:
            break
        lines.append(line)
    head = _compact({"categories": KEYS, "scale": scale})
    path.write_text(f'{head[:-1]},\n"words":{{\n' + ",\n".join(sorted(lines)) + "\n}}\n")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    asked.add_argument("--shared", type=Path, default=Path("../shared"))
    asked.add_argument("--write", action="store_true")
    asked.add_argument(
        "--names", action="store_true", help="keep the tested servers' names among the seeds"
    )
    asked.add_argument(
        "--folds", type=int, default=0, help="cross-validate over the training servers only"
    )
    options = asked.parse_args()
    servers, more, read = fleet(options.shared), others(options.shared), read_sample()
    if options.write:
        words = train([*servers, *more], seeds())
        path = Path(category_assignment.__file__).with_name(WEIGHTS_FILE)
        write(words, path)
        digest = hashlib.blake2b(path.read_bytes(), digest_size=4).hexdigest()
        print(
            f"{path}: {path.stat().st_size:,} bytes; VERSION in taxonomy.py has to end in {digest}"
        )
        return
    if options.folds:
        known = [it for it in servers if not held_out(it.name)]
        totals: list[list[Score]] = []
        for fold in range(options.folds):
            tested = known[fold :: options.folds]
            totals.append(
                list(
                    measure(_train_without(more, known, tested, names=options.names), tested, read)
                )
            )
        for title, scores in zip(
            ("servers", "tools read", "all tools"), zip(*totals, strict=True), strict=True
        ):
            print(
                title,
                Score(
                    *(sum(getattr(it, at) for it in scores) for at in ("first", "fine", "total"))
                ),
            )
        return
    tested = [it for it in servers if held_out(it.name)]
    words = _train_without(more, servers, tested, names=options.names)
    for title, score in zip(
        ("servers", "tools read", "all tools"), measure(words, tested, read), strict=True
    ):
        print(f"{title}: {score}")


def _train_without(
    more: Sequence[Labelled], known: Sequence[Labelled], tested: Sequence[Labelled], *, names: bool
) -> WordWeights:
    """Without the tested servers, their copies in other collections, and their names among the
    seeds."""
    barred = {term for it in tested for term in extract_terms(it.name)}
    away = {it.name for it in tested}
    kept = [it for it in known if it.name not in away]
    copies = {it.name for it in more if barred & set(extract_terms(it.name))}
    return train(
        [*kept, *(it for it in more if it.name not in copies)], seeds(() if names else barred)
    )


def _count_terms(texts: WeightedTexts) -> Counter[str]:
    """Count the terms of texts, each as often as it counts."""
    return Counter(
        term
        for text, times in texts
        for word in extract_words(text) * times
        for term in extract_word_terms(word)
    )


def _pack_weights(weights: FloatArray, scale: float) -> str:
    """Encode one word's weights as one character per category."""
    lowest, highest = ord("$") - ZERO_WEIGHT, ord("}") - ZERO_WEIGHT
    levels = np.clip(np.rint(weights / scale), lowest, highest).astype(int)
    return "".join(chr(ZERO_WEIGHT + level).replace("\\", "[") for level in levels.tolist())


if __name__ == "__main__":
    main()
