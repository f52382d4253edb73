"""Checks of every answer: no failure of the gateway, and nothing of its internals."""

import json
import re
from typing import Any

from portico import errors

Message = dict[str, Any]

HEADER_MISMATCH, URL_ELICITATION = -32001, -32042
CODES = {
    value
    for name, value in vars(errors).items()
    if isinstance(value, int) and value < -32_000 and name.isupper()
} | {HEADER_MISMATCH, URL_ELICITATION, -32_021, -32_020}
"""Every error code that the protocol or Portico knows."""
LEAKS = re.compile(
    r"Traceback \(most recent|File \\?\"[^\"]*\.py|site-packages|/portico/\w+|the "
    r"gateway failed|object at 0x"
    r"|\b(?:"
    r"KeyError|AttributeError|IndexError|AssertionError|NotImplementedError|RuntimeError|UnicodeEncodeError)\b"
    r"|NoneType|pydantic|ExceptionGroup|internal error|\"kind\": ?\"internal\"",
    re.IGNORECASE,
)


def check_answer(answer: Message, *, echo: str = "") -> Message:
    """An answer that is one: a result, or an error of a known code, and nothing of ours shows in
    its words.

    What was asked for may come back in them: that is the `echo`.
    """
    assert ("result" in answer) != ("error" in answer), answer
    if "error" in answer:
        error = answer["error"]
        assert error["code"] in CODES, answer
        assert isinstance(error["message"], str), answer
    plain(json.dumps(answer, ensure_ascii=False), echo=echo)
    return answer


def plain(text: str, *, echo: str = "") -> None:
    """A text that shows nothing of ours."""
    if (leak := LEAKS.search(text)) and leak[0] not in echo:
        raise AssertionError(
            f"{leak[0]!r} shows in: {text[max(0, leak.start() - 300) : leak.end() + 300]}"
        )


def tool_result(answer: Message) -> Message | None:
    """The result of a call, if it is a whole one; None if the answer is an error."""
    check_answer(answer)
    if "error" in answer:
        return None
    result = answer["result"]
    assert isinstance(result.get("content"), list), answer
    for block in result["content"]:
        assert isinstance(block, dict), answer
        assert isinstance(block.get("type"), str), answer
    return result
