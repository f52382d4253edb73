"""`portico approvals`, `approve` and `deny`, beside a gateway in another process."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from portico.cli.command_table import run_command_line
from tests.security.approval_room import ASK, PAY, get_refusal, open_room


@pytest.fixture(autouse=True)
def without_settings_in_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the configuration say where the data are, and no warning stand beside the output."""
    for name in [name for name in os.environ if name.startswith("PORTICO_")]:
        monkeypatch.delenv(name)


def write_config(folder: Path) -> str:
    path = folder / "portico.json"
    path.write_text(json.dumps({"data_dir": str(folder), "servers": {}, **ASK}))
    return str(path)


async def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command as in a process of its own; returns its exit code and all that it wrote."""

    code = await asyncio.to_thread(run_command_line, arguments)
    written = capsys.readouterr()
    return code, written.out + written.err


async def test_calls_are_listed_approved_and_denied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ("--config", write_config(tmp_path))
    async with open_room(data_dir=tmp_path) as room:
        assert "No call waits" in (await run(capsys, "approvals", *config))[1]
        first = await room.ask()
        second = await room.ask({"to": "eve\x1b[2K\u202e"})
        code, text = await run(capsys, "approvals", *config)
        assert code == 0
        assert f"{first}  bank.pay  waits, 10 min left" in text
        assert 'to: "eve\\u001b[2K\\u202e"' in text
        code, text = await run(capsys, "approve", first, *config)
        assert code == 0
        assert "bank.pay may run once" in text
        assert (await run(capsys, "deny", second, *config))[0] == 0
        assert not (await room.call(PAY)).get("isError")
        refusal = get_refusal(await room.call({"to": "eve\x1b[2K\u202e"}))
        assert refusal["kind"] == "approval_denied"
        assert len(room.runs) == 1
        listed = json.loads((await run(capsys, "approvals", "--json", *config))[1])["approvals"]
        assert [(one["state"], one["decided_by"]) for one in listed] == [
            ("used", "local user"),
            ("denied", "local user"),
        ]


async def test_a_wrong_id_fails_with_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ("--config", write_config(tmp_path))
    for ids in ((), ("0000000000",), ("x; drop table",)):
        code, text = await run(capsys, "approve", *ids, *config)
        assert code != 0
        assert "portico approvals" in text
