"""A listing on disk as a server: searched and read, never called."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from portico.errors import BackendUnavailable, RecordedOnly, RemoteError
from portico.upstream.backend import Connection
from portico.upstream.backends.factory import RecordedBackend
from tests.upstream.loopback_server import RecordingListener

TOOL: dict[str, Any] = {
    "name": "echo",
    "inputSchema": {"type": "object"},
    "x-vendor": {"kept": 2**80},
}


def recording(slug: str, **lists: Any) -> dict[str, Any]:
    hello = {
        "protocolVersion": "2024-11-05",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": slug},
    }
    return {"slug": slug, "initialize": hello, "tools": [TOOL], **lists}


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.jsonl.gz"
    with gzip.open(path, "wt") as lines:
        for slug in ("one", "two"):
            lines.write(json.dumps(recording(slug, prompts=[{"name": slug}])) + "\n\n")
    return path


async def opened(path: Path, slug: str | None = None) -> Connection:
    return await RecordedBackend("memory", path, slug).connect(RecordingListener())


async def refusal(path: Path, slug: str | None = None) -> BackendUnavailable:
    with pytest.raises(BackendUnavailable) as caught:
        await opened(path, slug)
    return caught.value


async def test_one_line_of_a_file_is_a_server(fleet: Path):
    connection = await opened(fleet, "two")
    assert connection.initialize_info.server_info == {"name": "two"}
    assert (connection.initialize_info.era, connection.initialize_info.protocol_version) == (
        "legacy",
        "2024-11-05",
    )
    assert await connection.request("tools/list") == {"tools": [TOOL]}
    assert await connection.request("prompts/list") == {"prompts": [{"name": "two"}]}
    assert await connection.request("resources/list") == {"resources": []}
    await connection.notify("notifications/anything")
    await connection.close()


async def test_a_whole_file_is_a_server_and_the_first_line_where_none_is_named(
    fleet: Path, tmp_path: Path
):
    single = tmp_path / "server.json"
    single.write_text(json.dumps(recording("single"), indent=2))
    assert (await opened(single)).initialize_info.server_info == {"name": "single"}
    assert (await opened(fleet)).initialize_info.server_info == {"name": "one"}


async def test_a_file_that_was_rewritten_is_read_again(tmp_path: Path):
    path = tmp_path / "server.json"
    path.write_text(json.dumps(recording("before")))
    assert (await opened(path)).initialize_info.server_info == {"name": "before"}
    path.write_text(json.dumps(recording("after")))
    os.utime(path, ns=(1, 1))
    assert (await opened(path)).initialize_info.server_info == {"name": "after"}


@pytest.mark.parametrize(
    "method", ["tools/call", "resources/read", "prompts/get", "completion/complete"]
)
async def test_calls_say_that_this_is_a_recording_and_what_to_do(fleet: Path, method: str):
    with pytest.raises(RecordedOnly, match="memory is a recording") as caught:
        await (await opened(fleet)).request(method, {"name": "echo"})
    assert "command or url" in caught.value.advice
    assert not caught.value.retryable


async def test_other_methods_are_not_found(fleet: Path):
    with pytest.raises(RemoteError, match="logging/setLevel") as caught:
        await (await opened(fleet)).request("logging/setLevel", {"level": "info"})
    assert caught.value.code == -32601


async def test_a_line_that_is_not_there_is_answered_with_those_that_are(fleet: Path):
    error = await refusal(fleet, "three")
    assert "has no entry 'three'" in error.message
    assert "one, two" in error.advice


@pytest.mark.parametrize("text", ["", "not JSON", "[]", '"text"', "{"])
async def test_a_file_that_is_no_recording_is_refused_with_advice(text: str, tmp_path: Path):
    path = tmp_path / "server.json"
    path.write_text(text)
    error = await refusal(path)
    assert "cannot be read" in error.message
    assert ".json" in error.advice


async def test_a_missing_an_empty_and_a_broken_archive_are_refused(tmp_path: Path):
    assert "cannot be read" in (await refusal(tmp_path / "absent.json")).message
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(b'{"slug": "one"}\n')[:-12])
    assert "cannot be read" in (await refusal(cut, "one")).message
    wrong = tmp_path / "wrong.jsonl.gz"
    wrong.write_bytes(b"no archive")
    assert "cannot be read" in (await refusal(wrong, "one")).message
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"\n")
    assert "none at all" in (await refusal(empty)).advice


async def test_a_recording_without_an_introduction_is_still_a_server(tmp_path: Path):
    path = tmp_path / "server.json"
    path.write_text(json.dumps({"initialize": None, "tools": None}))
    connection = await opened(path)
    assert connection.initialize_info.server_info == {}
    assert await connection.request("tools/list") == {"tools": []}
