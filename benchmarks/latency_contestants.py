"""Measures what may stand between a client and a server: the contestants of the latency benchmark,
and how
each is reached."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import processes, programs

READY_S = 30.0


class WrongAnswer(Exception):
    """A contestant did not echo what it was sent."""


@dataclass(frozen=True)
class Contestant:
    """Something a client can connect to, and the call that ends at the echo tool."""

    name: str
    reach: str | list[str]
    """A URL, or the command of a stdio server."""
    tool: str = "echo"
    listens: tuple[int, list[str]] | None = None
    """What has to be started first, and the port it then listens on; a stdio server is started by
    its client."""
    credential: str = ""
    """The bearer token that its client sends."""
    needs: tuple[int, list[str]] | None = None
    """What else has to be started before, and the port it listens on."""

    def arguments(self, text: str) -> dict[str, Any]:
        return (
            {"name": "echo.echo", "arguments": {"text": text}}
            if self.tool == "call_tool"
            else {"text": text}
        )


def list_programs(contestants: Iterable[Contestant]) -> dict[int, list[str]]:
    """Return what has to be started, by port, in this order."""
    needed = [found for one in contestants for found in (one.needs, one.listens)]
    return dict(filter(None, needed))


async def until_ready(call: Callable[[], Awaitable[None]]) -> None:
    """A gateway may listen before it has listed its server."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            return await call()
        except Exception:  # whatever a gateway says while it starts; it has so long
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


def contest(route: str, era: str, folder: Path, server: str = "upstream") -> list[Contestant]:
    """Return who takes part; `direct` first, because the others reach the server that it starts."""
    if route == "stdio":
        return _over_stdio(era, folder, server)
    return _over_http(era, folder, server, to_stdio=route != "http")


def _over_stdio(era: str, folder: Path, server: str) -> list[Contestant]:
    upstream = programs.command(server, era=era)
    serve = [*processes.portico(), "stdio", "--config", str(_config(folder, upstream, era))]
    return [
        Contestant("direct", upstream),
        Contestant("byte relay", programs.command("relay", *upstream)),
        Contestant("portico", serve, "echo__echo"),
        Contestant("portico call_tool", [*serve, "--profile", "meta"], "call_tool"),
        Contestant("fastmcp shared", programs.command("fastmcp-shared", *upstream, era=era)),
        Contestant("fastmcp proxy", programs.command("fastmcp", *upstream, era=era)),
    ]


def _over_http(era: str, folder: Path, server: str, *, to_stdio: bool) -> list[Contestant]:
    port, relay, portico, shared, fresh = (processes.free_port() for _ in range(5))
    upstream = _url(port)
    config = _config(folder, programs.command(server, era=era) if to_stdio else upstream, era)
    serve = (
        portico,
        [*processes.portico(), "serve", "--config", str(config), "--port", str(portico)],
    )
    contestants = [
        Contestant(
            "direct", upstream, listens=(port, programs.command(server, port=port, era=era))
        ),
        Contestant(
            "byte relay",
            _url(relay),
            listens=(relay, programs.command("relay", str(port), port=relay)),
        ),
        Contestant("portico", _url(portico), "echo__echo", serve),
        Contestant("portico call_tool", f"{_url(portico)}/p/meta", "call_tool", serve),
    ]
    if not to_stdio:
        proxies = {
            "fastmcp shared": ("fastmcp-shared", shared),
            "fastmcp proxy": ("fastmcp", fresh),
        }
        contestants += [
            Contestant(
                name,
                _url(own),
                listens=(own, programs.command(program, upstream, port=own, era=era)),
            )
            for name, (program, own) in proxies.items()
        ]
    return contestants


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


def _config(folder: Path, upstream: str | list[str], era: str) -> Path:
    reach = (
        {"url": upstream}
        if isinstance(upstream, str)
        else {"command": upstream[0], "args": upstream[1:]}
    )
    return processes.write_config(
        folder,
        {
            "exposure": "full",
            "profiles": {"meta": {"exposure": "meta"}},
            "servers": {"echo": {**reach, "protocol": era}},
        },
    )
