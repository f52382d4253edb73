"""`portico demo`: one task on the demo servers, step by step, with the tokens of each step.

A real MCP client talks to the real endpoint in memory; this user's folders are neither read nor
written. --json: `{"counter", "full_listing": {"tools", "tokens"}, "meta_listing": {…}, "steps":
[{"tool", "arguments", "answer", "sent", "received"}], "total"}`.
"""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
from mcp import Client
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from portico.app import GatewayRuntime
from portico.cli import logs
from portico.cli.exit import EXIT_OK
from portico.cli.screen import Screen
from portico.config import Config, Profile
from portico.demo import make_demo_servers
from portico.errors import PorticoError
from portico.rendering.listing_cost import count_listed_tokens
from portico.rendering.token_count import TokenCounter, get_best_counter
from portico.storage.manifests import ManifestStore

TASK = "How far is a marathon of 26.2 miles in kilometres? And its splits?"
_SPLITS_SCRIPT = """\
import asyncio
miles = [6.55, 13.1, 19.65]
found = await asyncio.gather(*[units.convert_units(value=m, \
from_unit="miles", to_unit="km", digits=4) for m in miles])
[one["value"] for one in found]"""
STEPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "Search: which tool does that?",
        "search_tools",
        {"query": "convert miles to kilometres", "limit": 3},
    ),
    ("Describe: what does it take?", "describe_tools", {"names": ["units.convert_units"]}),
    (
        "Call it.",
        "call_tool",
        {
            "name": "units.convert_units",
            "arguments": {"value": 26.2, "from_unit": "miles", "to_unit": "km", "digits": 4},
        },
    ),
    ("Script: several calls at once, one answer.", "run_code", {"code": _SPLITS_SCRIPT}),
)
BAR_WIDTH = 40


@dataclass(frozen=True)
class DemoListing:
    """A `tools/list` and its cost."""

    tools: int
    tokens: int


@dataclass(frozen=True)
class DemoStep:
    """One call of the agent and its cost in tokens."""

    tool: str
    arguments: dict[str, Any]
    answer: str
    sent: int
    received: int


async def run_demo(screen: Screen) -> int:
    """Run the task and show each step."""
    logs.configure_logging("error")
    counter = get_best_counter()
    with tempfile.TemporaryDirectory(prefix="portico-demo-") as folder:
        config = Config(
            servers=make_demo_servers(),
            profiles={"full": Profile(exposure="full")},
            data_dir=Path(folder),
        )
        async with GatewayRuntime(config, manifests=ManifestStore(None)) as gateway:
            with screen.show_spinner("Starting the demo servers …"):
                await gateway.wait_until_listed()
            async with Client(gateway.get_endpoint("full").server) as client:
                full, _ = await _measure_listing(client, counter)
            async with Client(gateway.get_endpoint().server) as client:
                meta, shown = await _measure_listing(client, counter)
                if not screen.as_json:
                    _show_introduction(screen, counter, full, meta, shown, len(config.servers))
                steps: list[DemoStep] = []
                for title, tool, arguments in STEPS:
                    step = await _run_step(client, counter, tool, arguments)
                    steps.append(step)
                    if not screen.as_json:
                        _show_step(screen, len(steps), title, step)
    total = meta.tokens + sum(step.sent + step.received for step in steps)
    if screen.as_json:
        facts = {
            "counter": counter.name,
            "full_listing": asdict(full),
            "meta_listing": asdict(meta),
        }
        screen.write_json({**facts, "steps": [asdict(step) for step in steps], "total": total})
    else:
        _show_total(screen, counter, full, meta, steps, total)
    return EXIT_OK


async def _measure_listing(client: Client, counter: TokenCounter) -> tuple[DemoListing, list[str]]:
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += [
            tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools
        ]
        cursor = page.next_cursor
        if cursor is None:
            break
    tokens = sum(count_listed_tokens(tool, counter.count) for tool in tools)
    return DemoListing(len(tools), tokens), [tool["name"] for tool in tools]


async def _run_step(
    client: Client, counter: TokenCounter, tool: str, arguments: dict[str, Any]
) -> DemoStep:
    result = await client.call_tool(tool, arguments)
    answer = "\n".join(block.text for block in result.content if block.type == "text")
    if result.is_error:
        raise PorticoError(
            f"the demo failed at {tool}: {answer}", advice="This is a bug in Portico."
        )
    sent = counter.count(orjson.dumps({"name": tool, "arguments": arguments}).decode())
    return DemoStep(tool, arguments, answer, sent, counter.count(answer))


def _show_introduction(
    screen: Screen,
    counter: TokenCounter,
    full: DemoListing,
    meta: DemoListing,
    tool_names: list[str],
    server_count: int,
) -> None:
    if counter.name == "o200k_base":
        method = "counted with o200k_base"
    else:
        method = "estimated"
    screen.write_text(
        Text.assemble(
            (f"{full.tools} tools on {server_count} servers, one door.", "bold"),
            f" Tokens are {method}.",
        ),
        "",
        Text.assemble(
            "An agent that gets the full listing reads ",
            (f"{full.tokens:,} tokens", "bold red"),
            " first.",
        ),
        Text.assemble(
            f"Through Portico it reads {len(tool_names)} tools: ",
            (f"{meta.tokens:,} tokens", "bold green"),
            ".",
        ),
        Padding(Text(", ".join(tool_names), style="cyan"), (0, 0, 0, 2), expand=False),
        "",
        Text.assemble("The task: ", (TASK, "italic")),
    )


def _show_step(screen: Screen, number: int, title: str, step: DemoStep) -> None:
    screen.write_text("", Rule(Text(f"{number}. {title}", style="bold"), align="left", style="dim"))
    arguments = ", ".join(
        f"{key}={_format_argument(value)}" for key, value in step.arguments.items()
    )
    screen.write_text(
        Text.assemble((step.tool, "bold cyan"), f"({arguments})", (f"  {step.sent} tokens", "dim"))
    )
    screen.write_text(Padding(Text(step.answer), (0, 0, 0, 2), expand=False))
    screen.write_text(Text(f"{step.received} tokens", style="dim"))


def _format_argument(value: Any) -> str:
    """Format an argument; a script of several lines stays multi-line."""
    if isinstance(value, str) and "\n" in value:
        return '"""\n' + value + '"""'
    return orjson.dumps(value).decode()


def _show_total(
    screen: Screen,
    counter: TokenCounter,
    full: DemoListing,
    meta: DemoListing,
    steps: list[DemoStep],
    total: int,
) -> None:
    screen.write_text("", Rule(Text("What it cost", style="bold"), align="left", style="dim"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row(f"the listing of {meta.tools} tools", f"{meta.tokens:,}")
    for step in steps:
        table.add_row(step.tool, f"{step.sent + step.received:,}")
    table.add_row(
        Text("the whole task through Portico", style="bold"), Text(f"{total:,}", style="bold green")
    )
    table.add_row(
        Text("the full listing alone", style="bold"), Text(f"{full.tokens:,}", style="bold red")
    )
    screen.write_text(table, "")
    width = min(BAR_WIDTH, max(10, screen.out.width - 20))
    for name, tokens, style in (("full listing", full.tokens, "red"), ("Portico", total, "green")):
        bar = "█" * max(1, round(width * tokens / max(full.tokens, total)))
        screen.write_text(Text.assemble(f"{name:<13}", (bar, style)))
    saved = 1 - total / full.tokens
    if counter.name == "o200k_base":
        method = "o200k_base"
    else:
        method = "estimated"
    screen.write_text(
        "",
        f"{saved:.0%} fewer tokens ({method}), and the listing stays about this small "
        "whatever is behind it.",
        Text("Next: portico serve, or put your servers in portico.yaml.", style="dim"),
    )
