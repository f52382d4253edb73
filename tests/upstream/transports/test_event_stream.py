"""The event-stream parser, chunk by chunk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.upstream.transports.message_streams import (
    EventStreamParser,
    EventTooLarge,
    ServerSentEvent,
)


def parsed(*chunks: bytes, limit: int = 1000) -> list[ServerSentEvent]:
    stream = EventStreamParser(limit)
    return [event for chunk in chunks for event in stream.feed(chunk)]


def test_an_event_is_dispatched_by_an_empty_line():
    assert parsed(b"data: one\n") == []
    assert parsed(b"event: note\nid: 7\ndata: one\n\n") == [ServerSentEvent("note", b"one", "7")]


def test_data_lines_are_joined_by_line_feeds():
    assert parsed(b"data: a\ndata:b\ndata\ndata:  c\n\n") == [
        ServerSentEvent("message", b"a\nb\n\n c", None)
    ]


def test_comments_and_unknown_fields_are_nothing():
    assert parsed(b": keep-alive\n\nfoo: bar\ndata: x\n\n: bye\n\n") == [
        ServerSentEvent("message", b"x", None)
    ]


def test_an_id_without_data_is_remembered_but_dispatches_nothing():
    stream = EventStreamParser(100)
    assert stream.feed(b"id: 3\nretry: 1500\n\n") == []
    assert (stream.last_id, stream.retry_ms) == ("3", 1500)


def test_a_priming_event_has_empty_data():
    assert parsed(b"id: 1\ndata: \n\n") == [ServerSentEvent("message", b"", "1")]


def test_nonsense_in_retry_and_id_is_ignored():
    stream = EventStreamParser(100)
    stream.feed("retry: soon\nretry: ²\nid: a\0b\ndata: x\n\n".encode())
    assert (stream.last_id, stream.retry_ms) == (None, None)


def test_a_type_lasts_for_one_event():
    assert [event.type for event in parsed(b"event: a\ndata: 1\n\ndata: 2\n\n")] == ["a", "message"]


def test_a_byte_order_mark_is_skipped():
    assert parsed(b"\xef\xbb", b"\xbfdata: x\n\n") == [ServerSentEvent("message", b"x", None)]


def test_an_unfinished_event_at_the_end_is_not_an_event():
    assert parsed(b"data: x\n\ndata: y\n") == [ServerSentEvent("message", b"x", None)]


@pytest.mark.parametrize(
    "chunks", [(b"data: " + b"x" * 200,), (b"data: xxxxxxxxx\n",) * 20, (b"data:\n",) * 200]
)
def test_an_event_over_the_limit_is_refused_even_before_it_ends(chunks: tuple[bytes, ...]):
    with pytest.raises(EventTooLarge):
        parsed(*chunks * 10, limit=100)


def test_many_events_together_may_pass_the_limit():
    stream = EventStreamParser(100)
    # Each chunk ends in the middle of an event, so the parser always holds something back.
    found = stream.feed(b"data: " + b"a" * 60)
    for _ in range(500):
        found += stream.feed(b"\n\ndata: " + b"a" * 30)
        found += stream.feed(b"\ndata: " + b"a" * 30)
    assert len(found) == 500


@given(
    st.lists(
        st.tuples(st.sampled_from(["data", "id", "event", ""]), st.text("ab:é ", max_size=5)),
        max_size=12,
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_where_the_chunks_are_cut_makes_no_difference(
    fields: list[tuple[str, str]], end: str, cuts: list[int]
):
    text = "".join(f"{name}: {value}{end}" if name else end for name, value in fields) + end * 2
    whole = text.encode()
    pieces: list[bytes] = []
    at = 0
    while at < len(whole):
        step = cuts[len(pieces) % len(cuts)]
        pieces.append(whole[at : at + step])
        at += step
    assert parsed(*pieces) == parsed(whole) == parsed(whole.replace(end.encode(), b"\n"))
