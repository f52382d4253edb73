"""Log lines hold no more than they should."""

import logging

import pytest

from portico.cli import logs


@pytest.fixture(autouse=True)
def logging_as_it_was():
    names = ("", *logs.OTHERS)
    before = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    for logger, level in before:
        logger.setLevel(level)


def test_at_debug_libraries_do_not_log_whole_messages(capsys: pytest.CaptureFixture[str]):
    logs.set_up("debug")
    for name in ("sse_starlette.sse", "mcp.client.session", "httpx", "httpcore.http11"):
        logging.getLogger(name).debug("chunk: the whole answer")
    logging.getLogger("sse_starlette.sse").info("chunk: the whole answer")
    logging.getLogger("portico.catalog").debug("ours")
    said = capsys.readouterr().err
    assert "ours" in said
    assert "whole answer" not in said


def test_libraries_say_no_more_than_was_asked_for(capsys: pytest.CaptureFixture[str]):
    logs.set_up("error")
    logging.getLogger("httpx").warning("something")
    assert capsys.readouterr().err == ""
