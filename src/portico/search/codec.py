"""Serializes an index: a header, then arrays as in memory, so that loading copies nothing.

A dump is a cache of the documents, never the only copy: one written by another recipe, or damaged,
is refused and the caller builds it again.
"""

import json
import sys
import unicodedata
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portico.search.dense import encoder
from portico.search.dense.encoder import VECTOR_WIDTH
from portico.search.dense.vectors import Vectors
from portico.search.document_table import DocumentTable
from portico.search.lexical import bm25f, tokens
from portico.search.lexical.postings import Postings

_MAGIC = b"portico-index-4\n"
_ALIGNMENT = 16
_CHECKSUM = 4
"""Bytes of the checksum. It covers everything after it, including the header."""
_LENGTH = 8
_ARRAY_COLUMNS: Mapping[str, str] = {
    "starts": "<u4",
    "slots": "<u4",
    "strengths": "<u2",
    "fields": "<u2",
    "name_keys": "<u8",
    "id_keys": "<u8",
    "copy_keys": "<u8",
    "vectors": "<i1",
}
_DOCUMENT_COLUMNS = ("ids", "names", "hashes", "groups", "categories", "tags")
_KEY_COLUMNS = ("name_keys", "id_keys", "copy_keys")
_POSTING_COLUMNS = ("starts", "slots", "strengths", "fields")
_TEXT_COLUMNS = (*_DOCUMENT_COLUMNS, "terms")
_DAMAGE_ERRORS = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)
_ADVICE = "Build it again from the documents."


class UnreadableIndex(ValueError):
    """The bytes are not an index of this version; it has to be built again from the documents."""


def dump(table: DocumentTable, postings: Postings, vectors: Vectors) -> bytes:
    postings = postings.without_dead_terms()
    columns: dict[str, Any] = {
        "terms": list(postings.vocabulary),
        "vectors": vectors.rows.ravel(),
        **{name: getattr(table, name) for name in (*_DOCUMENT_COLUMNS, *_KEY_COLUMNS)},
        **{name: getattr(postings, name) for name in _POSTING_COLUMNS},
    }
    parts = [
        _pad(json.dumps(columns[name], separators=(",", ":")).encode()) for name in _TEXT_COLUMNS
    ]
    parts += [
        _pad(columns[name].astype(dtype, copy=False).tobytes())
        for name, dtype in _ARRAY_COLUMNS.items()
    ]
    body = b"".join(parts)
    header = {
        "recipe": _compute_recipe(),
        "sizes": dict(zip((*_TEXT_COLUMNS, *_ARRAY_COLUMNS), map(len, parts), strict=True)),
        "counts": {name: len(columns[name]) for name in _ARRAY_COLUMNS},
    }
    head = json.dumps(header).encode()
    start = len(_MAGIC) + _CHECKSUM
    front = _pad(bytes(start) + len(head).to_bytes(_LENGTH, "little") + head)[start:]
    checksum = zlib.crc32(body, zlib.crc32(front))
    return b"".join((_MAGIC, checksum.to_bytes(_CHECKSUM, "little"), front, body))


def load(blob: bytes | memoryview) -> tuple[DocumentTable, Postings, Vectors]:
    """Return the dumped tables. The arrays are views of `blob`. Raises UnreadableIndex."""
    try:
        header, at = _read_header(blob)
        if header["recipe"] != _compute_recipe():
            raise UnreadableIndex(f"The index was written by another version. {_ADVICE}")
        return _build_tables(_read_columns(blob, header, at))
    except UnreadableIndex:
        raise
    except _DAMAGE_ERRORS as error:
        raise UnreadableIndex(f"Not an index: {error}. {_ADVICE}") from error


def _read_header(blob: bytes | memoryview) -> tuple[dict[str, Any], int]:
    if bytes(blob[: len(_MAGIC)]) != _MAGIC:
        raise UnreadableIndex(f"Not an index of this version. {_ADVICE}")
    checked = len(_MAGIC) + _CHECKSUM
    if zlib.crc32(memoryview(blob)[checked:]) != int.from_bytes(
        bytes(blob[len(_MAGIC) : checked]), "little"
    ):
        raise UnreadableIndex(f"The index is damaged. {_ADVICE}")
    start = checked + _LENGTH
    end = start + int.from_bytes(bytes(blob[checked:start]), "little")
    return json.loads(bytes(blob[start:end])), end + -end % _ALIGNMENT


def _read_columns(blob: bytes | memoryview, header: Mapping[str, Any], at: int) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in (*_TEXT_COLUMNS, *_ARRAY_COLUMNS):
        size = header["sizes"][name]
        if name in _ARRAY_COLUMNS:
            columns[name] = _read_array(blob, _ARRAY_COLUMNS[name], header["counts"][name], at)
        else:
            columns[name] = json.loads(bytes(blob[at : at + size]))
        at += size
    return columns


def _build_tables(columns: dict[str, Any]) -> tuple[DocumentTable, Postings, Vectors]:
    for name in ("groups", "categories"):
        columns[name] = list(map(sys.intern, columns[name]))
    columns["tags"] = [tuple(map(sys.intern, tags)) if tags else () for tags in columns["tags"]]
    table = DocumentTable(*(columns[name] for name in (*_DOCUMENT_COLUMNS, *_KEY_COLUMNS)))
    vocabulary = {term: number for number, term in enumerate(columns["terms"])}
    postings = Postings(vocabulary, *(columns[name] for name in _POSTING_COLUMNS))
    vectors = Vectors(columns["vectors"].reshape(-1, VECTOR_WIDTH))
    starts = postings.starts
    slots = postings.slots
    count = len(table.ids)
    is_consistent = (
        all(len(columns[name]) == count for name in (*_DOCUMENT_COLUMNS, *_KEY_COLUMNS))
        and len(vectors.rows) == count
        and len(starts) == len(vocabulary) + 1 == len(columns["terms"]) + 1
        and len(slots) == len(postings.strengths) == len(postings.fields) == starts[-1]
        and starts[0] == 0
        and bool((starts[1:] >= starts[:-1]).all())
        and (not len(slots) or int(slots.max()) < count)
    )
    if not is_consistent:
        raise UnreadableIndex(f"The parts of the index do not fit together. {_ADVICE}")
    return table, postings, vectors


def _read_array(blob: bytes | memoryview, dtype: str, count: int, at: int) -> NDArray[Any]:
    found = np.frombuffer(blob, dtype=dtype, count=count, offset=at)
    if sys.byteorder == "little":
        return found
    return found.astype(found.dtype.newbyteorder("="))


def _pad(part: bytes) -> bytes:
    return part + b" " * (-len(part) % _ALIGNMENT)


def _compute_recipe() -> str:
    """Identify everything besides the document that its postings depend on."""
    ingredients = (
        bm25f.FIELDS,
        bm25f.SATURATION,
        bm25f.LENGTH_NORMALISATION,
        sorted(tokens.CONCEPTS.items()),
        sorted(tokens.STOP_WORDS),
        (encoder.ENCODER_NAME, encoder.QUANTISATION_PEAK),
    )
    checksum = zlib.crc32(repr(ingredients).encode())
    return f"{tokens.VERSION}/{unicodedata.unidata_version}/{checksum:08x}"
