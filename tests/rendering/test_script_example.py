"""A plausible call as scripts write it."""

import ast

import pytest

from portico.rendering.examples import make_script_example
from portico.upstream.backend import Raw
from tests.meta_tools.search_catalog import by_words, entry


def example(definition: Raw, server: str = "calculator") -> dict[str, str]:
    catalog = by_words(entry(server, definition))
    return dict(make_script_example(next(iter(catalog.tools.values())), catalog))


def taking(required: Raw, name: str = "add") -> Raw:
    schema = {"type": "object", "properties": required, "required": list(required)}
    return {"name": name, "inputSchema": schema}


ODD = taking(
    {"a-b": {"type": "string"}, "list": {"type": "array", "items": {"type": "null"}}}, "get-item"
)


def test_the_call_is_written_in_every_language():
    number = {"type": "integer", "default": 2}
    assert example(taking({"a": number, "b": number})) == {
        "python": "await calculator.add(a=2, b=2)",
        "javascript": 'await calculator.add({"a":2,"b":2})',
        "lua": "calculator.add({a = 2, b = 2}):await()",
    }
    assert example(taking({}))["python"] == "await calculator.add()"


def test_names_that_are_no_identifiers_are_written_as_scripts_know_them():
    assert (
        example(ODD, "data-server")["python"]
        == "await data_server.get_item(**{'a-b': '<a-b>', 'list': [None]})"
    )
    assert example(ODD, "123")["lua"] == '_123.get_item({["a-b"] = "<a-b>", list = {nil}}):await()'


def test_names_that_would_collide_differ():
    catalog = by_words(entry("s", taking({}, "get-item"), taking({}, "get_item")))
    calls = {make_script_example(tool, catalog)["python"] for tool in catalog.tools.values()}
    assert len(calls) == 2


@pytest.mark.parametrize(
    "definition", [ODD, taking({"a": {"type": "object", "properties": {"b": {}}}})]
)
def test_the_python_is_python(definition: Raw):
    ast.parse(f"async def run():\n    {example(definition)['python']}")
