"""The argument reader's network: onnxruntime and numpy read a sentence alike."""

import sys
import threading
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import pytest

from portico.catalog.tool import make_tool
from portico.search.dense.encoder import CHOOSER
from portico.search.dense.reader import ReaderNetwork, get_chooser_network, get_reader_network
from portico.workflows.planning.argument_reader import ArgumentReader

SENTENCES = (
    "transfer issue ENG-482 to the team Platform",
    "Lies die Datei /tmp/a.md und sende sie an bob@example.org",
    "发送邮件 to 7 people",
)


def open_network() -> ReaderNetwork:
    with as_file(files("portico.search.dense") / "model") as folder:
        return ReaderNetwork(folder)


def make_question(network: ReaderNetwork, sentence: str) -> tuple[list[int], list[int], list[int]]:
    """Tokens of a sentence and of two parameters, their kinds, and the places of the marks."""
    vocabulary = network.tokenizer.vocabulary
    ids = network.tokenizer.encode(sentence, 64)
    kinds = [0] * len(ids)
    marks: list[int] = []
    for parameter in ("issue (string, required): Key of the issue", "team (string, required):"):
        marks.append(len(ids))
        ids += [vocabulary["[MASK]"], *network.tokenizer.encode(parameter, 28)[1:]]
    return ids, kinds + [2] * (len(ids) - len(kinds)), marks


@pytest.fixture(scope="module")
def in_numpy() -> ReaderNetwork:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        return open_network()


@pytest.mark.parametrize("sentence", SENTENCES)
def test_without_onnxruntime_numpy_gives_the_same_states_and_pointers(
    in_numpy: ReaderNetwork, sentence: str
):
    pytest.importorskip("onnxruntime")
    network = open_network()
    ids, kinds, marks = make_question(network, sentence)
    found: list[Any] = []
    for one in (network, in_numpy):
        states = one.compute_states(ids, kinds)
        assert states.shape[0] == len(ids)
        found.append((states, *one.point(states, marks), one.find_beginnings(states)))
    for here, there in zip(*found, strict=True):
        assert here.shape == there.shape
        cosine = float(here.ravel() @ there.ravel())
        cosine /= float(np.linalg.norm(here) * np.linalg.norm(there))
        # Both round activations to 8 bits, and a last bit before may be a step after.
        assert cosine > 0.97
    if sentence == SENTENCES[0]:
        for here, there in zip(found[0][1:3], found[1][1:3], strict=True):
            assert here.argmax(axis=1).tolist() == there.argmax(axis=1).tolist()


def test_a_parameter_points_to_the_words_that_are_its_value():
    network = get_reader_network()
    ids, kinds, marks = make_question(network, SENTENCES[0])
    first, last = network.point(network.compute_states(ids, kinds), marks)
    pieces = [network.tokenizer.vocabulary[piece] for piece in ("eng", "-", "48", "##2")]
    assert ids[int(first[0].argmax())] == pieces[0]
    assert ids[int(last[0].argmax())] in pieces[2:]
    platform = network.tokenizer.vocabulary["platform"]
    assert ids[int(first[1].argmax())] == ids[int(last[1].argmax())] == platform


def test_many_threads_may_read_at_once():
    network = get_reader_network()
    questions = [make_question(network, sentence)[:2] for sentence in SENTENCES]
    expected = [network.compute_states(*question) for question in questions]
    found: dict[int, Any] = {}
    start = threading.Barrier(len(questions))

    def read(number: int) -> None:
        start.wait(30)
        found[number] = network.compute_states(*questions[number])

    threads = [threading.Thread(target=read, args=[number]) for number in range(len(questions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(np.array_equal(found[number], states) for number, states in enumerate(expected))


@pytest.mark.parametrize(
    ("words", "server", "name"),
    [
        ("move ENG-482 to the team Platform", "tracker", "transfer_issue"),
        ("what is the weather in Oslo right now", "weather", "get_current_weather"),
    ],
)
def test_the_tool_that_does_what_is_said_is_judged_above_the_others(
    words: str, server: str, name: str
):
    reader = ArgumentReader(get_reader_network(), get_chooser_network())
    tools = [
        make_tool("tracker", {"name": "transfer_issue", "description": "Moves an issue."}),
        make_tool("tracker", {"name": "delete_issue", "description": "Deletes an issue."}),
        make_tool("weather", {"name": "get_current_weather", "description": "Weather of a city."}),
        make_tool("weather", {"name": "get_time_zone", "description": "Time zone of a city."}),
    ]
    said = reader.read_words(words, {})
    whole = (0, len(said.spans) - 1)
    best = max(tools, key=lambda tool: reader.judge_tool(said, whole, tool))
    assert (best.server, best.name) == (server, name)


def test_numpy_judges_as_onnxruntime_does(monkeypatch: pytest.MonkeyPatch):
    with as_file(files("portico.search.dense") / "model") as folder:
        usual = ReaderNetwork(folder, CHOOSER)
        monkeypatch.setattr("portico.search.dense.reader.open_session", lambda *_: None)
        alone = ReaderNetwork(folder, CHOOSER)
    ids, kinds, _ = make_question(usual, SENTENCES[0])
    judged = [one.judge_tool(one.compute_states(ids, kinds)) for one in (usual, alone)]
    assert abs(judged[0] - judged[1]) < 1.0
