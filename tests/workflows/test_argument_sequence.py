"""What the network reads has a limit; what does not fit is left out, and everything else is where
it is said to be."""

from portico.workflows.planning.argument_sequence import (
    CLAUSE,
    ELSEWHERE,
    MAX_OPTION_TOKENS,
    MAX_PARAMETER_TOKENS,
    MAX_SAID_TOKENS,
    MAX_TOKENS,
    QUESTION,
    ParameterWords,
    SpecialTokens,
    build_sequence,
)

SPECIAL = SpecialTokens(first=101, separator=102, mask=103)
PLAIN = ParameterWords(((7,),))


def test_what_was_said_the_tool_and_its_parameters_follow_one_another():
    found = build_sequence(
        SPECIAL,
        [(1,), (2, 3)],
        [True, False],
        [(4,)],
        [PLAIN, ParameterWords(((8,),), (((9,),), ((10, 11),)))],
    )
    assert found.ids == [101, 1, 2, 3, 102, 4, 103, 7, 102, 103, 8, 102, 9, 102, 10, 11, 102]
    assert found.kinds[:5] == [QUESTION, CLAUSE, ELSEWHERE, ELSEWHERE, QUESTION]
    assert set(found.kinds[5:]) == {QUESTION}
    assert found.said == [1, 2]
    assert [found.ids[mark] for mark in found.marks] == [103, 103]
    assert found.options == [[], [(12, 12), (14, 15)]]


def test_words_of_the_clause_come_first_and_then_the_last_ones():
    said = [(1,)] * (2 * MAX_SAID_TOKENS)
    in_clause = [at < 3 for at in range(len(said))]
    found = build_sequence(SPECIAL, said, in_clause, [], [PLAIN])
    kept = [at for at, place in enumerate(found.said) if place >= 0]
    assert kept[:3] == [0, 1, 2]
    assert len(kept) == MAX_SAID_TOKENS
    assert kept[3:] == list(range(len(said) - MAX_SAID_TOKENS + 3, len(said)))
    assert found.kinds.count(CLAUSE) == 3


def test_parameters_that_do_not_fit_are_left_for_another_sequence():
    said = [(1,)] * MAX_SAID_TOKENS
    wordy = ParameterWords(((7,),) * 1_000, (((9,) * 1_000,),) * 1_000)
    tool = [(4,)] * 1_000
    found = build_sequence(SPECIAL, said, [True] * len(said), tool, [wordy] * 1_000)
    assert 1 <= len(found.marks) < 1_000
    assert len(found.ids) <= MAX_TOKENS
    assert len(found.ids) == len(found.kinds)
    assert len(found.options) == len(found.marks)
    small = build_sequence(SPECIAL, [], [], [], [PLAIN] * 20)
    assert len(small.marks) == 20


def test_words_and_options_of_a_parameter_are_cut_and_all_options_keep_their_place():
    wordy = ParameterWords(((7,),) * 1_000, (((9,),), (), *(((9,) * 12,) for _ in range(100))))
    found = build_sequence(SPECIAL, [], [], [], [wordy])
    assert found.ids.count(7) == MAX_PARAMETER_TOKENS
    (options,) = found.options
    assert len(options) == 102
    assert options[1] == options[-1] == (-1, -1)
    assert found.ids.count(9) <= MAX_OPTION_TOKENS
    for first, last in options:
        assert first == -1 or set(found.ids[first : last + 1]) == {9}
