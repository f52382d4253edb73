"""The exported graph computes what the weights say, rounded as it was trained to be."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("onnx", reason="building the graph needs onnx (the `training` extra)")
onnxruntime = pytest.importorskip("onnxruntime", reason="running the graph needs onnxruntime")

from training.export import EMBEDDING_LEVELS, HEADS, MATRIX_LEVELS, build, quantise  # noqa: E402

Floats = NDArray[np.float32]

WIDTH, INNER, LAYERS, PIECES, PLACES = 24, 48, 2, 40, 16
IDS = np.array([[3, 17, 5, 39, 0, 8]], dtype=np.int64)


@pytest.fixture(scope="module")
def weights() -> dict[str, Floats]:
    chance = np.random.default_rng(4)
    shapes = {
        "tokens": (PIECES, WIDTH),
        "places": (PLACES, WIDTH),
        "norm.weight": (WIDTH,),
        "norm.bias": (WIDTH,),
    }
    for layer in range(LAYERS):
        sizes = dict.fromkeys("qkvo", (WIDTH, WIDTH)) | {
            "up": (INNER, WIDTH),
            "down": (WIDTH, INNER),
        }
        for part, size in sizes.items():
            shapes[f"layers.{layer}.{part}.weight"], shapes[f"layers.{layer}.{part}.bias"] = (
                size,
                size[:1],
            )
        for part in ("norm1", "norm2"):
            shapes[f"layers.{layer}.{part}.weight"] = shapes[f"layers.{layer}.{part}.bias"] = (
                WIDTH,
            )
    return {name: chance.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def session(weights: dict[str, Floats]) -> Any:
    return onnxruntime.InferenceSession(
        build(weights).SerializeToString(), providers=["CPUExecutionProvider"]
    )


def test_the_graph_gives_the_vectors_of_its_weights(
    weights: dict[str, Floats], session: Any
) -> None:
    [found] = session.run(["vectors"], {"ids": IDS})
    assert found.shape == (1, WIDTH)
    np.testing.assert_allclose(found[0], _compute_expected(weights, IDS[0]), atol=1e-3)


@pytest.mark.parametrize("length", [1, 2, PLACES])
def test_vectors_have_length_one_whatever_the_text(session: Any, length: int) -> None:
    [found] = session.run(["vectors"], {"ids": np.full((1, length), 7, dtype=np.int64)})
    assert math.isclose(float(np.linalg.norm(found)), 1, abs_tol=1e-5)


def test_matrices_leave_room_for_two_products_in_16_bits() -> None:
    assert 2 * 255 * MATRIX_LEVELS <= np.iinfo(np.int16).max < 2 * 255 * EMBEDDING_LEVELS


def test_values_times_scale_is_the_matrix_again() -> None:
    matrix = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32)
    matrix[2] = 0
    values, scales = quantise(matrix, axis=0, levels=63)
    assert np.abs(values).max() == 63
    assert np.abs(values * scales[:, None] - matrix).max() <= scales.max() / 2 + 1e-6


def _compute_expected(weights: dict[str, Floats], ids: NDArray[np.int64]) -> Floats:
    """The same in numpy, with matrices and activations rounded as `training.model` rounds them."""
    stream = _norm(
        _rounded_rows(weights["tokens"], EMBEDDING_LEVELS)[ids] + weights["places"][: len(ids)],
        weights,
        "norm",
    )
    for number in range(LAYERS):
        layer = f"layers.{number}"
        q, k, v = (
            _product(stream, weights, f"{layer}.{part}").reshape(len(ids), HEADS, -1)
            for part in "qkv"
        )
        likeness = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(WIDTH // HEADS)
        shares = np.exp(likeness - likeness.max(-1, keepdims=True))
        mixed = np.einsum("hij,jhd->ihd", shares / shares.sum(-1, keepdims=True), v).reshape(
            len(ids), WIDTH
        )
        stream = _norm(_product(mixed, weights, f"{layer}.o") + stream, weights, f"{layer}.norm1")
        raised = _gelu(_product(stream, weights, f"{layer}.up"))
        stream = _norm(
            _product(raised, weights, f"{layer}.down") + stream, weights, f"{layer}.norm2"
        )
    mean = stream.mean(0)
    return mean / np.linalg.norm(mean)


def _product(stream: Floats, weights: dict[str, Floats], name: str) -> Floats:
    low, high = min(float(stream.min()), 0), max(float(stream.max()), 0)
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    rounded = (np.clip(np.rint(stream / scale) + zero, 0, 255) - zero) * scale
    return (
        rounded @ _rounded_rows(weights[f"{name}.weight"], MATRIX_LEVELS).T
        + weights[f"{name}.bias"]
    )


def _rounded_rows(matrix: Floats, levels: int) -> Floats:
    scale = np.abs(matrix).max(1, keepdims=True) / levels
    return np.rint(matrix / scale) * scale


def _norm(stream: Floats, weights: dict[str, Floats], name: str) -> Floats:
    centred = stream - stream.mean(-1, keepdims=True)
    return (
        centred / np.sqrt((centred**2).mean(-1, keepdims=True)) * weights[f"{name}.weight"]
        + weights[f"{name}.bias"]
    )


def _gelu(value: Floats) -> Floats:
    return value * np.vectorize(lambda one: 0.5 * (1 + math.erf(one / math.sqrt(2))))(value)
