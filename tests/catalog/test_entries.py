"""Search documents of a server's tools."""

from dataclasses import replace

from portico.catalog.entries import (
    MAX_INSTRUCTIONS,
    build_documents,
    compute_document_hashes,
)
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool, make_tool
from portico.upstream.backend import InitializeInfo

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where"},
        "unit": {"enum": ["metric", "imperial"]},
    },
}
WEATHER = make_tool(
    "sky",
    {"name": "weather", "title": "Weather", "description": "Tells it.", "inputSchema": SCHEMA},
)


def entry(*tools: Tool, instructions: str = "", **about: object) -> ServerEntry:
    said = {
        "initialize_info": InitializeInfo("legacy", "2025-11-25", instructions=instructions),
        **about,
    }
    return ServerEntry("sky", tools={tool.name: tool for tool in tools}, listed_at=1, **said)  # pyright: ignore[reportArgumentType]


def test_a_document_has_the_tool_s_words_by_field():
    (document,) = build_documents(
        entry(WEATHER, title="The Sky", description="Weather data", tags=("nature",))
    )
    assert (document.id, document.group, document.name, document.title) == (
        "sky.weather",
        "sky",
        "weather",
        "Weather",
    )
    assert document.description == "Tells it."
    assert document.parameters == ("city", "unit")
    assert document.parameter_text == "Where"
    assert document.enums == ("metric", "imperial")
    assert document.tags == ("nature",)
    assert document.server_text == "The Sky Weather data"


def test_only_the_beginning_of_a_server_s_instructions_is_read():
    (document,) = build_documents(entry(WEATHER, instructions="word " * 1_000))
    assert len(document.server_text) <= MAX_INSTRUCTIONS


def test_hashes_are_those_of_the_documents():
    known = entry(WEATHER, make_tool("sky", {"name": "moon"}), title="Sky")
    assert compute_document_hashes(known) == {
        document.id: document.hash for document in build_documents(known)
    }


def test_a_hash_changes_with_whatever_the_document_says():
    before = compute_document_hashes(entry(WEATHER))
    others = [
        entry(make_tool("sky", {**WEATHER.definition, "description": "Says it."})),
        entry(WEATHER, title="Sky"),
        entry(WEATHER, description="Weather"),
        entry(WEATHER, tags=("nature",)),
        entry(WEATHER, instructions="Ask politely."),
        entry(WEATHER, category="media"),
        entry(WEATHER, categories={"weather": "media"}),
        entry(
            WEATHER,
            initialize_info=InitializeInfo(
                "legacy", "2025-11-25", server_info={"name": "The weather"}
            ),
        ),
    ]
    assert all(compute_document_hashes(other) != before for other in others)
    assert compute_document_hashes(entry(WEATHER)) == before


def test_reading_a_catalog_for_search_does_not_keep_its_parsed_definitions():
    tools = [
        make_tool("sky", {"name": f"rain_{number}", "inputSchema": SCHEMA})
        for number in range(1_000)
    ]
    parsed = tools[0].definition
    assert len(list(build_documents(entry(*tools)))) == 1_000
    assert tools[0].definition is not parsed


def test_a_document_has_its_tool_s_category():
    (document,) = build_documents(entry(WEATHER))
    assert document.category == "maps-and-travel"
    (document,) = build_documents(entry(WEATHER, categories={"wea*": "My Sky"}))
    assert document.category == "my-sky"


def test_hashing_reads_no_definition():
    tool = make_tool("sky", {"name": "rain", "inputSchema": SCHEMA})
    unreadable = replace(tool, blob=b"no JSON at all")
    assert compute_document_hashes(entry(unreadable)) == compute_document_hashes(entry(tool))
