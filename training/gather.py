"""Gather English and translated software text from permissively licensed repositories.

    python -m training.gather OUT --repositories DIR [--only OWNER/NAME …]
    python -m training.gather --list

`DIR` holds bare git directories named `owner+name` or `owner+name.git` (or folders that contain
one); `--list` prints
the repositories and the commits they must hold. The pairs are cleaned, deduplicated, thinned to
what each language needs, and written to `OUT/pairs.tsv.gz`, tab-separated: language, English,
translation, repository. `OUT/SOURCES.md` says what came from where.
"""

import argparse
import gzip
import hashlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from training.cleaning import acceptable, clean
from training.languages import LANGUAGES, language
from training.readers import UNREADABLE, Pair
from training.snapshot import Snapshot, git_directory, holds
from training.sources import Source, read_sources

CAP = 60_000
"""Most pairs of one source in one language."""
SMALLEST = 2_000
"""Fewest pairs of a language outside `LANGUAGES` that is kept at all."""

Pool = Mapping[str, Mapping[Source, list[Pair]]]
"""Pairs by language and source."""


def raw_pairs(source: Source, snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
    """Language, English and translation as the files have them."""
    files = re.compile(source.files)
    for path in snapshot.paths:
        match = files.fullmatch(path)
        code = language(match["lang"]) if match else None
        translated = snapshot.text(path) if code else None
        if match is None or code is None or translated is None:
            continue
        english = snapshot.text(match.expand(source.english), keep=True) if source.english else None
        try:
            for original, translation in source.reader(translated, english):
                yield code, original, translation
        except UNREADABLE as error:
            say(f"  {source.repository}:{path}: {type(error).__name__} {str(error)[:80]}")


def collect(source: Source, snapshot: Snapshot, seen: set[bytes]) -> dict[str, list[Pair]]:
    """Cleaned pairs of one source by language, without those in `seen`."""
    found: defaultdict[str, list[Pair]] = defaultdict(list)
    for code, original, translation in raw_pairs(source, snapshot):
        english, here = clean(original), clean(translation)
        if acceptable(code, english, here):
            mark = order((code, english.casefold() + "\t" + here.casefold()))
            if mark not in seen:
                seen.add(mark)
                found[code].append((english, here))
    return found


def order(pair: Pair) -> bytes:
    """A stable arbitrary order, by which a large source is thinned."""
    return hashlib.blake2b("\t".join(pair).encode(), digest_size=8).digest()


def level(sizes: Mapping[Source, int], limit: int) -> float:
    """Most pairs per unit of weight a source may give so that all together give at most `limit`."""
    rest = sorted(sizes, key=lambda source: sizes[source] / source.weight)
    weight = sum(source.weight for source in rest)
    for source in rest:
        if sizes[source] / source.weight * weight > limit:
            return limit / weight
        limit -= sizes[source]
        weight -= source.weight
    return float("inf")


def thin_pool(
    pool: Pool, per_language: int, per_other: int
) -> Iterator[tuple[str, Source, list[Pair]]]:
    """Return what is kept of the pool, language by language: of each source as much as its weight
    allows."""
    for code, by_source in sorted(pool.items()):
        if code not in LANGUAGES and sum(map(len, by_source.values())) < SMALLEST:
            continue
        limit = per_language if code in LANGUAGES else per_other
        share = level({source: len(pairs) for source, pairs in by_source.items()}, limit)
        for source, pairs in by_source.items():
            most = int(min(CAP, share * source.weight))
            yield code, source, pairs if len(pairs) <= most else sorted(pairs, key=order)[:most]


def gather_pairs(repositories: Path, sources: Iterable[Source]) -> tuple[Pool, list[Source]]:
    """All pairs, and the sources that were there to be read."""
    seen: set[bytes] = set()
    pool: defaultdict[str, dict[Source, list[Pair]]] = defaultdict(dict)
    read: list[Source] = []
    for source in sources:
        directory = git_directory(repositories, source.repository)
        if directory is None or not holds(directory, source.commit):
            say(
                f"{source.repository}: left out, {repositories} has no commit {source.commit} of it"
            )
            continue
        with Snapshot(directory, source.commit) as snapshot:
            found = collect(source, snapshot, seen)
        for code, pairs in found.items():
            pool[code][source] = pairs
        read.append(source)
        say(f"{source.repository}: {sum(map(len, found.values())):,} in {len(found)} languages")
    return pool, read


def write(kept: Iterable[tuple[str, Source, list[Pair]]], read: list[Source], out: Path) -> None:
    """`pairs.tsv.gz` and `SOURCES.md`."""
    of_source: Counter[Source] = Counter()
    of_language: Counter[str] = Counter()
    # A file that is there is whole.
    part = out / "pairs.tsv.gz.part"
    with gzip.open(part, "wt", encoding="utf-8", compresslevel=6) as target:
        for code, source, pairs in kept:
            target.writelines(
                f"{code}\t{english}\t{here}\t{source.repository}\n" for english, here in pairs
            )
            of_source[source] += len(pairs)
            of_language[code] += len(pairs)
    part.replace(out / "pairs.tsv.gz")
    report = report_of({source: of_source[source] for source in read}, of_language)
    (out / "SOURCES.md").write_text(report, encoding="utf-8")


def report_of(of_source: Mapping[Source, int], of_language: Counter[str]) -> str:
    """One row per source, and the pairs per language."""
    lines = [
        "# Sources of the translated text",
        "",
        "Licence: as the repository's LICENSE file says at that commit. Pairs: after "
        "cleaning and deduplication.",
        "",
        "| repository | licence | files | format | commit | pairs |",
        "| --- | --- | --- | --- | --- | ---: |",
    ]
    for source, count in of_source.items():
        files = source.files.replace("|", "\\|")
        lines.append(
            f"| {source.repository} | {source.licence} | `{files}` | {source.format} | "
            f"{source.commit} | {count} |"
        )
    lines += [
        "",
        f"Total: {sum(of_source.values())} pairs.",
        "",
        "| language | pairs |",
        "| --- | ---: |",
    ]
    lines += [f"| {code} | {count} |" for code, count in of_language.most_common()]
    return "\n".join(lines) + "\n"


def say(line: str) -> None:
    print(line, file=sys.stderr)


def main() -> None:
    """Gather, thin, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", help="folder to write into")
    parser.add_argument("--repositories", type=Path, help="folder of git directories")
    parser.add_argument(
        "--list", action="store_true", help="print repositories and commits, and stop"
    )
    parser.add_argument(
        "--only", nargs="+", help="gather from these repositories (owner/name) only"
    )
    parser.add_argument(
        "--per-language", type=int, default=62_000, help="most pairs of a wanted language"
    )
    parser.add_argument(
        "--per-other", type=int, default=8_000, help="most pairs of any other language"
    )
    options = parser.parse_args()
    sources = [
        source for source in read_sources() if not options.only or source.repository in options.only
    ]
    if options.list:
        print(*sorted({f"{source.repository} {source.commit}" for source in sources}), sep="\n")
        return
    if options.out is None or options.repositories is None:
        parser.error(
            "say where to write (OUT) and where the repositories are (--repositories "
            "DIR), or --list"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    pool, read = gather_pairs(options.repositories, sources)
    write(thin_pool(pool, options.per_language, options.per_other), read, options.out)


if __name__ == "__main__":
    main()
