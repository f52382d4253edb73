"""Log lines hold no more than they should, each is one line, and programs can read them."""

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext

from portico.cli import logs
from portico.cli.log_renderer import MAX_TEXT_CHARS, LogRecordRenderer

logger = logging.getLogger("portico.test")
SECRET = "correct horse battery"
"""It does not look like one."""


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Generator[None]:
    names = ("", *logs.LIBRARY_LOG_LEVELS)
    before = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    handlers = logging.getLogger().handlers[:]
    yield
    logging.captureWarnings(False)
    logging.getLogger().handlers[:] = handlers
    for one, level in before:
        one.setLevel(level)


def said(captured: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON line that was written."""
    (line,) = captured.readouterr().err.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def record_of(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    kind = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("portico.test", logging.WARNING, __file__, 1, message, args, kind)


def raised(error: BaseException) -> BaseException:
    """An error that has been somewhere."""
    _local = SECRET  # to be seen by nobody
    try:
        raise error
    except BaseException as caught:
        return caught


def test_at_debug_libraries_do_not_log_whole_messages(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("debug")
    for name in ("sse_starlette.sse", "mcp.client.session", "httpx", "httpcore.http11"):
        logging.getLogger(name).debug("chunk: the whole answer")
    logging.getLogger("sse_starlette.sse").info("chunk: the whole answer")
    logging.getLogger("portico.catalog").debug("ours")
    written = capsys.readouterr().err
    assert "ours" in written
    assert "whole answer" not in written


def test_libraries_say_no_more_than_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("error")
    logging.getLogger("httpx").warning("something")
    assert capsys.readouterr().err == ""


def test_a_json_line_says_when_how_serious_who_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("info", format="json")
    logger.info("%s is %s", "disk", "full")
    line = said(capsys)
    moment = datetime.fromisoformat(line.pop("time"))
    assert moment.utcoffset() == datetime.now(UTC).utcoffset()
    assert line == {"level": "info", "logger": "portico.test", "message": "disk is full"}


def test_a_json_line_tells_an_exception_with_its_causes_and_no_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure_logging("info", format="json", secrets=[SECRET])
    error = RuntimeError("the outer one")
    error.__cause__ = raised(OSError(f"inner {SECRET}"))
    error.add_note("seen on a Monday")
    logger.warning("failed", exc_info=raised(error))
    line = said(capsys)
    outer, inner = line["exception"]
    assert (outer["type"], outer["message"], outer["notes"]) == (
        "RuntimeError",
        "the outer one",
        ["seen on a Monday"],
    )
    assert (inner["type"], inner["message"]) == ("OSError", "inner ***")
    assert outer["frames"][-1]["function"] == "raised"
    assert set(outer["frames"][-1]) == {"file", "line", "function"}
    assert "correct" not in json.dumps(line)


def test_the_exceptions_of_a_group_are_told_and_a_circle_of_causes_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure_logging("info", format="json")
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    logger.error("both", exc_info=ExceptionGroup("several", [one, other]))
    assert [told["type"] for told in said(capsys)["exception"]] == [
        "ExceptionGroup",
        "ValueError",
        "KeyError",
    ]


def test_within_a_span_that_is_recorded_a_json_line_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Recording(NonRecordingSpan):
        def is_recording(self) -> bool:
            return True

    logs.configure_logging("info", format="json")
    context = SpanContext(0xABC, 0xDEF, is_remote=False)
    with trace.use_span(Recording(context)):
        logger.info("inside")
    line = said(capsys)
    assert (line["trace_id"], line["span_id"]) == (f"{0xABC:032x}", f"{0xDEF:016x}")
    with trace.use_span(NonRecordingSpan(context)):
        logger.info("nobody records")
    assert "trace_id" not in said(capsys)


def test_what_python_warns_of_is_a_json_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("info", format="json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("this will go", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert "this will go" in said(capsys)["message"]


FORGED = "fine\n12:00:00 ERROR portico.audit: all is well\r\x1b[2K\x85next\u2028more\u202edesrever"


@pytest.mark.parametrize("format", ["text", "json"])
def test_nothing_that_was_said_can_begin_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], format: logs.LogFormat
) -> None:
    logs.configure_logging("info", format=format)
    logger.warning("the server said: %s", FORGED)
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert len(written.splitlines()) == 1
    assert not {"\x1b", "\r", "\x85", "\u2028", "\u202e"} & set(written)
    assert "all is well" in written


def test_in_text_every_line_of_a_traceback_is_set_in(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("info", secrets=[SECRET])
    logger.error("failed", exc_info=raised(RuntimeError(f"{FORGED} {SECRET}")))
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith("ERROR portico.test: failed")
    assert len(rest) > 2
    assert all(line.startswith("  | ") for line in rest)
    assert "correct" not in "".join(rest)
    assert "in raised" in "".join(rest)
    assert "raise error" in "".join(rest)


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_line_that_cannot_be_written_is_no_error_for_the_caller(
    capsys: pytest.CaptureFixture[str], format: logs.LogFormat
) -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError(SECRET)

    logs.configure_logging("info", format=format)
    logger.warning("%s", Mute())
    logger.warning("%d of %d", "one")
    written = capsys.readouterr().err.splitlines()
    assert len(written) == 2
    assert all("could not be written" in line and SECRET not in line for line in written)
    if format == "json":
        assert all(json.loads(line)["level"] == "error" for line in written)


def test_an_exception_that_cannot_be_read_is_told_by_its_kind() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    line = json.loads(LogRecordRenderer(()).render_json(record_of("failed", error=raised(Mute()))))
    assert line["exception"][0]["type"].endswith("Mute")


def test_a_text_without_end_is_cut_and_no_half_of_a_secret_is_left() -> None:
    cleaning = LogRecordRenderer([SECRET])
    line = json.loads(cleaning.render_json(record_of("x" * 10_000_000)))
    assert len(line["message"]) < MAX_TEXT_CHARS + 100
    assert "10,000,000 characters" in line["message"]
    for shift in range(0, len(SECRET), 5):
        message = json.loads(cleaning.render_json(record_of("y" * shift + f"{SECRET} " * 10_000)))[
            "message"
        ]
        assert "correct" not in message


def test_secrets_are_asked_for_when_the_first_line_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[bool] = []

    def secrets() -> list[str]:
        asked.append(True)
        return [SECRET]

    logs.configure_logging("info", secrets=secrets)
    assert not asked
    logger.info("it is %s", SECRET)
    logger.info("it is %s", SECRET)
    assert asked == [True]
    assert capsys.readouterr().err.count("it is ***") == 2


def test_a_value_of_five_characters_is_not_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("info", secrets=["plain", "plainer"])
    logger.info("plain words are plainer")
    assert capsys.readouterr().err.endswith("plain words are ***\n")


Path = Callable[[str], logging.LogRecord]
PATHS: dict[str, Path] = {
    "message": lambda secret: record_of(f"said {secret} aloud"),
    "argument": lambda secret: record_of("said %s aloud", secret),
    "repr": lambda secret: record_of("said %r aloud", {"key": [secret]}),
    "bytes": lambda secret: record_of("said %r aloud", secret.encode()),
    "json": lambda secret: record_of("said %s aloud", json.dumps({"key": secret})),
    "exception": lambda secret: record_of("failed", error=raised(ValueError(secret))),
    "repr of an exception": lambda secret: record_of("failed: %r", ValueError(secret)),
    "cause": lambda secret: record_of("failed", error=_caused(secret)),
    "group": lambda secret: record_of(
        "failed", error=ExceptionGroup("x", [ValueError(f"a {secret} b")])
    ),
    "name of a group": lambda secret: record_of(
        "failed", error=ExceptionGroup(secret, [ValueError("inner")])
    ),
    "syntax": lambda secret: record_of("failed", error=SyntaxError("wrong", ("f", 1, 1, secret))),
    "note": lambda secret: record_of("failed", error=_noted(secret)),
    "second line": lambda secret: record_of(f"first\n{secret}\nlast"),
}


def _caused(secret: str) -> BaseException:
    error = RuntimeError("outer")
    error.__cause__ = ValueError(f"inner: {secret}")
    return error


def _noted(secret: str) -> BaseException:
    error = RuntimeError("outer")
    error.add_note(f"by the way: {secret}")
    return error


CORE = "Qz7Kw9"
"""In every planted secret, and nowhere else."""


@example(before="0\x85", after="", path="group", format="text")
@given(
    before=st.text(max_size=12),
    after=st.text(max_size=12),
    path=st.sampled_from(sorted(PATHS)),
    format=st.sampled_from(["text", "json"]),
)
def test_no_line_holds_a_planted_secret_whatever_way_it_takes(
    before: str, after: str, path: str, format: str
) -> None:
    secret = f"{before}{CORE}{after}".encode(errors="replace").decode()
    cleaning = LogRecordRenderer([secret])
    line = (cleaning.render_json if format == "json" else cleaning.render_text)(PATHS[path](secret))
    assert CORE not in line
    if format == "json":
        assert json.loads(line)["level"] == "warning"


def test_a_gateway_that_writes_no_line_loads_nothing_for_it() -> None:
    code = (
        "import sys; from portico.cli import logs; logs.configure_logging('warning', "
        "format='json', secrets=lambda: ['abcdefg']);"
        "print(sorted({'portico.cli.log_renderer', 'portico.config_file.mask', "
        "'traceback'} & set(sys.modules)));"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True
    )
    assert "portico" not in done.stdout
