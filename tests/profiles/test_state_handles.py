"""State handles: issued here, known only to their client, dropped when unused."""

import pytest

from portico.errors import UnknownName
from portico.profiles import state_handles
from portico.profiles.state_handles import (
    META_KEY,
    TTL_S,
    StateHandle,
    StateHandles,
    add_handle_to_result,
    take_handle,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_handle_is_long_and_never_the_same_and_its_key_does_not_tell_it():
    handles = StateHandles()
    issued = [handles.issue() for _ in range(100)]
    assert len({handle.text for handle in issued}) == 100
    assert all(len(handle.text) == 22 and handle.text not in handle.key for handle in issued), (
        "128 bits"
    )
    assert [handles.redeem(handle.text) for handle in issued] == [handle.key for handle in issued]


@pytest.mark.parametrize("wrong", ["", "made up", 7, None, ["a"], "x" * 100_000, "\ud800"])
def test_what_was_not_issued_is_refused_with_advice(wrong: object):
    handles = StateHandles()
    handles.issue()
    with pytest.raises(UnknownName, match="no such session") as refused:
        handles.redeem(wrong)
    assert "begin again" in refused.value.advice


def test_one_views_handles_are_unknown_to_another():
    with pytest.raises(UnknownName):
        StateHandles().redeem(StateHandles().issue().text)


def test_a_handle_that_is_used_lives_on_and_one_that_is_not_is_forgotten():
    clock = Clock()
    handles = StateHandles(clock)
    used, unused = handles.issue(), handles.issue()
    clock.now = TTL_S / 2
    handles.redeem(used.text)
    clock.now = TTL_S
    assert handles.redeem(used.text) == used.key
    with pytest.raises(UnknownName):
        handles.redeem(unused.text)
    assert len(handles) == 1


def test_there_are_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state_handles, "MAX_HANDLES", 3)
    handles = StateHandles()
    first, *_, last = [handles.issue() for _ in range(10)]
    assert len(handles) == 3
    assert handles.redeem(last.text) == last.key
    with pytest.raises(UnknownName):
        handles.redeem(first.text)


def test_a_request_is_passed_on_without_its_handle_and_with_all_else():
    given = {"name": "a", "_meta": {META_KEY: "h", "trace": 1}}
    assert take_handle(given) == ("h", {"name": "a", "_meta": {"trace": 1}})
    assert given["_meta"] == {META_KEY: "h", "trace": 1}, "what came in is not changed"
    for other in ({}, {"_meta": None}, {"_meta": []}, {"_meta": {"trace": 1}}):
        assert take_handle(other) == (None, other)


def test_an_answer_says_the_handle_to_programs_and_if_wanted_to_models():
    block = {"type": "text", "text": "1"}
    handle, result = StateHandle("secret", "key"), {"content": [block], "_meta": {"a": 1}}
    assert add_handle_to_result(result, handle, with_text=False) == {
        **result,
        "_meta": {"a": 1, META_KEY: "secret"},
    }
    said = add_handle_to_result(result, handle, with_text=True)
    assert said["content"][0] == block
    assert 'session: "secret"' in said["content"][1]["text"]
    assert add_handle_to_result({"contents": []}, handle, with_text=True) == {
        "contents": [],
        "_meta": {META_KEY: "secret"},
    }
