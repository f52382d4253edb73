"""Catalogs of any size: real tools first, then copies that are like them and not them."""

import numpy as np
from benchmarks.synthetic import enlarge, vectors_for
from benchmarks.tool_sets import document

from portico.search import Vector
from portico.search.dense.encoder import VECTOR_WIDTH, quantise
from tests.benchmarks.tiny_set import TOOLS

_REAL = [document(tool) for tool in TOOLS]


def real_vectors() -> dict[str, Vector]:
    rows = np.random.default_rng(3).standard_normal((len(_REAL), VECTOR_WIDTH))
    return {it.id: quantise(row / np.linalg.norm(row)) for it, row in zip(_REAL, rows, strict=True)}


def test_the_real_tools_come_first_and_copies_fill_the_rest():
    found = enlarge(_REAL, 20)
    assert found[:3] == _REAL
    assert len(found) == 20
    assert enlarge(_REAL, 2) == _REAL[:2]
    assert enlarge(_REAL, 20) == found


def test_a_copy_lives_on_another_server_under_another_name():
    for at, copy in enumerate(enlarge(_REAL, 9)[3:]):
        source = _REAL[at % 3]
        assert copy.group != source.group
        assert copy.name.startswith(f"{source.name}_")
        assert copy.hash != source.hash


def test_the_vector_of_a_copy_is_near_its_source_s_and_no_twin_of_it():
    documents, real = enlarge(_REAL, 60), real_vectors()
    vectors = vectors_for(documents, real)
    assert list(vectors) == [it.id for it in documents]
    for at, it in enumerate(documents[3:]):
        source, copy = real[_REAL[at % 3].id].astype(float), vectors[it.id].astype(float)
        cosine = source @ copy / np.linalg.norm(source) / np.linalg.norm(copy)
        assert 0.7 < cosine < 0.9
