"""Library calls that hold the interpreter's lock take no more than their text is long.

Each of these took seconds or minutes before. What is measured is processor time, which other
programs do not add to.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from portico.calls.sensitive_data import mask_text
from portico.catalog.former_tools import FormerTools
from portico.policy.definition_change import DefinitionChange, compare_fields
from portico.policy.definition_scan import scan_definition
from portico.rendering.prose import clip_line
from portico.search.dense.wordpiece import normalise
from portico.search.lexical.tokens import extract_words
from portico.upstream.oauth.challenge import parse_challenge
from portico.upstream.transports.message_streams import is_excessive
from portico.workflows.planning.values import _SEPARATORS  # pyright: ignore[reportPrivateUsage]

MOST_S = 2.5
MARKS = "\u0301\u0327"
SPACES = b" " * (64 * 1024**2)


def _scan(count: int) -> None:
    for number in range(count):
        text = MARKS * 16_384
        scan_definition(json.dumps({"name": f"t{number}", "a": text, "b": text}).encode())


def _compare_enums(size: int) -> None:
    before, after = (
        json.dumps({"enum": [f"{start + n:x}" for n in range(size)]}).encode() for start in (0, 1)
    )
    assert compare_fields(before, after)


def _compare_with_former(count: int) -> None:
    fields = {f"p{n}": {"type": "string"} for n in range(4_000)}
    former = FormerTools(
        {
            f"old_{n}": json.dumps({"inputSchema": {"properties": fields}, "n": n}).encode()
            for n in range(100)
        }
    )
    for number in range(count):
        change = DefinitionChange("tool", f"other {number}", "", None, b'{"description": "x y z"}')
        assert former.find_renamed(change) is None
        assert former.find_similar(change) is None


HOSTILE: dict[str, Callable[[], Any]] = {
    "a line of a server that is an opening brace and spaces": lambda: is_excessive(b"{" + SPACES),
    "a message whose method stands behind spaces": lambda: is_excessive(
        b'{"jsonrpc":"2.0",' + SPACES + b'"method":"x"}'
    ),
    "spaces in a value of an intent": lambda: _SEPARATORS.split("a" + " " * 19_998 + "b"),
    "what a refusal says about signing in": lambda: [parse_challenge("_" * 8_192)] * 10,
    "marks in definitions": lambda: _scan(4),
    "marks in a query, by words": lambda: extract_words("a" + MARKS * 65_536),
    "marks in a query, by meaning": lambda: normalise("a" + MARKS * 65_536),
    "an enum that is another": lambda: _compare_enums(36_000),
    "tools that are all new": lambda: _compare_with_former(100),
    "digits with spaces that no card has": lambda: mask_text("6 " * 200_000, ("card",)),
    "beginnings of tokens": lambda: mask_text("-eyJ" * 1_000_000, ("secrets",)),
    "text of more tokens than letters": lambda: clip_line('中"' * 4_000, 20),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_no_more_than_its_length(name: str) -> None:
    begun = time.process_time()
    HOSTILE[name]()
    assert time.process_time() - begun < MOST_S


def test_a_notification_that_hides_behind_spaces_is_counted() -> None:
    values = b",".join([b"[]"] * 30_000)
    hidden = b"{" + b" " * 2_000 + b'"method":"x","params":[' + values + b"]}"
    assert is_excessive(hidden)
    assert not is_excessive(hidden.replace(values, b"[]"))
    answer = b'{"jsonrpc":"2.0","id":1,"result":[' + values + b"]}"
    assert not is_excessive(answer)
