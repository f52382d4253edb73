"""Secrets are read from the keychain, files and programs: within limits, once for all who wait."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from portico.config import Config
from portico.config_file.secret_references import SecretReference, known_secrets
from portico.upstream import secret_reader
from portico.upstream.error_mask import ErrorMask
from portico.upstream.secret_reader import SecretReader, SecretUnavailable
from portico.upstream.transports.process import ProcessGuard
from tests.upstream.loopback_server import TEST_TIMEOUT_S

KEYCHAIN = """
import json, os, keyring.backend, keyring.errors

class Keyring(keyring.backend.KeyringBackend):
    priority = 1
    def get_password(self, service, name):
        if service == "locked":
            raise keyring.errors.KeyringLocked("no")
        return json.loads(os.environ["TEST_KEYCHAIN"]).get(f"{service} {name}")
    def set_password(self, service, name, password): ...
"""


@pytest.fixture
def guard() -> Generator[ProcessGuard]:
    guard = ProcessGuard()
    yield guard
    guard.close()


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def reader(guard: ProcessGuard, now: list[float]) -> SecretReader:
    return SecretReader(guard, lambda: now[0])


def program(code: str, *arguments: object) -> SecretReference:
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return SecretReference("cmd", shlex.join(words))


async def read(reader: SecretReader, reference: SecretReference) -> str:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        return (await reader.read_all([reference]))[reference]


async def fail(reader: SecretReader, reference: SecretReference) -> SecretUnavailable:
    with pytest.raises(SecretUnavailable) as caught:
        await read(reader, reference)
    return caught.value


async def test_a_program_is_run_without_a_shell(reader: SecretReader) -> None:
    code = "import sys; print('|'.join(sys.argv[1:]))"
    assert await read(reader, program(code, "$HOME; rm *", "`id`")) == "$HOME; rm *|`id`"


async def test_a_file_is_read_without_its_last_line_break(
    reader: SecretReader, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("line 1\nline 2\n")
    assert await read(reader, SecretReference("file", str(tmp_path / "key"))) == "line 1\nline 2"


async def test_many_who_wait_run_a_program_once(
    reader: SecretReader, now: list[float], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    reference = program("import sys; open(sys.argv[1], 'a').write('.'); print('s3cr3t')", runs)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        answers = await asyncio.gather(*(reader.read_all([reference]) for _ in range(20)))
    assert {answer[reference] for answer in answers} == {"s3cr3t"}
    assert runs.read_text() == "."
    await read(reader, reference)
    assert runs.read_text() == "."
    await reader.read_again([reference])
    assert runs.read_text() == ".."
    await reader.read_again([reference])
    await read(reader, reference)
    assert runs.read_text() == ".."
    now[0] += secret_reader.KEPT_S
    await read(reader, reference)
    assert runs.read_text() == "..."


async def test_one_who_gives_up_does_not_end_the_reading_of_others(
    reader: SecretReader, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    code = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(.01)\nprint(1)"
    reference = program(code, go)
    first = asyncio.create_task(read(reader, reference))
    second = asyncio.create_task(read(reader, reference))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first}, timeout=TEST_TIMEOUT_S)
    go.touch()
    assert await second == "1"


async def test_a_program_that_fails_is_told_with_its_last_words(reader: SecretReader) -> None:
    error = await fail(reader, program("import sys; sys.exit('not signed in')"))
    assert "ended with code 1: not signed in" in error.message
    assert sys.executable in error.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("pass", "it is empty"),
        ("print('x' * 100_000)", "larger than 65536 bytes"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')", "not UTF-8"),
    ],
)
async def test_what_is_no_secret_is_refused(reader: SecretReader, code: str, reason: str) -> None:
    assert reason in (await fail(reader, program(code))).message


async def test_a_program_that_never_ends_is_ended(
    reader: SecretReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_reader, "READ_TIMEOUT_S", 0.2)
    error = await fail(reader, program("import time; time.sleep(600)"))
    assert "it took more than 0.2 s" in error.message


async def test_a_program_that_is_not_there_is_named(reader: SecretReader) -> None:
    error = await fail(reader, SecretReference("cmd", "no-such-program-at-all --x"))
    assert "${cmd:no-such-program-at-all …}" in error.message


async def test_a_pipe_or_folder_is_no_secret(reader: SecretReader, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        error = await fail(reader, SecretReference("file", str(path)))
        assert "it is not a file" in error.message or "Is a directory" in error.message


async def test_the_keychain_is_asked(
    reader: SecretReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import keyring
    from keyring.core import load_keyring

    (tmp_path / "test_keychain.py").write_text(KEYCHAIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TEST_KEYCHAIN", json.dumps({"portico/web ana": "from the keychain"}))
    before = keyring.get_keyring()
    keyring.set_keyring(load_keyring("test_keychain.Keyring"))
    try:
        reference = SecretReference("keyring", "portico/web/ana")
        assert await read(reader, reference) == "from the keychain"
        missing = await fail(reader, SecretReference("keyring", "portico/web/bob"))
        assert "no such entry" in missing.message
        assert "keyring set portico/web bob" in missing.advice
        locked = await fail(reader, SecretReference("keyring", "locked/x"))
        assert "KeyringLocked" in locked.message
    finally:
        keyring.set_keyring(before)


async def test_a_secret_that_was_read_is_masked_from_then_on(
    reader: SecretReader, tmp_path: Path
) -> None:
    mask = ErrorMask(Config)
    assert mask.mask_text("three plain words") == "three plain words"
    (tmp_path / "key").write_text("three plain words")
    await read(reader, SecretReference("file", str(tmp_path / "key")))
    assert "three plain words" in known_secrets.list_values()
    assert mask.mask_text("it says three plain words") == "it says ***"
