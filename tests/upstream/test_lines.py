"""What a server's last words are taken to be."""

import pytest

from portico.upstream.transports.output_lines import (
    MAX_SALVAGED_BYTES,
    pick_telling_line,
    salvage_message,
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            [
                "starting",
                "Error: getaddrinfo ENOTFOUND example.invalid",
                "    at lookup (node:1:2)",
                "  errno: -3008",
                "}",
            ],
            "Error: getaddrinfo ENOTFOUND example.invalid",
        ),
        (
            ["Traceback (most recent call last):", "ValueError: no token", "bye bye"],
            "ValueError: no token",
        ),
        (["permission denied while connecting", "done"], "permission denied while connecting"),
        (
            ["Error: EXAMPLE_API_KEY is required", "{", "  code: 1", "}"],
            "Error: EXAMPLE_API_KEY is required",
        ),
        (["Enter your API key: "], "Enter your API key:"),
        (["listening", "ready", "}"], "ready"),
        (["}", "12:00", ""], ""),
        ([], ""),
    ],
)
def test_the_line_that_tells_most_is_quoted(said: list[str], told: str):
    assert pick_telling_line(said) == told


def test_a_message_is_found_behind_other_text_in_a_line_that_is_not_too_long():
    said = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
    assert salvage_message(b"ready " + said) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert salvage_message(b"x" * MAX_SALVAGED_BYTES + said) is None
