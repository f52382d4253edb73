"""Measures what becomes of large results: the answer's header, how long it takes, and whether the
gateway
breathes meanwhile.

    python -m benchmarks.results [--smoke] [--kind KIND …] [--json FILE] [--check]

A real server process on stdio answers with so many bytes of JSON, text, CSV or a picture; the
gateway runs in this process, and a real client asks it over HTTP, from this process too. `gap` is
the longest time by the clock on the wall that a task had to wait which wants to run every two
milliseconds; `idle gap` is the same task's when nobody asked for anything, just before: what the
machine and its other processes do by themselves. `peak` is how much the process grew while it
answered, for each byte of the result. `floor` is decoding and encoding the same message once, as a
gateway would that passes everything whole. Then the end of the result is read by path and by grep,
and a text is put together again from all its parts.
"""

import argparse
import asyncio
import base64
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from mcp.client import Client

from benchmarks.table import Goal, Report, Table, arguments, conclude
from portico.config import BackendConfig, Config
from portico.gateway import GatewayRuntime
from portico.rendering.token_budget import count_tokens
from portico.testing import serve_http

SIZES = {"1 KB": 10**3, "100 KB": 10**5, "1 MB": 10**6, "10 MB": 10**7, "50 MB": 5 * 10**7}
SMOKE = ("1 KB", "1 MB")
KINDS = ("rows", "rows as text", "nested", "one object", "log", "csv", "image")
BEAT_S = 0.002
IDLE_S = 0.3
"""How long nothing happens before each measurement."""
MOST_GAP_MS, MOST_HEADER = 50.0, 500
REASSEMBLED = 10**6
"""The largest text that is read to its last byte, page by page: beyond that it is only more of the
same."""
LAST = "the very last line"


# --- the server


def payload(kind: str, size: int) -> dict[str, Any]:
    """A tool's result of about so many bytes."""
    if kind == "rows":
        return {"content": [], "structuredContent": {"items": _rows(size, 110)}}
    if kind == "rows as text":
        return _text(json.dumps(_rows(size, 115)))
    if kind == "nested":
        row = {
            "user": {"name": "Ada", "tags": ["a", "b"]},
            "log": [{"at": 1.5, "say": "x" * 30}] * 3,
        }
        return _text(json.dumps([{"n": n, **row} for n in range(max(1, size // 240))]))
    if kind == "one object":
        return {
            "content": [],
            "structuredContent": {f"key-{n:07}": "words " * 12 for n in range(max(1, size // 88))},
        }
    if kind == "image":
        data = base64.b64encode(b"\x89PNG" * (size // 4)).decode()
        return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}
    line = "{n:08},2026-01-01T12:00:00,INFO,something of note happened here\n"
    lines = [line.format(n=n) for n in range(max(1, size // 64))]
    lines[0] = "number,time,level,message\n" if kind == "csv" else lines[0]
    return _text("".join(lines) + LAST)


def _rows(size: int, each: int) -> list[dict[str, Any]]:
    return [
        {
            "number": n,
            "title": f"Issue {n}",
            "state": "open",
            "score": n / 7,
            "note": "words about it " * 2,
        }
        for n in range(max(1, size // each))
    ]


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def serve() -> None:
    """Answer on stdio, with what was asked for."""
    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "size": {"type": "integer"}},
    }
    tool = {"name": "make", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
    for line in sys.stdin.buffer:
        asked = orjson.loads(line)
        if "id" not in asked:
            continue
        method = asked["method"]
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
        if method == "initialize":
            info = {"name": "large", "version": "1"}
            answer["result"] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        elif method == "tools/list":
            answer["result"] = {"tools": [tool]}
        elif method == "tools/call":
            answer["result"] = payload(**asked["params"]["arguments"])
        else:
            answer["error"] = {"code": -32601, "message": "no such method"}
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


# --- measuring


@dataclass
class Watch:
    """Describes what was seen while something went on."""

    gap_ms: float = 0.0
    grown: int | None = None


@asynccontextmanager
async def watching() -> AsyncGenerator[Watch]:
    """Watch the event loop and the memory of this process."""
    seen = Watch()

    async def beat() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(BEAT_S)
            now = time.perf_counter()
            seen.gap_ms = max(seen.gap_ms, (now - last - BEAT_S) * 1e3)
            last = now

    beating = asyncio.create_task(beat())
    before = _resident()
    try:
        yield seen
    finally:
        await asyncio.sleep(0.05)  # what is released last counts too
        beating.cancel()
        if before is not None and (after := _resident()) is not None:
            seen.grown = max(0, after[1] - before[0])


def _resident() -> tuple[int, int] | None:
    """Bytes of this process in memory, now and at most since the last call; None where the system
    does not tell.

    The kernel keeps this count: a thread that looked now and then would take turns from what is
    measured.
    """
    try:
        reported = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    now, most = (int(reported[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, most


def floor_ms(kind: str, size: int) -> float:
    """Passing the message whole: one decoding and one encoding."""
    wire = orjson.dumps(payload(kind, size))
    started = time.perf_counter()
    orjson.dumps(orjson.loads(wire))
    return (time.perf_counter() - started) * 1e3


async def ask(client: Client, tool: str, **given: Any) -> Any:
    """A meta-tool's answer."""
    async with asyncio.timeout(120):
        return await client.call_tool(tool, given)


async def read(client: Client, **given: Any) -> str:
    """A part of a result."""
    answer = await ask(client, "read_result", **given)
    said = answer.content[0].text
    assert not answer.is_error, said
    return said


async def reading(client: Client, kind: str, result_id: str) -> tuple[float, ...]:
    """The milliseconds of reading its end by path and by grep."""
    spent: list[float] = []
    end = {"rows": "items[-1].title", "rows as text": "[-1].title", "nested": "[-1].user.name"}.get(
        kind
    )
    wanted = (
        {"path": end}
        if end
        else {"path": "length(keys(@))"}
        if kind == "one object"
        else {"grep": LAST}
    )
    for question in (wanted, {"grep": LAST if kind in ("log", "csv") else "no such words"}):
        started = time.perf_counter()
        said = await read(client, result_id=result_id, **question)
        spent.append((time.perf_counter() - started) * 1e3)
        assert LAST in said or "path" in question or "no such words" in said or "atch" in said, (
            said[:300]
        )
    return tuple(spent)


async def is_reassembled(client: Client, answer: Any, whole: str) -> bool:
    """Decide whether a text is the same again when it is read from its first part to the last."""
    shown: list[str] = []
    said = answer.content[1].text
    result_id = str(next(b.uri for b in answer.content if b.type == "resource_link")).removeprefix(
        "portico://result/"
    )
    while True:
        at = re.search(r'\n\[[^\n]*cursor="([^"]+)"[^\n]*\]$', said)
        shown.append(re.sub(r"^\[bytes [^\n]*\]\n", "", said[: at.start()] if at else said))
        if at is None:
            break
        said = await read(client, result_id=result_id, cursor=at[1])
    return "\n".join(shown).rstrip() == whole


async def run(options: argparse.Namespace) -> Report:
    """Measure."""
    sizes = {name: SIZES[name] for name in (SMOKE if options.smoke else SIZES)}
    rows: list[tuple[Any, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        here = BackendConfig(
            command=sys.executable, args=("-m", "benchmarks.results", "--serve"), protocol="legacy"
        )
        async with GatewayRuntime(
            Config(servers={"large": here}, data_dir=Path(folder))
        ) as gateway:
            await gateway.wait_until_listed()
            async with serve_http(gateway) as url, Client(url) as client:
                await ask(
                    client, "call_tool", name="large.make", arguments={"kind": "log", "size": 10}
                )
                for kind in options.kind or KINDS:
                    for name, size in sizes.items():
                        rows.append(await _row(client, kind, name, size))
                        print(*rows[-1], file=sys.stderr)
                same = [await _same(client, kind) for kind in ("log", "csv")]
    columns = (
        "result",
        "size",
        "header tokens",
        "answer ms",
        "floor ms",
        "idle gap ms",
        "gap ms",
        "peak/byte",
        "path ms",
        "grep ms",
        "reading gap ms",
    )
    idle, longest = max(row[5] for row in rows), max(max(row[6], row[10] or 0) for row in rows)
    goals = (
        Goal("tokens of a header, at most", max(row[2] or 0 for row in rows), MOST_HEADER, 0),
        Goal(f"longest gap of the event loop, ms (idle: {idle:.3g})", longest, MOST_GAP_MS),
        Goal(
            "texts that are the same when read to the end", sum(same), len(same), 0, at_least=True
        ),
    )
    return Report("results", (Table("large results", columns, tuple(rows)),), goals)


async def _row(client: Client, kind: str, name: str, size: int) -> tuple[Any, ...]:
    async with watching() as idle:
        await asyncio.sleep(IDLE_S)
    async with watching() as seen:
        started = time.perf_counter()
        answer = await ask(
            client, "call_tool", name="large.make", arguments={"kind": kind, "size": size}
        )
        spent = (time.perf_counter() - started) * 1e3
    link = next((str(block.uri) for block in answer.content if block.type == "resource_link"), "")
    head = count_tokens(answer.content[0].text) if link else None
    read_ms: tuple[float | None, ...] = (None, None)
    after = Watch()
    if link and kind != "image":
        async with watching() as after:
            read_ms = await reading(client, kind, link.removeprefix("portico://result/"))
    last = after.gap_ms if link and kind != "image" else None
    gaps, peak = (idle.gap_ms, seen.gap_ms), None if seen.grown is None else seen.grown / size
    return kind, name, head, spent, floor_ms(kind, size), *gaps, peak, *read_ms, last


async def _same(client: Client, kind: str) -> bool:
    given: dict[str, Any] = {"kind": kind, "size": REASSEMBLED}
    answer = await ask(client, "call_tool", name="large.make", arguments=given)
    return await is_reassembled(client, answer, payload(**given)["content"][0]["text"])


def main() -> int:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--kind", action="append", choices=KINDS, help="only this kind of result; again for more"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    return conclude(asyncio.run(run(options)), options)


if __name__ == "__main__":
    sys.exit(main())
