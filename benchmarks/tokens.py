"""Measures what servers cost a model's context: listed directly, through each exposure, and a
discovery flow
step by step.

    python -m benchmarks.tokens [--servers FILE] [--questions FILE]… [--smoke] [--json FILE] [--check] [--picture FILE]

Counted with o200k_base where TIKTOKEN_CACHE_DIR has its table, else with Portico's own estimate;
the tables say which. Listings are counted as `{name, description, inputSchema}` in compact JSON:
the least that a client shows its model. Every answer is the real one: the fleet is loaded into a
gateway from its recordings and asked as a client asks.

A discovery flow is what an agent pays from a question to its call: the answer of `search_tools`,
`describe_tools` of the right tool, and the request of `call_tool` with the least arguments. Where
the right tool is not on the first page, the second is counted too; where it is not there either,
the flow is counted as if the agent had known the name then.
"""  # noqa: E501

import argparse
import asyncio
import gzip
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, cast

import orjson

from benchmarks import processes
from benchmarks.fleet import shared_folder
from benchmarks.picture import Bar, draw_picture
from benchmarks.rounds import percentile
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from benchmarks.tool_sets import Question, read_questions
from portico.calls.pipeline import DEFAULT_CONTEXT
from portico.catalog.tool import Tool
from portico.cli.tier_costs import measure_channels
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.profiles.view import ProfileView
from portico.rendering.examples import make_example
from portico.rendering.listing_cost import DefinitionCosts, count_listed_tokens
from portico.rendering.token_budget import TokenCounter, get_best_counter

OWN_QUESTIONS = Path(__file__).parent / "questions" / "fleet.jsonl"
FLEET = "fleet/servers.jsonl.gz"
POPULAR = (
    "atlassian",
    "brave-search",
    "filesystem",
    "git",
    "github-ref",
    "mongodb",
    "notion",
    "playwright",
    "sentry",
    "slack-ref",
)
EXPOSURES = ("meta", "code", "full")
DETAILS = ("brief", "schema", "full")
SMOKE_QUESTIONS, SMOKE_STEP = 24, 16
"""A smoke run asks so many questions, measures every sixteenth tool, and searches by words alone.
"""
_CURSOR = re.compile(r'cursor="([^"]+)"')


@dataclass(frozen=True)
class Flow:
    """One question, from search to call."""

    search: int
    """The pages that were read."""
    describe: int
    call: int
    pages: int
    """1 or 2; 3 where the right tool was on neither."""
    per_result: float
    """What the first page cost by result, its other lines included; 0 where there was none."""

    @property
    def total(self) -> int:
        return self.search + self.describe + self.call


class Caller:
    """A client of one view that counts the tokens it receives, and remembers the largest answer."""

    def __init__(self, view: ProfileView, counter: TokenCounter) -> None:
        self.view, self.counter = view, counter
        self.largest = (0, "")

    async def ask(self, name: str, **given: Any) -> str:
        result = await self.view.handle(
            "tools/call", {"name": name, "arguments": given}, DEFAULT_CONTEXT, "legacy"
        )
        text = "\n".join(block["text"] for block in result["content"])
        self.largest = max(self.largest, (self.counter.count(text), f"{name}({given})"[:70]))
        return text

    async def describe(self, tool: Tool, detail: str) -> int:
        """Return what a tool costs at a level, with all parts of it."""
        total, cursor = 0, None
        while True:
            more = {"cursor": cursor} if cursor else {}
            text = await self.ask("describe_tools", names=[tool.address], detail=detail, **more)
            total += self.counter.count(text)
            found = _CURSOR.search(text.rsplit("\n", 1)[-1])
            if found is None:
                return total
            cursor = found[1]

    async def flow(self, question: str, right: Sequence[str]) -> Flow:
        first = await self.ask("search_tools", query=question)
        shown = [
            line for line in first.split("\n") if line.partition("(")[0] in self.view.snapshot.tools
        ]
        per_result = self.counter.count(first) / len(shown) if shown else 0.0
        read, pages = [first], 1
        found = _is_named(first, right)
        if found is None:
            if cursor := _CURSOR.search(first):
                read.append(await self.ask("search_tools", query=question, cursor=cursor[1]))
                found = _is_named(read[-1], right)
            pages = 2 if found else 3
        tool = self.view.snapshot.tools[found or right[0]]
        described = self.counter.count(await self.ask("describe_tools", names=[tool.address]))
        request = {
            "name": "call_tool",
            "arguments": {"name": tool.address, "arguments": make_example(tool)},
        }
        call = self.counter.count(orjson.dumps(request).decode())
        return Flow(sum(map(self.counter.count, read)), described, call, pages, per_result)


def _is_named(text: str, right: Sequence[str]) -> str | None:
    return next(
        (one for one in right if re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w.-])", text)), None
    )


async def measure(options: argparse.Namespace) -> Report:
    """Load the servers into a gateway and count what it sends."""
    path: Path = options.servers or shared_folder(None, FLEET) / FLEET
    with processes.scratch() as folder:
        servers = load_recorded_servers(path, folder / "recordings")
        popular = [name for name in POPULAR if name in servers]
        profiles: dict[str, Any] = {one: {"exposure": one} for one in EXPOSURES}
        profiles |= {
            f"popular-{one}": {"exposure": one, "servers": popular or ["-"]} for one in EXPOSURES
        }
        config = Config.model_validate(
            {"data_dir": folder / "data", "servers": servers, "profiles": profiles}
        )
        async with GatewayRuntime(config) as gateway:
            await gateway.wait_until_listed()
            if not options.smoke:
                await wait_until_encoded(gateway)
            return await count_tiers(gateway, popular, options)


def load_recorded_servers(path: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """The `servers` of a configuration, each with its recording in a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    with gzip.open(path) as lines:
        recordings = [orjson.loads(line) for line in lines]
    for recording in recordings:
        place = folder / f"{recording['slug']}.json"
        place.write_bytes(orjson.dumps(recording))
        found[recording["slug"]] = {"recorded": str(place)}
    return found


async def wait_until_encoded(gateway: GatewayRuntime) -> None:
    """Wait until search goes by meaning too, as it does on every start but the first."""
    while (
        gateway.catalog.unencoded_count and (task := gateway.catalog.start_encoding()) is not None
    ):
        await task


async def count_tiers(
    gateway: GatewayRuntime, popular: Sequence[str], options: argparse.Namespace
) -> Report:
    counter = get_best_counter()
    costs = DefinitionCosts(counter.count)
    sets = [
        ("", f"all {len(gateway.get_view().snapshot.servers)} servers"),
        ("popular-", f"{len(popular)} popular servers"),
    ]
    starts = [
        row
        for prefix, name in sets
        for row in await start_rows(gateway, prefix, name, counter, costs)
    ]
    caller = Caller(gateway.get_view("meta"), counter)
    tools = list(caller.view.snapshot.tools.values())[:: SMOKE_STEP if options.smoke else 1]
    sizes = {detail: [await caller.describe(tool, detail) for tool in tools] for detail in DETAILS}
    listed = [costs.measure(tool) for tool in tools]
    inputs = [
        counter.count(orjson.dumps(tool.definition.get("inputSchema")).decode()) for tool in tools
    ]
    questions = load_questions(options, caller.view)
    flows = [await caller.flow(text, right) for text, right in questions]
    for server in ["", *caller.view.snapshot.servers]:
        await caller.ask("browse_tools", **({"server": server} if server else {}))
    meta = await start(gateway.get_view("meta"), counter)
    tiers = [
        (
            way.name,
            size.response.tier,
            size.response.tokens,
            size.cumulative_tokens,
            size.budget,
            size.response.request,
        )
        for way in await measure_channels(gateway.get_view("meta"), gateway.store, counter, costs)
        for size in way.sizes
    ]
    how = counter.name + (
        f", every {SMOKE_STEP}th tool, searched by words" if options.smoke else ""
    )
    ratios = [ours / theirs for ours, theirs in zip(sizes["schema"], listed, strict=True)]
    tables = (
        Table(
            f"What a conversation starts with, tokens ({how})",
            ("", "tools", "tokens", "share"),
            tuple(starts),
        ),
        Table(
            f"What a tool costs, tokens ({how})",
            ("", "mean", "median", "p95", "p99", "max"),
            (
                ("its listing in JSON", *_spread(listed)),
                ("its inputSchema alone", *_spread(inputs)),
                *((f"describe_tools, {detail}", *_spread(sizes[detail])) for detail in DETAILS),
                ("schema ÷ listing", *_spread(ratios)),
                (
                    "schema ÷ inputSchema",
                    *_spread([a / b for a, b in zip(sizes["schema"], inputs, strict=True)]),
                ),
            ),
            note=f"In all, the schema form is {sum(sizes['schema']) / sum(listed):.3f} of "
            "the listing.",
        ),
        Table(
            f"A discovery flow, tokens ({len(flows)} questions, {how})",
            ("", "mean", "median", "p95", "p99", "max"),
            (
                ("search_tools, brief", *_spread([one.search for one in flows])),
                ("… a result of it", *_spread([one.per_result for one in flows if one.per_result])),
                ("describe_tools, schema", *_spread([one.describe for one in flows])),
                ("call_tool, the request", *_spread([one.call for one in flows])),
                ("all three", *_spread([one.total for one in flows])),
            ),
            note=_where_found(flows),
        ),
        Table(
            f"The tiers as they are served at worst, tokens ({how})",
            ("by", "tier", "tokens", "together", "budget", "asked"),
            tuple(tiers),
        ),
    )
    if options.picture is not None:
        bars = (
            Bar("every definition, up front", int(cast("int", starts[0][2])), ours=False),
            Bar("through Portico", sum(meta[1:]), ours=True),
            Bar(
                "from a question to the call", round(median(one.total for one in flows)), ours=True
            ),
        )
        servers, known = len(caller.view.snapshot.servers), len(caller.view.snapshot.tools)
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        options.picture.write_text(
            draw_picture(
                f"{servers} real servers, {known:,} tools: what a conversation pays "
                "before it does anything",
                bars,
                f"counted in {counter.name}; the last bar is the median of {len(flows)} questions: "
                "search, describe, call (python -m benchmarks.tokens)",
            ),
            encoding="utf-8",
        )
    goals = (
        Goal("tools/list and instructions, tokens", sum(meta[1:]), 1_000, 0),
        Goal("describe_tools brief, largest, tokens", max(sizes["brief"]), 300, 0),
        Goal("schema form, mean share of the listing", mean(ratios), 0.55, 0),
        Goal(
            "a brief search result, median tokens",
            median(one.per_result for one in flows if one.per_result),
            40,
            0,
        ),
        Goal("discovery flow, median tokens", median(one.total for one in flows), 900, 0),
        Goal(
            "discovery flow, p95 tokens", percentile([one.total for one in flows], 0.95), 2_000, 0
        ),
        Goal(f"largest answer, tokens: {caller.largest[1]}", caller.largest[0], 8_000, 0),
        *(
            Goal(f"{tier} by {name}, together, tokens", sum_, budget, 0)
            for name, tier, _, sum_, budget, _ in tiers
        ),
    )
    return Report(
        "tokens",
        tables,
        goals,
        {"counter": counter.name, "questions": len(flows), "smoke": options.smoke},
    )


async def start(view: ProfileView, counter: TokenCounter) -> tuple[int, int, int]:
    """Tools that are listed, what that costs, and what the instructions do."""
    number, tokens, params = 0, 0, dict[str, Any]()
    while True:
        page = await view.handle("tools/list", params, DEFAULT_CONTEXT, "legacy")
        number += len(page["tools"])
        tokens += sum(count_listed_tokens(tool, counter.count) for tool in page["tools"])
        if "nextCursor" not in page:
            return number, tokens, counter.count(view.render_instructions())
        params = {"cursor": page["nextCursor"]}


async def start_rows(
    gateway: GatewayRuntime, prefix: str, name: str, counter: TokenCounter, costs: DefinitionCosts
) -> list[tuple[Cell, ...]]:
    snapshot = gateway.get_view(f"{prefix}meta").snapshot
    greetings = (
        entry.initialize_info.instructions
        for entry in snapshot.servers.values()
        if entry.initialize_info
    )
    direct = costs.measure_all(snapshot.tools.values()) + sum(map(counter.count, greetings))
    rows: list[tuple[Cell, ...]] = [
        (f"{name}, each listed directly", len(snapshot.tools), direct, "100%")
    ]
    for exposure in EXPOSURES:
        number, listing, instructions = await start(
            gateway.get_view(f"{prefix}{exposure}"), counter
        )
        paid = listing + instructions
        share = f"{paid / direct:.2%}" if direct else "–"
        rows.append(
            (
                f"… through `{exposure}`: {listing:,} + instructions {instructions:,}",
                number,
                paid,
                share,
            )
        )
    return rows


def load_questions(options: argparse.Namespace, view: ProfileView) -> list[tuple[str, list[str]]]:
    """Questions with one need, and the addresses of the tools that serve it."""
    files: Sequence[Path] = options.questions or [OWN_QUESTIONS]
    found = [
        right
        for path in files
        for question in read_questions(path)
        if (right := _right(question, view))
    ]
    return found[:: -(-len(found) // SMOKE_QUESTIONS)] if options.smoke and found else found


def _right(question: Question, view: ProfileView) -> tuple[str, list[str]] | None:
    if len(question.groups) != 1:
        return None
    names = sorted(name.replace("/", ".", 1) for name in question.groups[0])
    there = [name for name in names if name in view.snapshot.tools]
    return (question.text, there) if there else None


def _where_found(flows: Sequence[Flow]) -> str:
    second, neither = (sum(one.pages == pages for one in flows) for pages in (2, 3))
    return (
        f"The right tool was on the first page {len(flows) - second - neither} times, "
        f"on the second {second}, "
        f"on neither {neither}."
    )


def _spread(figures: Iterable[float]) -> tuple[Cell, ...]:
    found = list(figures)
    if not found:
        return None, None, None, None, None
    return mean(found), median(found), percentile(found, 0.95), percentile(found, 0.99), max(found)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--servers",
        type=Path,
        metavar="FILE",
        help=f"recorded servers (default: {FLEET} of the shared)",
    )
    parser.add_argument(
        "--questions",
        type=Path,
        action="append",
        metavar="FILE",
        help="questions to them; may be repeated",
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw what was counted, as an SVG"
    )
    options = parser.parse_args()
    return conclude(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    sys.exit(main())
