"""Messages in the lines that a server prints."""

from portico.upstream.transports.message_streams import (
    MAX_SALVAGED_BYTES,
    salvage_message,
)


def test_a_message_is_found_behind_other_text_in_a_line_that_is_not_too_long():
    said = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
    assert salvage_message(b"ready " + said) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert salvage_message(b"x" * MAX_SALVAGED_BYTES + said) is None
