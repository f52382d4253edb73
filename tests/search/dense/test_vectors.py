"""Vectors by slot: similarity, and changes of slots."""

import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from portico.search.dense import vectors as module
from portico.search.dense.encoder import VECTOR_WIDTH, quantise
from portico.search.dense.vectors import Vectors

NONE = np.empty(0, dtype=np.uint32)


def rows(count: int, seed: int = 1) -> NDArray[np.int8]:
    """Unit vectors of chance in 8 bits."""
    made = np.random.default_rng(seed).normal(size=(count, VECTOR_WIDTH))
    return quantise((made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32))


def extremes(count: int) -> NDArray[np.int8]:
    """The largest products that 8 bits can make."""
    signs = np.random.default_rng(2).choice([-1, 1], size=(count, VECTOR_WIDTH))
    return (signs * 127).astype(np.int8)


@pytest.mark.parametrize("count", [1, 7, 8_192, 8_193, 20_000])
@pytest.mark.parametrize("make", [rows, extremes])
def test_native_and_plain_products_agree_exactly(
    monkeypatch: pytest.MonkeyPatch, count: int, make: object
):
    if module._load_simsimd() is None:  # pyright: ignore[reportPrivateUsage]
        pytest.skip("there is no simsimd here")
    made = make(count)  # pyright: ignore
    some = list(range(0, count, max(1, count // 40)))
    native = (
        Vectors(made).compute_similarity(made[0]),
        Vectors(made).compute_pairwise_similarity(some),
    )
    monkeypatch.setattr(module, "_load_simsimd", lambda: None)
    plain = (
        Vectors(made).compute_similarity(made[0]),
        Vectors(made).compute_pairwise_similarity(some),
    )
    for one, other in zip(native, plain, strict=True):
        assert one.dtype == other.dtype == np.float32
        assert np.array_equal(one, other)


@pytest.fixture(params=["native", "plain"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(module, "_load_simsimd", lambda: None)


@pytest.mark.usefixtures("either")
class TestNearness:
    def test_likeness_is_the_cosine(self):
        made = rows(50)
        exact = made.astype(float) / np.linalg.norm(made.astype(float), axis=1, keepdims=True)
        assert Vectors(made).compute_similarity(made[3]) == pytest.approx(
            exact @ exact[3], abs=0.02
        )
        assert Vectors(made).compute_similarity(made[3])[3] == pytest.approx(1, abs=0.02)
        assert Vectors(made).compute_similarity(-made[3])[3] == pytest.approx(-1, abs=0.02)

    def test_a_slot_without_a_vector_is_like_nothing(self):
        made = rows(3)
        made[1] = 0
        known = Vectors(made)
        assert known.encoded_slots.tolist() == [True, False, True]
        assert known.compute_similarity(made[0])[1] == 0
        assert known.compute_pairwise_similarity([0, 1])[0, 1] == 0

    def test_among_is_likeness_of_each_two(self):
        known = Vectors(rows(20))
        chosen = [3, 17, 0]
        table = known.compute_pairwise_similarity(chosen)
        assert table.shape == (3, 3)
        assert np.array_equal(table, table.T)
        for line, slot in zip(table, chosen, strict=True):
            assert np.array_equal(line, known.compute_similarity(known.rows[slot])[chosen])

    def test_no_slots_have_no_likeness(self):
        assert Vectors.empty().compute_similarity(rows(1)[0]).shape == (0,)
        assert Vectors.empty().compute_pairwise_similarity([]).shape == (0, 0)
        assert Vectors(rows(2)).compute_pairwise_similarity([]).shape == (0, 0)

    def test_rows_in_a_mapped_file_are_as_good_as_any(self, tmp_path: Path):
        made = rows(30)
        (tmp_path / "rows").write_bytes(b"odd" + made.tobytes())
        with (tmp_path / "rows").open("rb") as file:
            body = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped = Vectors(np.frombuffer(body, dtype=np.int8, offset=3).reshape(-1, VECTOR_WIDTH))
        assert np.array_equal(
            mapped.compute_similarity(made[4]), Vectors(made).compute_similarity(made[4])
        )
        assert np.array_equal(
            mapped.compute_pairwise_similarity([1, 2]),
            Vectors(made).compute_pairwise_similarity([1, 2]),
        )


def test_splicing_nothing_changes_nothing():
    known = Vectors(rows(3))
    assert known.splice(3, NONE, {}) is known


def test_slots_grow_empty_and_are_filled_and_forgotten():
    made = rows(4)
    before = Vectors(made[:2])
    after = before.splice(4, np.array([0], dtype=np.uint32), {3: made[3]})
    assert after.encoded_slots.tolist() == [False, True, False, True]
    assert np.array_equal(after.rows[1], made[1])
    assert np.array_equal(after.rows[3], made[3])
    assert before.encoded_slots.tolist() == [True, True]


def test_a_slot_that_is_emptied_and_taken_again_has_the_new_vector():
    made = rows(2)
    after = Vectors(made[:1]).splice(1, np.array([0], dtype=np.uint32), {0: made[1]})
    assert np.array_equal(after.rows[0], made[1])


_BROKEN = """
import sys
from importlib.abc import MetaPathFinder
class Broken(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "simsimd":
            raise {error}("cannot be loaded here")
sys.meta_path.insert(0, Broken())
import numpy as np
from portico.search import VECTOR_WIDTH
from portico.search.dense.vectors import Vectors
rows = np.eye(3, VECTOR_WIDTH, dtype=np.int8) * 127
print(np.argmax(Vectors(rows).compute_similarity(rows[1])))
"""


@pytest.mark.parametrize("error", ["ImportError", "OSError"])
def test_a_native_library_that_cannot_be_loaded_is_done_without(error: str):
    script = _BROKEN.format(error=error)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.strip() == "1"


def test_importing_search_loads_no_native_library_for_vectors():
    script = "import sys, portico.search; print('simsimd' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.strip() == "False"
