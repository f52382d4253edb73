"""Every fault: what the server does, how it is brought about, on which wires, and what may come of
it.

An outcome is `result` (the tool's answer reached the caller, whatever is in it), `tool_error` (so
did its failure), or the kind of an error of ours. What an error says must match `says`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Wire = Literal["stdio", "http", "modern", "sse"]
"""stdio · Streamable HTTP in the handshake era · Streamable HTTP in the modern era · HTTP+SSE"""
Brought = Literal["call", "start", "refresh", "race"]
"""By a call · by a call that has to start the server first · by listing it again · by a call right
after its end."""

EVERYWHERE: tuple[Wire, ...] = ("stdio", "http", "modern", "sse")
HANDSHAKE: tuple[Wire, ...] = ("stdio", "http", "sse")
STREAMABLE: tuple[Wire, ...] = ("http", "modern")
OVER_HTTP: tuple[Wire, ...] = ("http", "modern", "sse")
PIPE: tuple[Wire, ...] = ("stdio",)


@dataclass(frozen=True)
class Fault:
    """One way to misbehave."""

    id: str
    sentence: str
    allowed: frozenset[str]
    on: tuple[Wire, ...] = EVERYWHERE
    brought: Brought = "call"
    says: str = ""
    short: bool = False
    """Ends by our timeout alone, so that there should be little of it."""
    lasting: bool = False
    """Strikes when the server is ended: it is on again when the gateway closes."""


def _rows(
    brought: Brought,
    on: tuple[Wire, ...],
    rows: Mapping[str, tuple[str, str, str]],
    *,
    lasting: bool = False,
) -> tuple[Fault, ...]:
    """`rows`: id → sentence, outcomes, what an error says."""
    return tuple(
        Fault(
            id,
            sentence,
            frozenset(outcomes.split()),
            on,
            brought,
            says,
            "timeout" in outcomes,
            lasting,
        )
        for id, (sentence, outcomes, says) in rows.items()
    )


FINE = "result"
LOST = "unavailable"
SLOW = "timeout unavailable"
"""A server that says nothing: the call's time is over, or it was found not to answer and started
again."""
REFUSED = "remote"
GARBLED = "result unavailable"
"""On a pipe noise is skipped; in the reply to a request it spoils the reply."""
NO_ANSWER = "timeout unavailable remote"
ANY = "result tool_error unavailable remote protocol"
"""`protocol`: refused as a whole, since no client of its era could read it."""

CUT = "reached|closed|reset|ended"

FAULTS: tuple[Fault, ...] = (
    *_rows("start", EVERYWHERE, {
        "dies_before_greeting": ("dies before it has said anything", LOST,
            f"exited with code 3|{CUT}"),
        "dies_during_greeting": ("dies in the middle of its greeting", LOST,
            f"exited with code 5|{CUT}"),
        "dies_after_greeting": ("dies right after its greeting", LOST, f"exited with code 6|{CUT}"),
        "hangs_before_greeting": ("never greets", SLOW, "handshake within"),
        "freezes_after_greeting": ("greets, and reads nothing any more", f"{SLOW} result",
            "within|answer"),
        "garbage_for_a_greeting": ("greets with garbage", SLOW, "handshake within|not JSON"),
        "half_a_greeting": ("greets by half", SLOW, "handshake within|not JSON"),
        "greeting_refused": ("refuses to greet", LOST, "no licence"),
        "greeting_without_result": ("greets with nothing", LOST, "result"),
    }),
    *_rows("start", HANDSHAKE, {
        "greeting_of_wrong_types": ("greets with wrong types everywhere", FINE, ""),
        "unknown_version": ("speaks a version that nobody knows", FINE, ""),
        "echoes_a_modern_version": ("names a modern version in an old handshake", FINE, ""),
        "knows_no_version_of_ours": ("refuses every version", LOST, "version"),
    }),
    *_rows("start", PIPE, {
        "killed_during_greeting": ("is killed during its greeting", LOST, "ended by SIGKILL"),
        "never_reads": ("starts and does nothing", SLOW, "handshake within"),
    }),
    *_rows("start", ("stdio", "http", "modern"), {
        "era_lie": ("says it is modern and refuses everything", "remote unavailable",
            "not initialized|modern|session"),
    }),
    *_rows("start", STREAMABLE, {
        "greeting_status_500": ("greets with HTTP 500", LOST, "HTTP 500"),
        "greeting_status_401": ("wants credentials", "sign_in_needed", "portico login"),
        "greeting_status_307": ("is elsewhere", LOST, "redirects"),
        "stream_beside_resets": ("cuts the stream beside its calls, again and again", FINE, ""),
        "stream_beside_garbage": ("says garbage on that stream", FINE, ""),
        "stream_beside_storm": ("floods that stream", FINE, ""),
    }),
    *_rows("start", PIPE, {
        "ignores_stdin_close": ("lives on when its input closes", FINE, ""),
        "ignores_sigterm": ("lives on when it is told to go", FINE, ""),
        "leaves_a_child": ("leaves a child behind", FINE, ""),
        "leaves_a_child_on_its_pipes": ("leaves a child that holds its pipes", FINE, ""),
        "leaves_a_deaf_child": ("leaves a child that holds its pipes and ignores SIGTERM", FINE,
            ""),
    }, lasting=True),
    *_rows("race", EVERYWHERE, {
        "dies_between_calls": ("has just gone when it is called", GARBLED, f"exited|{CUT}|session"),
    }),
    *_rows("refresh", EVERYWHERE, {
        "listing_dies": ("dies when it is listed", f"{LOST} result", f"exited with code 7|{CUT}"),
        "listing_hangs": ("never lists", FINE, ""),
        "listing_refused": ("refuses to list", FINE, ""),
        "listing_half_then_death": ("dies in the middle of its list", f"{LOST} result",
            f"exited with code 8|{CUT}"),
        "listing_garbage": ("lists garbage", GARBLED, "not JSON"),
        "listing_without_end": ("lists page after page without end", FINE, ""),
        "listing_in_circles": ("lists the same page for ever", FINE, ""),
        "listing_odd_cursor": ("has a cursor that is no text", FINE, ""),
        "listing_of_wrong_type": ("lists an object for a list", "unknown_name", "work"),
        "listing_of_nulls": ("lists nulls and wrong types everywhere", FINE, ""),
        "listing_of_duplicates": ("lists each tool many times", FINE, ""),
        "listing_huge": ("lists five thousand tools", FINE, ""),
        "listing_over_the_limit": ("lists more than a message may hold", f"{LOST} result", "over"),
        "listing_too_deep": ("lists a schema a thousand levels deep", FINE, ""),
        "listing_of_nothing": ("lists nothing any more", "unknown_name", "work"),
    }),
    *_rows("call", EVERYWHERE, {
        "dies_in_a_call": ("dies in a call", LOST, f"exited with code 4|{CUT}"),
        "dies_after_an_answer": ("dies right after an answer", GARBLED, f"exited|{CUT}"),
        "dies_in_an_answer": ("dies in the middle of an answer", LOST, f"exited with code 9|{CUT}"),
        "hangs_in_a_call": ("never answers a call", SLOW, "within"),
        "half_an_answer": ("says half an answer and no more", SLOW, "within"),
        "text_between_answers": ("prints text between answers", GARBLED, "not JSON"),
        "binary_between_answers": ("prints bytes between answers", GARBLED, "not JSON"),
        "json_that_is_no_jsonrpc": ("prints JSON that is no JSON-RPC", f"{GARBLED} remote",
            "answer|message"),
        "json_that_is_no_object": ("prints JSON that is no object", GARBLED, "JSON-RPC"),
        "only_garbage": ("answers with garbage", NO_ANSWER, "within|JSON"),
        "answer_over_the_limit": ("answers more than a message may hold", "remote unavailable",
            "over"),
        "answer_far_over_the_limit": ("answers thirty times what a message may hold",
            "remote unavailable", "over"),
        "answer_just_under_the_limit": ("answers all that a message may hold", FINE, ""),
        "line_without_end": ("says one line that never ends", SLOW, "within|over"),
        "error_over_the_limit": ("refuses with more than a message may hold", "remote unavailable",
            "over"),
        "huge_error": ("refuses with half a megabyte", REFUSED, "xxx"),
        "drips": ("answers byte by byte", FINE, ""),
        "drips_for_ever": ("answers byte by byte and never ends", NO_ANSWER, "within|JSON"),
        "list_changed_storm": ("says ten thousand times that its list changed", FINE, ""),
        "progress_flood": ("reports progress ten thousand times", FINE, ""),
        "log_flood": ("logs ten thousand lines", FINE, ""),
        "odd_notifications": ("says what makes no sense", FINE, ""),
        "id_as_text": ("answers a number's text", FINE, ""),
        "id_as_fraction": ("answers 7.0 for 7", f"{FINE} timeout unavailable", "answer|within"),
        "id_of_another": ("answers what nobody asked", NO_ANSWER, "within|answer"),
        "id_null": ("answers without an id", NO_ANSWER, "within|answer"),
        "id_list": ("answers with a list for an id", NO_ANSWER, "within|answer"),
        "id_object": ("answers with an object for an id", NO_ANSWER, "within|answer"),
        "id_true": ("answers with `true` for an id", NO_ANSWER, "within|answer"),
        "id_huge": ("answers with a huge id", NO_ANSWER, "within|answer|JSON"),
        "answers_twice": ("answers twice, and refuses after that", FINE, ""),
        "answers_to_nobody": ("answers what was asked before and what comes next", FINE, ""),
        "answer_and_error_in_one": ("answers and refuses at once", f"{FINE} remote",
            "told to refuse"),
        "answer_in_a_batch": ("answers in a batch with others' answers", FINE, ""),
        "result_null": ("answers null", "remote unavailable", "result"),
        "result_text": ("answers a text", "remote unavailable", "result"),
        "result_list": ("answers a list", "remote unavailable", "result"),
        "result_number": ("answers a number", "remote unavailable", "result"),
        "result_empty": ("answers an empty object", FINE, ""),
        "content_null": ("answers null for content", FINE, ""),
        "content_text": ("answers a text for content", FINE, ""),
        "content_empty": ("answers no content", FINE, ""),
        "content_of_wrong_types": ("answers content of wrong types", FINE, ""),
        "structured_of_wrong_type": ("answers a list for structured content", FINE, ""),
        "is_error_without_text": ("fails and does not say why", "tool_error", ""),
        "is_error_with_nothing": ("fails with empty content", "tool_error", ""),
        "is_error_of_wrong_type": ("says `yes` for isError", f"{FINE} tool_error", ""),
        "meta_of_wrong_type": ("answers a number for _meta", FINE, ""),
        "asks_for_nothing": ("wants input and does not say which", f"{ANY} timeout", ""),
        "unknown_result_type": ("answers a result of an unknown type", ANY, ""),
        "error_text": ("refuses with a text", "remote unavailable", "result|no"),
        "error_null": ("refuses with null", "remote unavailable", "result"),
        "error_empty": ("refuses with an empty object", REFUSED, "no message"),
        "error_of_wrong_types": ("refuses with wrong types", REFUSED, "no message"),
        "error_huge_code": ("refuses with a code that no integer holds", "remote unavailable",
            "no|JSON"),
        "error_fraction_code": ("refuses with a fraction for a code", REFUSED, "no"),
        "error_true_code": ("refuses with `true` for a code", REFUSED, "no"),
        "json_too_deep": ("answers JSON too deep to be read", "remote unavailable", "JSON"),
        "json_deep": ("answers JSON nine hundred levels deep", ANY, ""),
        "json_huge_number": ("answers a number of five thousand digits", ANY, ""),
        "json_nan": ("answers NaN", ANY, ""),
        "json_half_a_surrogate": ("answers half a surrogate pair", ANY, ""),
        "json_not_utf8": ("answers bytes that are no UTF-8", ANY, ""),
        "json_same_key_twice": ("answers one key twice", FINE, ""),
    }),
    *_rows("call", HANDSHAKE, {
        "thirty_roots": ("asks for the roots thirty times", FINE, ""),
        "ten_thousand_roots": ("asks for the roots ten thousand times", FINE, ""),
        "odd_requests": ("asks what nobody knows, with ids of every type", FINE, ""),
    }),
    *_rows("call", PIPE, {
        "killed_in_a_call": ("is killed in a call", LOST, "ended by SIGKILL"),
        "freezes_in_a_call": ("reads nothing any more", SLOW, "within|answer"),
        "stderr_flood": ("writes 100 MB to stderr", FINE, ""),
        "stderr_without_lines": ("writes 13 MB to stderr without a line end", FINE, ""),
    }),
    *_rows("call", STREAMABLE, {
        "status_500": ("answers HTTP 500", LOST, "HTTP 500"),
        "status_502": ("answers HTTP 502", LOST, "HTTP 502"),
        "status_503": ("answers HTTP 503", LOST, "HTTP 503"),
        "status_429": ("answers HTTP 429", LOST, "HTTP 429"),
        "status_404": ("answers HTTP 404", LOST, "HTTP 404"),
        "status_400_session": ("says by HTTP 400 that it does not know the session",
            "unavailable remote", "session"),
        "status_401": ("answers HTTP 401", "sign_in_needed", "portico login"),
        "status_403": ("answers HTTP 403", LOST, "HTTP 403"),
        "status_307": ("redirects a call", LOST, "redirects"),
        "status_202": ("accepts a call and does not answer", LOST, "202"),
        "status_204": ("answers with no content", LOST, "204|JSON"),
        "status_999": ("answers a status there is not", LOST, "999"),
        "loses_its_sessions": ("forgets every session", LOST, "404"),
        "reset_before_a_reply": ("resets the connection before it replies", LOST, "reset|closed"),
        "closed_before_a_reply": ("closes the connection before it replies", LOST, "closed"),
        "reset_in_the_head": ("resets the connection in the head", LOST, "reset|closed"),
        "reset_in_the_body": ("resets the connection in the body", LOST, "reset|closed"),
        "closed_in_the_body": ("closes the connection in the body", LOST, "closed"),
        "length_too_short": ("sends more than it said", LOST, "HTTP|JSON"),
        "length_for_ever": ("names a length that no integer holds", LOST, "HTTP"),
        "length_never_reached": ("sends less than it said", SLOW, "within"),
        "length_negative": ("names a negative length", LOST, "HTTP"),
        "two_lengths": ("names two lengths", LOST, "HTTP"),
        "length_and_chunks": ("names a length and sends chunks", LOST, "HTTP"),
        "until_the_end_of_the_connection": ("replies until it hangs up", FINE, ""),
        "wrong_content_type": ("calls JSON a page", FINE, ""),
        "html_for_an_answer": ("answers a page", LOST, "JSON"),
        "stream_called_json": ("calls a stream JSON", GARBLED, "JSON"),
        "json_called_stream": ("calls JSON a stream", LOST, "stream"),
        "no_content_type": ("does not say what it sends", FINE, ""),
        "chunks_of_garbage": ("sends chunks without a size", LOST, "HTTP"),
        "chunk_extensions_for_ever": ("sends 100 MB between two chunks", LOST, "head of more|HTTP"),
        "gzip_unprompted": ("compresses unasked", LOST, "compressed"),
        "gzip_unsaid": ("compresses and does not say so", LOST, "JSON"),
        "head_for_ever": ("sends a header of 100 MB", LOST, "head of more"),
        "headers_for_ever": ("sends a million headers", LOST, "head of more"),
        "head_that_drips": ("sends its head byte by byte", SLOW, "within"),
        "interim_replies": ("sends a hundred interim replies first", f"{FINE} unavailable",
            "head of more"),
        "interim_replies_for_ever": ("sends interim replies and nothing else", SLOW,
            "within|head of more"),
        "another_protocol": ("does not speak HTTP", LOST, "HTTP"),
        "upgrade_unprompted": ("switches protocols", LOST, "HTTP"),
        "two_replies": ("replies twice", FINE, ""),
        "closes_after_each_reply": ("hangs up after each reply", FINE, ""),
        "stream_without_end": ("streams comments and no answer", SLOW, "within"),
        "stream_that_ends_unanswered": ("ends its stream without an answer", LOST, "stream"),
        "event_cut": ("hangs up in the middle of an event", LOST, "closed|stream"),
        "event_cut_with_an_id": ("hangs up, and cannot resume", SLOW,
            "closed|stream|within|nothing"),
        "event_without_its_last_line": ("ends its stream before the event has ended", LOST,
            "stream"),
        "events_of_other_kinds": ("streams events of other kinds first", FINE, ""),
    }),
)  # fmt: skip


def on(wire: Wire) -> tuple[Fault, ...]:
    """The faults that can be had on a wire."""
    return tuple(fault for fault in FAULTS if wire in fault.on)
