"""The vectors of a benchmark's tools, kept between runs: encoding some thousands takes most of a
minute.

They lie under the encoder's name and a hash of everything that makes a vector of a text, so that
another model, or another way of reading for it, never meets the vectors of the last one.
"""

import hashlib
import sys
import tempfile
from collections.abc import Iterable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from portico.search import Encoder, SearchDocument, Vector, compose_document_text, compute_text_key
from portico.search.dense.encoder import ENCODER_NAME, VECTOR_WIDTH
from portico.storage.search_files import VectorFile

_BATCH = 512
"""Texts between two saves: what a run that is broken off has lost."""


def default_folder() -> Path:
    """A folder for vectors that may be deleted at any time."""
    return Path(tempfile.gettempdir()) / "portico-benchmark-vectors"


def locate_vectors(folder: Path) -> Path:
    """The file of the vectors that the encoder of today makes."""
    return folder / f"{ENCODER_NAME}-{_recipe()}"


def vectors_of(
    documents: Iterable[SearchDocument], encoder: Encoder, folder: Path
) -> dict[str, Vector]:
    """The vector of each document by id, encoded where none is kept; `EncoderUnavailable` where
    that cannot be."""
    texts = {it.id: compose_document_text(it) for it in documents}
    keys = {id_: compute_text_key(text) for id_, text in texts.items()}
    file = VectorFile(locate_vectors(folder), VECTOR_WIDTH)
    known = file.find(keys.values())
    missing = {keys[id_]: text for id_, text in texts.items() if keys[id_] not in known}
    if missing:
        print(f"encoding {len(missing):,} of {len(texts):,} tools …", file=sys.stderr, flush=True)
    order = list(missing)
    for at in range(0, len(order), _BATCH):
        batch = order[at : at + _BATCH]
        new = dict(zip(batch, encoder.encode_documents(missing[key] for key in batch), strict=True))
        file.add(new)
        known.update(new)
    return {id_: known[key] for id_, key in keys.items()}


def _recipe() -> str:
    digest = hashlib.blake2b(digest_size=6)
    room = files("portico.search.dense")
    for file in (*_sort_files(room), *_sort_files(room / "model")):
        if file.is_file() and not file.name.endswith(".md"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _sort_files(folder: Traversable) -> list[Traversable]:
    return sorted(folder.iterdir(), key=lambda it: it.name)
