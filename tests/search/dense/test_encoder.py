"""Shipped encoder: similar texts are near, results are stable, and words work without it."""

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from portico.search import Encoder, EncoderUnavailable, Index, Vector
from portico.search.dense import encoder as module
from portico.search.dense.encoder import (
    QUANTISATION_PEAK,
    VECTOR_WIDTH,
    get_shipped_encoder,
    quantise,
)
from tests.search.catalog import CATALOG

ODD = (
    "",
    " ",
    "x" * 10_000,
    "word " * 2_000,
    "天" * 10_000,
    bytes(range(256)).decode("latin-1"),
    "\x00\x1b[2J",
    "\ud800 half",
    "😀👩‍👩‍👧",
    '"a" AND (b OR c) -d *',
)


def nearness(one: Vector, other: Vector) -> float:
    a, b = one.astype(float), other.astype(float)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("text", ["send an e-mail", "根据城市名称查询天气", "the"])
def test_a_vector_has_unit_length_within_8_bits(text: str):
    for vector in (
        get_shipped_encoder().encode_query(text),
        get_shipped_encoder().encode_document(text),
    ):
        assert vector.dtype == np.int8
        assert vector.shape == (VECTOR_WIDTH,)
        assert np.linalg.norm(vector.astype(float)) * QUANTISATION_PEAK / 127 == pytest.approx(
            1, abs=0.03
        )


def test_hardly_any_part_of_a_vector_is_too_large_for_8_bits():
    """`PEAK` fits these weights: where parts were cut off, nearness would be wrong."""
    cut = [
        np.count_nonzero(
            np.abs(get_shipped_encoder().encode_document(it.description).astype(int)) == 127
        )
        for it in CATALOG
    ]
    assert sum(cut) <= len(CATALOG)


def test_8_bits_keep_how_near_two_vectors_are():
    chance = np.random.default_rng(3)
    made = chance.normal(size=(2, VECTOR_WIDTH)).astype(np.float32)
    made[1] += made[0]
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    assert nearness(*(quantise(row) for row in made)) == pytest.approx(
        float(made[0] @ made[1]), abs=0.01
    )


def test_the_same_text_is_the_same_vector_whatever_ran_before():
    text = "List the open issues of a repository."
    first = Encoder().encode_document(text)
    encoder = Encoder()
    for odd in ODD:
        encoder.encode_document(odd)
    assert np.array_equal(encoder.encode_document(text), first)
    many = list(encoder.encode_documents([*ODD, text, "short", text], threads=3))
    assert len(many) == len(ODD) + 3
    assert np.array_equal(many[len(ODD)], first)
    assert np.array_equal(many[-1], first)


def test_many_threads_may_ask_a_new_encoder_at_once():
    encoder = Encoder()
    texts = [f"tool number {number}" for number in range(8)]
    found: dict[str, Vector] = {}
    start = threading.Barrier(len(texts))

    def ask(text: str) -> None:
        start.wait(30)
        found[text] = encoder.encode_query(text)

    threads = [threading.Thread(target=ask, args=[text]) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(
        np.array_equal(found[text], get_shipped_encoder().encode_query(text)) for text in texts
    )


def test_closing_a_row_of_documents_leaves_no_thread():
    coming = Encoder().encode_documents((f"document {number}" for number in range(500)), threads=2)
    next(coming)
    assert [thread for thread in threading.enumerate() if thread.name.startswith("encode")]
    coming.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("encode")]


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (
            "send an email to a customer",
            "enviar un correo electrónico a un cliente",
            "get the weather of a city",
        ),
        (
            "what is the weather in Paris",
            "¿qué tiempo hace en París?",
            "delete a row of a database",
        ),
        ("delete a file", "eliminar un archivo", "translate a sentence"),
        ("delete a file", "remove a document from disk", "translate a sentence"),
    ],
)
def test_sentences_of_one_meaning_are_nearer_than_those_of_another(one: str, same: str, other: str):
    encoder = get_shipped_encoder()
    assert nearness(encoder.encode_query(one), encoder.encode_query(same)) > nearness(
        encoder.encode_query(one), encoder.encode_query(other)
    )
    assert nearness(encoder.encode_query(one), encoder.encode_query(same)) > nearness(
        encoder.encode_query(same), encoder.encode_query(other)
    )


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_any_text_has_a_vector(text: str):
    for vector in (
        get_shipped_encoder().encode_query(text),
        get_shipped_encoder().encode_document(text),
    ):
        assert vector.any()


def test_no_network_is_needed(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the encoder asked for the network")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert Encoder().encode_query("hello").any()


def test_importing_search_reads_no_model():
    script = "import sys, portico.search; print('onnxruntime' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.strip() == "False"


# Without it


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the model that may be harmed, and that every new encoder opens."""
    original = files("portico.search.dense") / "model"
    copy = tmp_path / "model"
    copy.mkdir()
    for name in ("encoder.onnx", "outline.onnx", "tensors.json", "vocabulary.txt"):
        (copy / name).write_bytes((original / name).read_bytes())
    # `_open` looks the folder up when it is called.
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    return copy


def cut(name: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        body = (folder / name).read_bytes()
        (folder / name).write_bytes(body[: len(body) // 2])

    return harm


HARM: dict[str, Callable[[Path], Any]] = {
    "no weights": lambda folder: (folder / "encoder.onnx").unlink(),
    "no description of the weights": lambda folder: [
        (folder / name).unlink() for name in ("outline.onnx", "tensors.json")
    ],
    "no vocabulary": lambda folder: (folder / "vocabulary.txt").unlink(),
    "half the weights": cut("encoder.onnx"),
    "other weights": lambda folder: (folder / "encoder.onnx").write_bytes(
        b"version https://git-lfs"
    ),
    "other vocabulary": lambda folder: (folder / "vocabulary.txt").write_text("one\ntwo\n"),
    "binary vocabulary": lambda folder: (folder / "vocabulary.txt").write_bytes(bytes(range(256))),
}


def found(index: Index) -> list[str]:
    return [hit.id for hit in index.search("create an issue in a repository").hits]


def with_vectors(encoder: Encoder) -> Index:
    vectors = {it.id: get_shipped_encoder().encode_document(it.description) for it in CATALOG}
    return Index.build(CATALOG, encoder=encoder).with_vectors(vectors)


def goes_on_by_words(encoder: Encoder, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    assert encoder.problem == ""
    assert not encoder.is_loaded
    index = with_vectors(encoder)
    with caplog.at_level(logging.WARNING):
        ranking = index.search("create an issue in a repository")
        assert not ranking.uses_embeddings
        assert found(index) == found(Index.build(CATALOG))
        for _ in range(3):
            with pytest.raises(EncoderUnavailable) as refused:
                encoder.encode_query("anything")
            assert str(refused.value) == encoder.problem
        with pytest.raises(EncoderUnavailable):
            list(encoder.encode_documents(["anything"]))
    assert encoder.problem
    assert reason in encoder.problem
    assert not encoder.is_loaded
    assert caplog.text.count("search by meaning is off") == 1


@pytest.mark.parametrize("how", HARM)
def test_a_model_that_cannot_be_read_leaves_search_by_words(
    model: Path, how: str, caplog: pytest.LogCaptureFixture
):
    HARM[how](model)
    goes_on_by_words(Encoder(), "", caplog)


def test_the_copy_of_a_model_is_as_good_as_the_model(model: Path):
    assert np.array_equal(
        Encoder().encode_query("hello"), get_shipped_encoder().encode_query("hello")
    )


def without_outline(folder: Path) -> None:
    (folder / "outline.onnx").unlink()


@pytest.mark.parametrize("change", [without_outline, cut("outline.onnx")])
def test_a_model_whose_outline_cannot_be_used_runs_in_numpy(
    model: Path, change: Callable[[Path], None]
):
    change(model)
    texts = ("hello", "create an issue in a repository", "发送邮件")
    assert all(
        nearness(Encoder().encode_query(text), get_shipped_encoder().encode_query(text)) > 0.98
        for text in texts
    )


def test_weights_that_are_not_those_described_leave_search_by_words(
    model: Path, caplog: pytest.LogCaptureFixture
):
    # They say the same and end otherwise: a description of others finds its tables in the wrong
    # places.
    with (model / "encoder.onnx").open("ab") as file:
        file.write(b"\x32\x00")  # an empty name of what wrote it
    goes_on_by_words(Encoder(), "the weights are not those", caplog)


def test_without_onnxruntime_numpy_gives_the_same_vectors(monkeypatch: pytest.MonkeyPatch):
    texts = [*ODD, "create a new issue in a repository", "Rechnung an einen Kunden senden"]
    in_onnxruntime = [get_shipped_encoder().encode_document(text) for text in texts]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    encoder = Encoder()
    in_numpy = [encoder.encode_document(text) for text in texts]
    found = [nearness(*pair) for pair in zip(in_onnxruntime, in_numpy, strict=True)]
    # Both round activations to 8 bits, and a last bit before may be a step after.
    assert min(found) > 0.97
    assert sorted(found)[len(found) // 2] > 0.999


def test_a_native_library_that_cannot_start_leaves_search_by_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail() -> Any:
        raise OSError("cannot allocate memory in static TLS block")

    monkeypatch.setattr(module, "_open_network", fail)
    goes_on_by_words(Encoder(), "static TLS block", caplog)


def test_weights_of_another_width_leave_search_by_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(module, "VECTOR_WIDTH", VECTOR_WIDTH + 1)
    goes_on_by_words(Encoder(), "shape", caplog)


def test_a_vocabulary_of_other_weights_leaves_search_by_words(
    model: Path, caplog: pytest.LogCaptureFixture
):
    with (model / "vocabulary.txt").open("r+", encoding="utf-8") as file:
        pieces = file.read()
        file.seek(0)
        file.write(pieces.replace("\nissue\n", "\nissue-\n") + "issue\n")
    goes_on_by_words(Encoder(), "", caplog)


class Failing:
    """A network that works for a while."""

    def __init__(self, session: Any, times: int) -> None:
        self._session, self.left = session, times

    def encode(self, *args: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("bad allocation")
        return self._session.encode(*args)


def test_an_encoder_that_fails_at_work_says_so_once_and_leaves_search_by_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    opened, reader = module._open_network()  # pyright: ignore[reportPrivateUsage]
    session = Failing(opened, 2)
    monkeypatch.setattr(module, "_open_network", lambda: (session, reader))
    encoder = Encoder()
    index = with_vectors(encoder)
    assert index.search("create an issue in a repository").uses_embeddings
    with pytest.raises(EncoderUnavailable, match="bad allocation"):
        list(encoder.encode_documents(f"text {number}" for number in range(20)))
    assert "bad allocation" in encoder.problem
    assert encoder.is_loaded
    tried = session.left
    for ask in (encoder.encode_query, encoder.encode_document):
        with pytest.raises(EncoderUnavailable, match="bad allocation"):
            ask("another")
    assert session.left == tried
    assert not index.search("create an issue in a repository").uses_embeddings
    assert found(index) == found(Index.build(CATALOG))
    assert caplog.text.count("search by meaning is off") == 1
