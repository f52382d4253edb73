"""`portico demo`: an agent's work on the demo servers, step by step, with the tokens of each step.

A real MCP client talks to the real endpoint in memory; this user's folders are neither read nor
written. --json: `{"counter", "full_listing": {"tools", "tokens"}, "meta_listing": {…}, "steps":
[{"tool", "arguments", "answer", "sent", "received"}], "total", "large_result" (tokens of the
result that was stored), "direct" (tokens of the full listing and that result)}`.
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

from portico.cli import logs
from portico.cli.exit import EXIT_OK
from portico.cli.options import OutputOptions
from portico.cli.screen import Screen
from portico.config import Budgets, Config
from portico.demo import make_demo_servers
from portico.errors import PorticoError
from portico.gateway import GatewayRuntime
from portico.profiles.view_cost import measure_servers, measure_view, sum_costs
from portico.rendering.token_budget import TokenCounter, get_best_counter
from portico.storage.manifests import ManifestStore

TASK = (
    "How far is a marathon of 26.2 miles in kilometres, and its splits? "
    "Where in the world is the clock off by half an hour? Then clear the notebook."
)
_SPLITS_SCRIPT = """\
import asyncio
miles = [6.55, 13.1, 19.65]
found = await asyncio.gather(*[units.convert_units(value=m, \
from_unit="miles", to_unit="km", digits=4) for m in miles])
[one["value"] for one in found]"""
_ZONES_SCRIPT = """\
zones = await clock.list_time_zones()
sorted({zone["utc_offset"] for zone in zones["result"] if zone["utc_offset"][3:] != "00"})"""
LARGE_TOOL = "clock.list_time_zones"
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
    ("A large result is stored, and summarised.", "call_tool", {"name": LARGE_TOOL}),
    ("Script: read all of it, return little.", "run_code", {"code": _ZONES_SCRIPT}),
    (
        "Approval: a workflow stops before it deletes.",
        "run_workflow",
        {
            "steps": [
                {"id": "made", "tool": "notes.create_note", "arguments": {"title": "Old"}},
                {"id": "gone", "tool": "notes.delete_note", "arguments": {"id": "${made.id}"}},
            ]
        },
    ),
)
BAR_WIDTH = 40


@dataclass(frozen=True)
class DemoListing:
    """Listed tools and their cost with the instructions, as `portico tokens` counts it."""

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


async def run_demo(options: OutputOptions) -> int:
    """Run the task and show each step."""
    screen = options.make_screen()
    logs.configure_logging("error")
    counter = get_best_counter()
    steps: list[DemoStep] = []
    with tempfile.TemporaryDirectory(prefix="portico-demo-") as folder:
        config = Config(
            servers=make_demo_servers(),
            budgets=Budgets(result=1_000),
            data_dir=Path(folder),
        )
        async with GatewayRuntime(config, manifests=ManifestStore(None)) as gateway:
            with screen.show_spinner("Starting the demo servers …"):
                await gateway.wait_until_listed()
            view = gateway.get_view()
            direct = sum_costs("all", measure_servers(view.snapshot, counter))
            full = DemoListing(direct.tools, direct.tokens)
            own = await measure_view(view, counter)
            meta = DemoListing(own.tools, own.tokens)
            async with Client(gateway.get_endpoint().server) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                if not screen.as_json:
                    _show_introduction(screen, counter, full, meta, names)
                for title, tool, arguments in STEPS:
                    steps.append(await _run_step(client, counter, tool, arguments))
                    if not screen.as_json:
                        _show_step(screen, len(steps), title, steps[-1])
            large = await _measure_large_result(gateway, counter)
    total = meta.tokens + sum(step.sent + step.received for step in steps)
    if screen.as_json:
        data = {
            "counter": counter.name,
            "full_listing": asdict(full),
            "meta_listing": asdict(meta),
            "steps": [asdict(step) for step in steps],
            "total": total,
            "large_result": large,
            "direct": full.tokens + large,
        }
        screen.write_json(data)
    else:
        costs = {f"the listing of {meta.tools} tools": meta.tokens}
        _show_costs(screen, costs, steps, {"the full listing": full.tokens, LARGE_TOOL: large})
        saved = 1 - total / (full.tokens + large)
        screen.write_text(
            "",
            f"{saved:.0%} fewer tokens ({_get_method(counter)}), and the listing stays about this "
            "small whatever is behind it.",
            Text(
                "Next: portico adopt takes over the servers that your clients have, and portico "
                "install CLIENT connects a client.",
                style="dim",
            ),
        )
    return EXIT_OK


def _get_method(counter: TokenCounter) -> str:
    if counter.name == "o200k_base":
        return "o200k_base"
    return "estimated"


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


async def _measure_large_result(gateway: GatewayRuntime, counter: TokenCounter) -> int:
    """Measure what the large result costs a client that gets it whole."""
    tool = gateway.get_view().snapshot.resolve_tool(LARGE_TOOL)
    result = await gateway.calls.call(tool, {})
    return sum(counter.count(block.get("text", "")) for block in result["content"])


def _show_introduction(
    screen: Screen, counter: TokenCounter, full: DemoListing, meta: DemoListing, names: list[str]
) -> None:
    servers = len(make_demo_servers())
    method = "estimated"
    if counter.name == "o200k_base":
        method = "counted with o200k_base"
    screen.write_text(
        Text.assemble(
            (f"{full.tools} tools on {servers} servers, one endpoint.", "bold"),
            f" Tokens are {method}.",
        ),
        "",
        Text.assemble(
            "An agent that gets the full listing reads ",
            (f"{full.tokens:,} tokens", "bold red"),
            " first.",
        ),
        Text.assemble(
            f"Through Portico it reads {len(names)} tools: ",
            (f"{meta.tokens:,} tokens", "bold green"),
            ", however many are behind it.",
        ),
        Padding(Text(", ".join(names), style="cyan"), (0, 0, 0, 2), expand=False),
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


def _show_costs(
    screen: Screen, listing: dict[str, int], steps: list[DemoStep], direct: dict[str, int]
) -> None:
    screen.write_text("", Rule(Text("What it cost", style="bold"), align="left", style="dim"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    spent = [*listing.items(), *((step.tool, step.sent + step.received) for step in steps)]
    for name, tokens in spent:
        table.add_row(name, f"{tokens:,}")
    total = sum(tokens for _, tokens in spent)
    without = sum(direct.values())
    table.add_row(
        Text("the whole task through Portico", style="bold"), Text(f"{total:,}", style="bold green")
    )
    for name, tokens in direct.items():
        table.add_row(f"{name}, whole", f"{tokens:,}")
    table.add_row(
        Text("without Portico, these two alone", style="bold"),
        Text(f"{without:,}", style="bold red"),
    )
    screen.write_text(table, "")
    width = min(BAR_WIDTH, max(10, screen.out.width - 20))
    for name, tokens, style in (("without it", without, "red"), ("Portico", total, "green")):
        bar = "█" * max(1, round(width * tokens / max(without, total)))
        screen.write_text(Text.assemble(f"{name:<13}", (bar, style)))
