"""A field of an earlier result is passed on where its name, its type and its server fit."""

from typing import Any

import pytest

from portico.catalog.tool import Tool, make_tool
from portico.results.shape import Shape, infer_shape
from portico.workflows.planning.joins import (
    MAX_FIELDS,
    OutputField,
    find_join,
    list_output_fields,
)
from portico.workflows.planning.parameters import list_leaves


def lists(name: str = "list_issues", server: str = "hub", **properties: Any) -> Tool:
    return declare(properties, name, server)


def declare(properties: dict[str, Any], name: str = "list_issues", server: str = "hub") -> Tool:
    """A tool that declares its result."""
    schema = {"type": "object", "properties": properties}
    return make_tool(server, {"name": name, "outputSchema": schema, "inputSchema": {}})


def takes(parameter: str, name: str = "close_issue", **schema: Any) -> Tool:
    properties = {parameter: schema or {"type": "string"}}
    inputs = {"type": "object", "properties": properties, "required": [parameter]}
    return make_tool("hub", {"name": name, "inputSchema": inputs})


def each(**kinds: str) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in kinds.items()}
    return {"type": "array", "items": {"type": "object", "properties": properties}}


def know_nothing(_: Tool) -> Shape | None:
    return None


def join(earlier: Tool, later: Tool, seen: Any = None) -> str:
    """The reference of the later tool's parameter to the earlier one's result; empty if none."""

    def shapes(_: Tool) -> Shape | None:
        return None if seen is None else infer_shape(seen)

    (leaf,) = list_leaves(later)
    found = find_join(leaf, later, earlier, list_output_fields(earlier, shapes))
    return "" if found is None else found.to_reference("a", many="array" in leaf.types)


@pytest.mark.parametrize(
    ("earlier", "later", "reference"),
    [
        (lists(issues=each(id="string", title="string")), takes("issue_id"), "${a.issues[0].id}"),
        (lists(issue_id={"type": "string"}), takes("issueId"), "${a.issue_id}"),
        (lists("create_issue", id={"type": "string"}), takes("issue_id"), "${a.id}"),
        (lists(issues=each(number="integer")), takes("issue_number"), "${a.issues[0].number}"),
        (
            lists(issues=each(id="string")),
            takes("issue_ids", type="array", items={"type": "string"}),
            "${a.issues[].id}",
        ),
        (
            declare({"open issues": each(id="string")}),
            takes("issue_id"),
            '${a."open issues"[0].id}',
        ),
        (lists(), takes("issue_id"), ""),
        (lists(orgId={"type": "string"}), takes("projectId"), ""),
        (lists(issues=each(title="string")), takes("issue_id"), ""),
        (lists(issue_id={"type": "boolean"}), takes("issue_id"), ""),
        (lists(state={"type": "string"}), takes("state", type="string", enum=["open"]), ""),
        (lists(url={"type": "string"}), takes("__"), ""),
    ],
)
def test_a_field_of_the_declared_result_is_joined_if_it_is_meant(
    earlier: Tool, later: Tool, reference: str
):
    assert join(earlier, later) == reference


def test_what_a_result_looked_like_is_used_where_nothing_is_declared():
    earlier = make_tool("hub", {"name": "list_issues", "inputSchema": {}})
    assert join(earlier, takes("issue_id")) == ""
    seen = {"issues": [{"id": "i1", "author_id": "u1"}]}
    assert join(earlier, takes("issue_id"), seen) == "${a.issues[0].id}"


def test_a_result_that_is_a_plain_list_or_has_a_field_without_words_is_no_error():
    earlier = make_tool("hub", {"name": "list_issues", "inputSchema": {}})
    for seen in (["i1", "i2"], [["i1"]], {"-": "x"}, "x"):
        assert join(earlier, takes("issue_id"), seen) in ("", "${a[0]}", "${a[0][0]}")


def test_an_id_of_one_server_is_not_passed_to_another():
    earlier = lists(server="other", issue_id={"type": "string"}, url={"type": "string"})
    assert join(earlier, takes("issue_id")) == ""
    assert join(earlier, takes("url")) == "${a.url}"


def test_a_field_is_named_with_the_object_it_belongs_to():
    field = OutputField(("a", "issues", "[*]", "id"), frozenset({"string"}))
    assert field.name == "issues_id"
    assert field.to_reference("s") == "${s.a.issues[0].id}"
    assert field.to_reference("s", many=True) == "${s.a.issues[].id}"


def test_of_wide_deep_and_recursive_results_some_fields_are_read():
    wide = declare({f"f{number}": each(a="string") for number in range(5_000)})
    assert 0 < len(list_output_fields(wide, know_nothing)) <= MAX_FIELDS
    node = {"$ref": "#/$defs/node"}
    parts = {f"p{number}": node for number in range(40)}
    defined = {"node": {"type": "object", "properties": parts}}
    schema = {"type": "object", "properties": parts, "$defs": defined}
    own = make_tool("hub", {"name": "tree", "outputSchema": schema, "inputSchema": {}})
    assert len(list_output_fields(own, know_nothing)) <= MAX_FIELDS
    deep: Any = "x"
    for _ in range(100):
        deep = {"a": deep}
    assert len(list_output_fields(own, lambda _: infer_shape(deep))) < 10
