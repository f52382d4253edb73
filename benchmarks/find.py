"""Measures whether `portico find` finds the right server of a registry, beside words alone.

    python -m benchmarks.find [--development] [--misses]

The catalogue (`questions/registry_catalogue.jsonl.gz`) has 1,496 real servers: names, versions and
descriptions of packages of npm and PyPI that say they are MCP servers, cut at the 100 characters
that a registry allows; names in the form of a registry were made from the packages' names where the
package names none itself. Every package recorded in the fleet that is still published is in it.

The questions (`questions/registry.jsonl`) are in people's words, written from the names and
descriptions of 190 servers drawn at random, before search over the catalogue existed. `gold` has
the drawn server first, then others that would do. 20 are for development.

A server counts as found when it, or one that shares its place as an equal, is among the first k. In
brackets: the interval that holds 95% of bootstrap resamples of the questions.
"""

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from portico.registry.server_catalogue import ServerCatalogue, now_utc
from portico.search import Encoder, get_shipped_encoder

FOLDER = Path(__file__).parent / "questions"
CATALOGUE = FOLDER / "registry_catalogue.jsonl.gz"
QUESTIONS = FOLDER / "registry.jsonl"
MIN_FOUND = 0.85
_DEPTHS = (1, 5, 10)
_OURS = "portico find"
_WORDS = "words alone"


def load_catalogue() -> list[dict[str, object]]:
    """Return the servers of the catalogue."""
    with gzip.open(CATALOGUE, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def load_questions(which: str) -> list[dict[str, object]]:
    """Return the questions of one part."""
    lines = QUESTIONS.read_text("utf-8").splitlines()
    return [one for line in lines if (one := json.loads(line))["set"] == which]


def rank_gold(
    catalogue: ServerCatalogue, questions: Sequence[dict[str, object]], encoder: Encoder | None
) -> list[int]:
    """Return the place of the first right server for each question; 0: not among ten."""
    ranks: list[int] = []
    for one in questions:
        gold = set(one["gold"])  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]
        hits = catalogue.search(str(one["question"]), max(_DEPTHS), encoder).ranking.hits
        places = (place for place, hit in enumerate(hits, 1) if gold & {hit.id, *hit.duplicates})
        ranks.append(next(places, 0))
    return ranks


def estimate(found: Sequence[bool]) -> tuple[float, float, float]:
    """Return the share that was found, and its interval."""
    marks = np.array(found, dtype=float)
    random = np.random.default_rng(1)
    resampled = random.choice(marks, (2_000, len(marks))).mean(axis=1)
    low, high = np.percentile(resampled, (2.5, 97.5))
    return float(marks.mean()), float(low), float(high)


def main() -> int:
    """Print the table; exit code 1 if the goal is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--development", action="store_true", help="the other 20 questions")
    parser.add_argument("--misses", action="store_true", help="what was not among the first five")
    options = parser.parse_args()
    questions = load_questions("development" if options.development else "held_back")
    with tempfile.TemporaryDirectory() as folder:
        catalogue = ServerCatalogue(Path(folder))
        count = catalogue.replace("recorded", load_catalogue(), now_utc())  # type: ignore[arg-type]
        catalogue.build_index(get_shipped_encoder())
        print(f"{len(questions)} questions, {count:,} servers\n")
        print(f"| search | {' | '.join(f'R@{depth}' for depth in _DEPTHS)} |")
        print("|---|" + "---|" * len(_DEPTHS))
        reached = 0.0
        for title, encoder in ((_OURS, get_shipped_encoder()), (_WORDS, None)):
            ranks = rank_gold(catalogue, questions, encoder)
            cells: list[str] = []
            for depth in _DEPTHS:
                share, low, high = estimate([0 < rank <= depth for rank in ranks])
                cells.append(f"{share:.0%} [{low:.0%}, {high:.0%}]")
                if title == _OURS and depth == 5:
                    reached = share
            print(f"| {title} | {' | '.join(cells)} |")
            if options.misses and title == _OURS:
                misses = [
                    (rank, one)
                    for rank, one in zip(ranks, questions, strict=True)
                    if not 0 < rank <= 5
                ]
                for rank, one in misses:
                    print(f"  {rank or '–'}: {one['question']}", file=sys.stderr)
    return 0 if options.development or reached >= MIN_FOUND else 1


if __name__ == "__main__":
    sys.exit(main())
