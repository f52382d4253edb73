"""ContextForge: set through the environment, and filled once through its REST interface; its
database remembers."""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.peering import installation, running_gateway
from benchmarks.peering.gateways import Gateway, Request
from benchmarks.peering.upstreams import Upstream

_ADMIN = "admin@example.com"
_REGISTER_S = 60.0
OFF = (
    "MCP_REQUIRE_AUTH",
    "RATE_LIMITING_ENABLED",
    "PLUGINS_ENABLED",
    "MCPGATEWAY_UI_ENABLED",
    "MCPGATEWAY_ADMIN_API_ENABLED",
    "OBSERVABILITY_METRICS_ENABLED",
    "STRUCTURED_LOGGING_ENABLED",
    "PERFORMANCE_TRACKING_ENABLED",
    "DB_METRICS_RECORDING_ENABLED",
    "METRICS_AGGREGATION_ENABLED",
    "SECURITY_HEADERS_ENABLED",
    "COMPRESSION_ENABLED",
)
ON = (
    "USE_STATEFUL_SESSIONS",
    "JSON_RESPONSE_ENABLED",
    "REGISTRY_CACHE_ENABLED",
    "TOOL_LOOKUP_CACHE_ENABLED",
    "SSRF_ALLOW_LOCALHOST",
)


class ContextForge(Gateway):
    name = "contextforge"
    package = installation.CONTEXTFORGE
    settings = (
        "SQLite, CACHE_TYPE=memory, no authentication on /mcp, one worker, servers "
        "registered before; on: stateful "
        "sessions (it keeps its own session to a server), caches of registry and "
        "tools; off: rate limits, plugins, UI, "
        "metrics, tracing, compression"
    )
    no_search = "lists every tool; no search"

    def write(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        password = f"Aa1!{secrets.token_urlsafe(24)}"
        reported = {
            "DATABASE_URL": f"sqlite:///{folder / 'mcp.db'}",
            "CACHE_TYPE": "memory",
            "TOOL_CONCURRENT_LIMIT": "1000",
            "LOG_LEVEL": "ERROR",
            "JWT_SECRET_KEY": secrets.token_hex(32),
            "AUTH_ENCRYPTION_SECRET": secrets.token_hex(32),
            **dict.fromkeys(
                ("BASIC_AUTH_PASSWORD", "PLATFORM_ADMIN_PASSWORD", "DEFAULT_USER_PASSWORD"),
                password,
            ),
            **dict.fromkeys(OFF, "false"),
            **dict.fromkeys(ON, "true"),
        }
        (folder / "environment.json").write_text(json.dumps(reported), "utf-8")

    def command(self, folder: Path, port: int) -> list[str]:
        return [*self.place.script("mcpgateway"), "--host", "127.0.0.1", "--port", str(port)]

    def environment(self, folder: Path) -> Mapping[str, str]:
        return json.loads((folder / "environment.json").read_text("utf-8"))

    async def fill(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        """Start it once, and tell it of every server; one that does not answer now is not taken."""
        empty = self.place.folder / "empty.db"
        if empty.exists():
            shutil.copy(empty, folder / "mcp.db")
        port = processes.free_port()
        with running_gateway.running(self, folder, port) as running:
            await running.until_listening()
            if not empty.exists():
                # Making its tables takes it half a minute, and is the same every time.
                await asyncio.to_thread(_copy_database, folder / "mcp.db", empty)
            token = await asyncio.to_thread(self._token, folder)
            for one in upstreams:
                await asyncio.to_thread(_register, port, token, one)

    def endpoints(self, port: int, servers: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(servers, f"http://127.0.0.1:{port}/mcp/")

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Request:
        return f"{server}-{tool}", arguments

    def _token(self, folder: Path) -> str:
        """A token of its administrator, made by its own program."""
        key = self.environment(folder)["JWT_SECRET_KEY"]
        program = [
            "-m",
            "mcpgateway.utils.create_jwt_token",
            "--username",
            _ADMIN,
            "--exp",
            "60",
            "--secret",
            key,
        ]
        reported = {**os.environ, **self.environment(folder)}
        said = subprocess.run(
            [self.place.python, *program],
            capture_output=True,
            text=True,
            timeout=_REGISTER_S,
            check=False,
            cwd=folder,
            env=reported,
        )
        if said.returncode:
            raise processes.DidNotStart(f"contextforge made no token: {said.stderr[-300:]}")
        return said.stdout.split()[-1]


def _copy_database(database: Path, to: Path) -> None:
    """A whole copy of a database that is in use; there under its name only when it is whole."""
    part = to.with_suffix(".part")
    part.unlink(missing_ok=True)
    with (
        contextlib.closing(sqlite3.connect(database)) as source,
        contextlib.closing(sqlite3.connect(part)) as target,
    ):
        source.backup(target)
    part.replace(to)


def _register(port: int, token: str, upstream: Upstream) -> None:
    body = {
        "name": upstream.name,
        "url": upstream.url,
        "transport": "STREAMABLEHTTP",
        "visibility": "public",
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/gateways",
        json.dumps(body).encode(),
        {"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_REGISTER_S) as response:
            response.read()
    except urllib.error.HTTPError as refused:
        if refused.code < 500 and refused.code != 422:
            raise processes.DidNotStart(
                f"contextforge did not take {upstream.name}: {refused.read()[:300]!r}"
            ) from None
    except TimeoutError:
        pass
