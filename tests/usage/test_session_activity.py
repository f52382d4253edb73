"""Which call followed which search, and which tools were used together."""

from portico.search.usage_patterns import WINDOW_S, SearchRecord, SessionActivity


def search(*shown: str, at: float = 0.0, words: str = "send mail") -> SearchRecord:
    return SearchRecord(frozenset(words.split()), frozenset(shown), at)


def test_a_call_follows_the_latest_search_that_showed_its_tool():
    talk, first, second, third = (
        SessionActivity(),
        search("m.send"),
        search("m.send", "m.find"),
        search("c.add"),
    )
    for one in (first, second, third):
        talk.add_search(one)
    assert talk.add_call("m.send", 1)[0] is second
    assert talk.add_call("c.add", 1)[0] is third


def test_a_tool_that_no_search_showed_follows_none():
    talk = SessionActivity()
    talk.add_search(search("m.send"))
    assert talk.add_call("m.find", 1) == (None, [])


def test_a_call_long_after_a_search_does_not_follow_it():
    talk = SessionActivity()
    talk.add_search(search("m.send"))
    assert talk.add_call("m.send", WINDOW_S + 1)[0] is None


def test_calling_a_tool_again_and_again_follows_a_search_once():
    talk = SessionActivity()
    talk.add_search(one := search("m.send", "m.find"))
    assert [talk.add_call(tool, 1)[0] for tool in ("m.send", "m.send", "m.find")] == [
        one,
        None,
        one,
    ]
    talk.add_search(again := search("m.send"))
    assert talk.add_call("m.send", 2)[0] is again


def test_a_session_that_only_searches_is_no_larger():
    talk, old = SessionActivity(), search("m.send")
    talk.add_search(old)
    talk.add_call("m.send", 0)
    for number in range(100):
        talk.add_search(search(f"m.{number}"))
    assert talk.add_call("m.send", 1)[0] is None


def test_tools_called_one_after_another_go_together_once():
    talk = SessionActivity()
    beside = [
        talk.add_call(tool, at)[1] for at, tool in enumerate(["a.a", "a.b", "a.a", "a.b", "a.c"])
    ]
    assert beside == [[], ["a.a"], [], [], ["a.a", "a.b"]]


def test_only_the_latest_few_calls_go_together_and_not_for_long():
    talk = SessionActivity()
    for number in range(8):
        talk.add_call(f"a.{number}", number)
    assert talk.list_recent_tools(8) == ["a.3", "a.4", "a.5", "a.6", "a.7"]
    assert talk.add_call("a.x", WINDOW_S + 100) == (None, [])


def test_a_clock_that_was_set_back_far_ends_what_was_open():
    talk = SessionActivity()
    talk.add_search(search("m.send", at=1e9))
    assert talk.add_call("m.send", 0)[0] is None
    assert talk.add_call("m.send", 1e9 - 1)[0] is not None
