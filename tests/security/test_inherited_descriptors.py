"""No descriptor that the gateway inherited reaches a server, a program or a script."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client

from tests.fixtures import broken_command
from tests.fixtures.raw_client import RawClient

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="/proc tells what a process has open"
)

TIMEOUT_S = 240.0
_ROOT = str(Path(__file__).parents[2])
_PORTICO = "import sys; from portico.cli.main import main; sys.exit(main())"
Call = Callable[..., Awaitable[Any]]
SCRIPTS = {"python": "1 + 1", "lua": "return 1 + 1", "javascript": "1 + 1"}


@asynccontextmanager
async def gateway(folder: Path, inherited: int, *words: str) -> AsyncGenerator[tuple[Call, int]]:
    """`portico` in a process that inherits a descriptor; a way to call its tools, and its
    number."""
    command, *args = broken_command("healthy")
    listing = {"command": ["ls", "-l", "/proc/self/fd"], "read_only": True}
    servers = {
        "healthy": {"command": command, "args": args},
        "programs": {"commands": {"files": listing}},
    }
    config = folder / "portico.json"
    config.write_text(json.dumps({"servers": servers, "data_dir": str(folder / "data")}))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PORTICO,
        *words,
        "--config",
        str(config),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(inherited,),
        env={
            **{
                name: value for name, value in os.environ.items() if not name.startswith("PORTICO_")
            },
            "PYTHONPATH": os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")])),
        },
    )
    try:
        if words[0] == "stdio":
            raw = RawClient(process)
            await raw.handshake()
            yield raw.call, process.pid
        else:
            assert process.stdout is not None
            async with asyncio.timeout(TIMEOUT_S):
                url = (await process.stdout.readline()).decode().split()[0]
            async with Client(url) as client:

                async def by_url(tool: str, /, **arguments: Any) -> Any:
                    return (await client.call_tool(tool, arguments)).model_dump(
                        mode="json", by_alias=True
                    )

                yield by_url, process.pid
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def answer_of(call: Call, tool: str, /, **arguments: Any) -> Any:
    """The answer of a meta-tool, once the server it needs has been listed."""
    async with asyncio.timeout(TIMEOUT_S):
        while (answer := await call(tool, **arguments)).get("isError"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return answer


def open_files(pid: int) -> list[str]:
    return [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir()]


def holders(pid: int, path: Path) -> list[str]:
    """The processes below one that have a file open, in words; those that cannot be looked at are
    left out."""
    found: list[str] = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            files = open_files(process.pid)
        except OSError:
            continue
        if str(path) in files:
            found.append(" ".join(process.cmdline())[:200])
    return found


@pytest.mark.parametrize("words", [("stdio",), ("serve", "--port", "0")])
async def test_no_server_program_script_or_guard_has_what_the_gateway_inherited(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    secret = tmp_path / "inherited"
    secret.write_text("a secret of the parent")
    inherited = os.open(secret, os.O_RDONLY)
    try:
        async with gateway(tmp_path, inherited, *words) as (call, pid):
            assert str(secret) in open_files(pid)
            await answer_of(call, "call_tool", name="healthy.pid", arguments={})
            listed = await answer_of(call, "call_tool", name="programs.files", arguments={})
            for language, code in SCRIPTS.items():
                await answer_of(call, "run_code", code=code, language=language)
            children = [
                " ".join(one.cmdline()) for one in psutil.Process(pid).children(recursive=True)
            ]
            assert len(children) >= 5, children  # the guard, a server, a process of each engine
            assert holders(pid, secret) == []
            assert str(secret) not in json.dumps(listed)
    finally:
        os.close(inherited)
