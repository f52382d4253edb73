"""What callers were told of failed calls: bounded, and without secrets."""

from portico.callers import NO_CALLER
from portico.calls.failed_calls import MAX_CALLS, MAX_MESSAGE_CHARS, FailedCalls


def add(calls: FailedCalls, call_id: str, text: str, *, is_refused: bool = False) -> None:
    calls.add(call_id, "git.push", "remote", text, NO_CALLER, "", is_refused=is_refused)


def test_the_oldest_calls_are_forgotten() -> None:
    calls = FailedCalls()
    for number in range(MAX_CALLS + 1):
        add(calls, str(number), "it broke", is_refused=True)
    assert calls.find("0") is None
    listed = [one.call_id for one in calls.list_refused()]
    assert (listed[0], listed[-1]) == (str(MAX_CALLS), "1")


def test_a_secret_at_the_end_of_what_is_shown_is_masked_whole() -> None:
    calls = FailedCalls()
    start = "x" * (MAX_MESSAGE_CHARS - 20)
    add(calls, "a", f"{start} API_TOKEN=hidden-value-of-a-token")
    failed = calls.find("a")
    assert failed is not None
    message = failed.render_message()
    assert "hidden" not in message
    assert len(message) <= MAX_MESSAGE_CHARS + 1


def test_only_refused_calls_are_listed_as_refused() -> None:
    calls = FailedCalls()
    add(calls, "a", "it broke")
    add(calls, "b", "no such tool", is_refused=True)
    assert [one.call_id for one in calls.list_refused()] == ["b"]
