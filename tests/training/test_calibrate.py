"""Fitting when nothing fits: which catalogs a question is put to, what is known search, and what
the fit finds."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.ablation import Remembering
from benchmarks.contestants import index_of
from benchmarks.tool_sets import Question, ToolSet
from training.calibrate import ANSWERABLE, NO_ANSWER, SMALL, TAKEN_OUT, Case

from portico.search import EncoderUnavailable, Index, scored_query
from tests.benchmarks.tiny_set import TOOLS, write_set
from training import calibrate

SERVER_OF = {
    f"s{number:02}/{name}": f"s{number:02}" for number in range(20) for name in ("one", "two")
}
SERVERS = sorted(set(SERVER_OF.values()))


def put_to(
    question: Question, servers: list[str] = SERVERS, seed: int = 1
) -> dict[tuple[str, int], set[str]]:
    """The tools that are there, by kind and size of the catalog."""
    found = calibrate.catalogs(question, SERVER_OF, servers, random.Random(seed))
    return {
        (kind, small): {id_ for id_ in SERVER_OF if allow is None or allow(id_)}
        for kind, small, allow in found
    }


def question(*right: str) -> Question:
    return Question("q", "asked", tuple(frozenset({id_}) for id_ in right))


def test_a_small_catalog_has_one_right_server_more_when_it_can_answer():
    found = put_to(question("s03/one"))
    assert {small for _, small in found} == {0, 3, 12}, "there are not 40 servers to draw from"
    for small in (3, 12):
        assert found[ANSWERABLE, small] - found[TAKEN_OUT, small] == {"s03/one", "s03/two"}
        assert len({SERVER_OF[id_] for id_ in found[TAKEN_OUT, small]}) == small


def test_what_is_taken_out_is_the_right_servers():
    assert put_to(question("s03/one", "s07/two"))[TAKEN_OUT, 0] == {
        id_ for id_ in SERVER_OF if SERVER_OF[id_] not in ("s03", "s07")
    }


def test_where_servers_mean_nothing_the_right_tools_are_taken_out_and_there_are_no_small_catalogs():
    found = put_to(question("s03/one"), servers=[])
    assert found == {(ANSWERABLE, 0): set(SERVER_OF), (TAKEN_OUT, 0): set(SERVER_OF) - {"s03/one"}}


def test_a_question_without_an_answer_has_none_anywhere():
    assert {kind for kind, _ in put_to(question())} == {NO_ANSWER}


def test_the_same_seed_draws_the_same_catalogs():
    assert put_to(question("s03/one"), seed=5) == put_to(question("s03/one"), seed=5)
    assert put_to(question("s03/one"), seed=5) != put_to(question("s03/one"), seed=6)


def test_servers_are_servers_where_tools_carry_their_name():
    assert calibrate.has_servers(ToolSet("live", TOOLS, ()))
    assert not calibrate.has_servers(
        ToolSet("plugins", ({"id": "clock", "name": "clock", "server": "plugin"},), ())
    )
    assert not calibrate.has_servers(ToolSet("bare", ({"id": "clock", "name": "clock"},), ()))


@pytest.fixture(scope="module")
def index() -> Index:
    encoder, documents = Remembering(), ToolSet("tiny", TOOLS, ()).documents
    try:
        encoder.load()
    except EncoderUnavailable as error:
        pytest.skip(f"the encoder cannot be loaded here: {error}")
    return index_of(
        documents, encoder, {it.id: encoder.encode_document(it.description) for it in documents}
    )


def test_what_is_received_is_what_search_judges_by(index: Index):
    text = "knit me a pullover"
    found = calibrate.case(index, Question("q", text, ()), ("tiny", 0, NO_ANSWER, 0), None)
    assert found.evidence is not None
    nearness, coverage, choice = found.evidence
    assert choice == pytest.approx(np.log(len(TOOLS)))
    ranking = index.search(text, 10)
    assert ranking.confidence == scored_query.estimate_confidence(nearness, coverage, len(TOOLS))
    assert found.refused == ranking.is_weak


def test_a_tool_called_by_its_name_needs_no_verdict(index: Index):
    found = calibrate.case(
        index, Question("q", "get_weather", ()), ("tiny", 0, ANSWERABLE, 0), None
    )
    assert (found.evidence, found.refused) == (None, False)


def test_the_shipped_constants_refuse_what_search_refuses():
    shipped = calibrate.shipped_fit()
    chance = np.random.default_rng(2)
    for nearness, coverage, count in zip(
        chance.random(200), chance.random(200), chance.integers(1, 5_000, 200), strict=True
    ):
        evidence = np.array([[nearness, coverage, np.log(count)]])
        weak = (
            scored_query.estimate_confidence(float(nearness), float(coverage), int(count))
            < scored_query.WEAK
        )
        assert bool(shipped.refuses(evidence)[0]) == weak


def test_a_regression_finds_what_made_the_answers():
    chance = np.random.default_rng(3)
    evidence, true = chance.random((20_000, 3)), np.array([4.0, 1.0, -2.0, -1.0])
    likely = 1 / (1 + np.exp(-(evidence @ true[:-1] + true[-1])))
    answers = (chance.random(len(likely)) < likely).astype(float)
    found = calibrate.regression(evidence, answers, np.full(len(answers), 1 / len(answers)))
    assert np.abs(found - true).max() < 0.3


def test_the_cut_refuses_few_of_the_fleet_s_answerable_questions():
    chance = random.Random(4)

    def case(at: int, kind: str, nearness: float) -> Case:
        return Case(
            "fleet_dev", at, kind, 0, (nearness, chance.random(), 5.0 + chance.random()), False
        )

    cases = [case(at, ANSWERABLE, chance.gauss(0.6, 0.1)) for at in range(500)]
    cases += [case(at, NO_ANSWER, chance.gauss(0.35, 0.1)) for at in range(500, 1_000)]
    found = calibrate.fit(cases)
    refused = found.refuses(calibrate.evidence_of(cases))
    assert 0.03 < refused[:500].mean() < 0.05
    assert refused[500:].mean() > 0.6


def test_every_kind_of_case_has_a_weight_and_those_without_an_answer_weigh_most():
    sizes = (0, *SMALL)
    least = min(calibrate.weight(NO_ANSWER, size, "any") for size in sizes)
    assert all(
        0 < calibrate.weight(kind, size, "any") < least
        for kind in (ANSWERABLE, TAKEN_OUT)
        for size in sizes
    )


def test_the_command_prints_the_constants_and_what_they_do(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    index: Index,
):
    write_set(tmp_path / "sets" / "tiny")
    arguments = ["--data", tmp_path / "sets", "--cache", tmp_path / "cache"]
    monkeypatch.setattr(sys, "argv", ["calibrate", *map(str, arguments)])
    assert calibrate.main() == 0
    printed = capsys.readouterr().out
    for words in ("fitted now", "shipped", "tiny", "refused %"):
        assert words in printed
