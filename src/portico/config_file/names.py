"""Derives legal server keys from arbitrary names, and finds the nearest known name."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

from portico.config import MAX_SERVER_NAME_LENGTH

TYPO_SIMILARITY = 0.75
"""Similarity from which a key counts as a misspelling of another."""


def to_server_key(name: str) -> str:
    """Return a legal server key for a name; a legal name is unchanged.

    Letters without an ASCII form are replaced by a digest, so that 文件 and 天气 stay two servers.
    """
    if re.fullmatch(f"[A-Za-z0-9_-]{{1,{MAX_SERVER_NAME_LENGTH}}}", name):
        return name
    folded = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    key = re.sub(r"[^A-Za-z0-9_-]+", "_", folded).strip("_-")
    letters = sum(char.isalnum() for char in name)
    if (
        sum(char.isalnum() for char in key) < letters
        or not key
        or len(key) > MAX_SERVER_NAME_LENGTH
    ):
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()
        key = f"{key[: MAX_SERVER_NAME_LENGTH - 7].rstrip('_-') or 'server'}-{digest}"
    return key


def find_nearest(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> tuple[str, ...]:
    """Return up to three known names similar to this one, the most similar first."""
    from rapidfuzz import process  # imported late: only mistakes need it
    from rapidfuzz.distance import OSA

    folded = {candidate: candidate.lower().replace("_", "") for candidate in known}
    found = process.extract(
        name.lower().replace("_", ""),
        folded,
        scorer=OSA.normalized_similarity,
        score_cutoff=cutoff,
        limit=3,
    )
    nearest = [candidate for _, _, candidate in found]
    nearest += [
        candidate
        for candidate in folded
        if len(candidate) > 2 and name.lower().startswith(candidate)
    ]
    return tuple(dict.fromkeys(nearest))[:3]


def find_intended_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that this one misspells, if it is close enough."""
    from rapidfuzz import process  # as above
    from rapidfuzz.distance import OSA

    found = process.extractOne(
        name, list(known), scorer=OSA.normalized_similarity, score_cutoff=TYPO_SIMILARITY
    )
    if found:
        return found[0]
    return None
