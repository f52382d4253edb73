"""Every tool of a recorded fleet of real servers can be shown, in budget, with nothing a caller
needs lost."""

import functools
import gzip
import os
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, make_tool, sanitize_text
from portico.rendering.examples import make_example
from portico.rendering.one_line_tool import render_brief, render_summary
from portico.rendering.prose import collapse_whitespace
from portico.rendering.token_budget import count_tokens, load_exact_counter
from portico.rendering.tool import render_full_text, render_schema, to_full_data
from tests.meta_tools.test_describe_tools import answers, joined

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}"),
]

# Several tests read the same form of the same tool, and count it: each is made once.
brief, schema, full_text = map(functools.cache, (render_brief, render_schema, render_full_text))


@pytest.fixture(scope="module")
def tools() -> list[Tool]:
    with gzip.open(FLEET) as file:
        servers = [orjson.loads(line) for line in file]
    return [
        make_tool(server["slug"], definition)
        for server in servers
        for definition in server["tools"]
    ]


@pytest.fixture(scope="module")
def tokens() -> Iterator[Callable[[str], int]]:
    with pytest.MonkeyPatch.context() as patch:
        if "TIKTOKEN_CACHE_DIR" not in os.environ:
            patch.setenv("TIKTOKEN_CACHE_DIR", str(SHARED / "tokenizer"))
        exact = load_exact_counter()
        if exact is None:
            pytest.skip("tiktoken or its o200k_base table is not at hand")
        yield functools.cache(exact.count)


def quantile(values: list[float] | list[int], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def listing(tool: Tool) -> str:
    """Return what a client would carry in its context without a gateway."""
    return orjson.dumps(
        {key: tool.definition.get(key) for key in ("name", "description", "inputSchema")}
    ).decode()


def test_briefs_are_single_lines_within_their_token_budget(
    tools: list[Tool], tokens: Callable[[str], int]
):
    briefs = [brief(tool) for tool in tools]
    assert all(
        len(line.splitlines()) == 1 and line.startswith(tool.address)
        for line, tool in zip(briefs, tools, strict=True)
    )
    costs = [tokens(line) for line in briefs]
    assert statistics.median(costs) <= 35
    assert quantile(costs, 0.99) <= 80


def test_briefs_name_every_required_parameter(tools: list[Tool]):
    for tool in tools:
        signature = brief(tool).split(" — ")[0]
        for name in tool.input_schema.get("required", []):
            assert name in signature, tool.address


def test_full_carries_the_definition_unchanged(tools: list[Tool]):
    for tool in tools:
        upstream = orjson.loads(tool.blob)
        assert orjson.loads(orjson.dumps(to_full_data(tool)))["definition"] == upstream
        raw = [line for line in full_text(tool).split("\n") if line.startswith("inputSchema: ")][-1]
        assert orjson.loads(raw.removeprefix("inputSchema: ")) == upstream["inputSchema"], (
            tool.address
        )


def test_examples_fit_their_schemas(tools: list[Tool]):
    valid = sum(
        jsonschema_rs.is_valid(dict(tool.input_schema), make_example(tool)) for tool in tools
    )
    assert valid / len(tools) >= 0.99


def test_the_typed_form_costs_little_more_than_half_of_the_listing(
    tools: list[Tool], tokens: Callable[[str], int]
):
    costs = [(tokens(schema(tool)), tokens(listing(tool))) for tool in tools]
    assert statistics.mean(ours / theirs for ours, theirs in costs) <= 0.55
    assert statistics.median(ours / theirs for ours, theirs in costs) <= 0.55
    assert sum(ours for ours, _ in costs) / sum(theirs for _, theirs in costs) <= 0.51


def test_no_answer_is_over_its_budget_and_its_parts_join_to_the_whole(
    tools: list[Tool], tokens: Callable[[str], int]
):
    servers: dict[str, dict[str, Tool]] = {}
    for tool in tools:
        servers.setdefault(tool.server, {})[tool.name] = tool
    gateway = Snapshot(
        {name: ServerEntry(name, tools=made, listed_at=1) for name, made in servers.items()}
    )
    for address, tool in gateway.tools.items():
        for detail, show, budget in (
            ("brief", render_summary, 299),
            ("schema", schema, 2_000),
            ("full", full_text, 8_000),
        ):
            parts = list(answers(gateway, 2_000, address, detail))
            assert joined(parts) == show(tool), address
            assert all(tokens(part) <= budget for part in parts), address


@pytest.mark.parametrize(
    "text",
    [listing, brief, schema, lambda tool: tool.description],
    ids=["json", "brief", "schema", "prose"],
)
def test_the_estimate_is_close_to_the_exact_count_and_rather_high(
    text: Callable[[Tool], str], tools: list[Tool], tokens: Callable[[str], int]
):
    errors: list[float] = []
    total_estimate = total_exact = 0
    for tool in tools:
        shown = text(tool)
        exact, estimate = tokens(shown), count_tokens(shown)
        total_estimate, total_exact = total_estimate + estimate, total_exact + exact
        if exact > 30:
            errors.append(estimate / exact - 1)
    assert abs(statistics.mean(errors)) < 0.03
    assert quantile([abs(error) for error in errors], 0.95) < 0.12
    assert -0.015 < total_estimate / total_exact - 1 < 0.03


# What a caller needs, collected from the raw schema by other means than the renderer's.


def follow(node: Any, root: Any) -> Any:
    for _ in range(9):
        if not (isinstance(node, dict) and isinstance(node.get("$ref"), str)):
            break
        target = root
        for step in node["$ref"].split("/")[1:]:
            target = target[int(step)] if isinstance(target, list) else target[step]
        node = target
    return node


def schemas(node: Any, root: Any, seen: set[int]) -> Iterator[dict[str, Any]]:
    """Every schema that arguments can meet, each once."""
    node = follow(node, root)
    if not isinstance(node, dict) or id(node) in seen:
        return
    seen.add(id(node))
    yield node
    for key in ("properties", "patternProperties"):
        for child in node.get(key, {}).values():
            yield from schemas(child, root, seen)
    for key in ("items", "additionalProperties"):
        yield from schemas(node.get(key), root, seen)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for child in node.get(key, []):
            yield from schemas(child, root, seen)


def words_of(node: Any, root: Any, hops: int = 0) -> Iterator[tuple[str, ...]]:
    """For each thing that a type must show: the spellings, one of which has to be there."""
    if isinstance(node, dict) and "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[-1]
        inner = (
            [
                spelling
                for spellings in words_of(follow(node, root), root, hops + 1)
                for spelling in spellings
            ]
            if hops < 3
            else []
        )
        yield (name, "typeof ", *inner)
        return
    if not isinstance(node, dict):
        return
    values = [node["const"]] if "const" in node else node.get("enum") or []
    if values:
        for value in values:
            yield (orjson.dumps(value).decode(),)
        return
    for part in node.get("anyOf", []) + node.get("oneOf", []):
        yield from words_of(part, root, hops)
    kinds = node.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        yield {"object": ("object", "{"), "array": ("[",)}.get(kind, (kind,))
    if "items" in node:
        yield from words_of(node["items"], root, hops)


def normalize(name: str) -> list[str]:
    return [name, orjson.dumps(name).decode()]


def missing(tool: Tool) -> Iterator[str]:
    """Return what the typed form of a tool does not say and should."""
    root = tool.input_schema
    text = schema(tool)
    for node in schemas(root, root, set()):
        required = node.get("required", [])
        for name, child in (node.get("properties") or {}).items():
            mark = ": " if name in required else "?: "
            places = [
                place for form in normalize(name) for place in text.split(f"{form}{mark}")[1:]
            ]
            lines = [place.split("\n")[0] for place in places]
            if not any(
                f"{before}{form}{mark}" in text for form in normalize(name) for before in (" ", "{")
            ):
                yield f"{name}{mark}"
            for spellings in words_of(child, root):
                if not any(any(word in line for word in spellings) for line in lines):
                    yield f"{name}: the type {spellings[0]}"
            if isinstance(child, dict) and "default" in child:
                value = orjson.dumps(child["default"]).decode()
                forms = (f" = {value}", "(default null)" if value == "null" else f" = {value}")
                if not any(form in line for line in lines for form in forms):
                    yield f"{name} = {value}"
        for value in node.get("enum", []):
            if orjson.dumps(value).decode() not in text:
                yield f"the value {value!r}"
        if "default" in node and orjson.dumps(node["default"]).decode() not in text:
            yield f"the default {node['default']!r}"
        for key in (
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "exclusiveMinimum",
        ):
            if (
                key in node
                and abs(node[key]) != 2**53 - 1
                and orjson.dumps(node[key]).decode() not in text
            ):
                yield f"the limit {key} {node[key]}"
        for key in ("format", "pattern"):
            if key in node and node[key] not in text:
                yield f"the {key} {node[key]}"


def test_the_typed_form_loses_nothing_a_caller_needs(tools: list[Tool]):
    lost = {tool.address: found for tool in tools if (found := list(missing(tool)))}
    assert not lost, dict(list(lost.items())[:5])


def test_the_full_form_has_every_word(tools: list[Tool]):
    for tool in tools:
        plain = "".join(char for char in tool.description if char.isprintable() or char.isspace())
        wanted = "".join(plain.replace("\ufe0f", "").replace("\u200d", "").split())
        assert wanted in "".join(full_text(tool).split()), tool.address


def test_the_typed_form_says_where_words_were_left_out(
    tools: list[Tool], tokens: Callable[[str], int]
):
    for tool in tools:
        text = schema(tool)
        if "…" not in text:
            # Without a mark, only lists of parameters, repetitions and markup are gone.
            assert tokens(text) > 0.2 * tokens(tool.description), tool.address


def test_what_a_caller_must_heed_is_seldom_left_out(tools: list[Tool]):
    """Statements with "must" in a parameter's own words: they are what a call fails by."""
    said = kept = 0
    for tool in tools:
        text = "".join(schema(tool).split())
        for child in tool.input_schema.get("properties", {}).values():
            about = child.get("description") if isinstance(child, dict) else None
            for sentence in (
                re.findall(r"[^.!?]*\b[Mm]ust\b[^.!?]*", collapse_whitespace(sanitize_text(about)))
                if about
                else []
            ):
                said += 1
                kept += "".join(sentence.split())[:40] in text
    assert said > 300
    assert kept / said >= 0.9
