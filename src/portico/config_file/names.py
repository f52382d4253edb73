"""Names: legal server keys for whatever clients call their servers, and the nearest key to a wrong
one."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

from portico.config import MAX_SERVER_NAME_LENGTH

TYPO_SIMILARITY = 0.75
"""Similarity from which a key is a misspelling of another and not a word of its own."""


def to_server_key(name: str) -> str:
    """A legal server key for a name; a legal name stays as it is.

    Letters that ASCII has no place for leave a digest behind, so that 文件 and 天气 stay two servers.
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
    """Up to three known names like this one, the most similar first."""
    from rapidfuzz import process  # only a mistake needs it, and start-up is measured
    from rapidfuzz.distance import OSA

    folded = {candidate: candidate.lower().replace("_", "") for candidate in known}
    found = process.extract(
        name.lower().replace("_", ""),
        folded,
        scorer=OSA.normalized_similarity,
        score_cutoff=cutoff,
        limit=3,
    )
    near = [candidate for _, _, candidate in found]
    near += [
        candidate
        for candidate in folded
        if len(candidate) > 2 and name.lower().startswith(candidate)
    ]
    return tuple(dict.fromkeys(near))[:3]


def find_intended_name(name: str, known: Iterable[str]) -> str | None:
    """The known name this one was meant to be, if it is that close."""
    from rapidfuzz import process  # as above
    from rapidfuzz.distance import OSA

    found = process.extractOne(
        name, list(known), scorer=OSA.normalized_similarity, score_cutoff=TYPO_SIMILARITY
    )
    if found:
        return found[0]
    return None
