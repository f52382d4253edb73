"""Which tools a script means."""

import pytest

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, make_tool
from portico.scripts.sandbox.script import CallFailed
from portico.scripts.script_context import bind_tools, build_arguments, spell_servers


def tool(server: str, name: str, *params: str, required: tuple[str, ...] = ()) -> Tool:
    schema = {
        "type": "object",
        "properties": {param: {} for param in params},
        "required": list(required),
    }
    return make_tool(server, {"name": name, "inputSchema": schema})


def make_snapshot(**servers: tuple[str, ...]) -> Snapshot:
    return Snapshot(
        {
            server.replace("__", "-"): ServerEntry(
                server.replace("__", "-"),
                tools={name: tool(server.replace("__", "-"), name) for name in names},
            )
            for server, names in servers.items()
        }
    )


SNAPSHOT = make_snapshot(
    github=("create_issue", "list-issues"), data__server=("get", "while"), time=("now",)
)


def test_only_what_a_script_mentions_is_bound():
    bound = bind_tools("await github.create_issue(title='x')", SNAPSHOT)
    assert bound.list_namespaces() == {"github": ("create_issue",)}
    assert bound.get_tool("github", "create_issue").address == "github.create_issue"


def test_names_that_are_no_identifiers_are_bound_as_scripts_write_them():
    bound = bind_tools(
        "github.list_issues({}):await() data_server._while({}) github['list-issues']", SNAPSHOT
    )
    assert set(bound.list_namespaces()["github"]) == {"list_issues", "list-issues"}
    assert (
        bound.get_tool("github", "list_issues").name
        == bound.get_tool("github", "list-issues").name
        == "list-issues"
    )
    assert bound.get_tool("data_server", "_while").address == "data-server.while"


@pytest.mark.parametrize(
    ("code", "spelt"),
    [
        ("await data-server.get(1)", "await data_server.get(1)"),
        ("github.list-issues ({})", "github.list_issues ({})"),
        ("data-server . while()", "data_server . _while()"),
        ('globalThis["data-server"].get()', "data_server.get()"),
        ("github.list - issues(1)", "github.list - issues(1)"),
        ("data.server.list-issues()", "data.server.list-issues()"),
        ("other.list-issues()", "other.list-issues()"),
        ("'data-server.get(1)'", "'data-server.get(1)'"),
    ],
)
def test_names_with_dashes_are_read_as_identifiers_where_they_name_a_tool(code: str, spelt: str):
    assert spell_servers(code, SNAPSHOT) == spelt


def test_a_server_under_another_name_is_bound_too():
    assert bind_tools("gh = github\nawait gh.create_issue()", SNAPSHOT).list_namespaces() == {
        "github": ("create_issue",)
    }


def test_a_variable_that_is_called_like_a_server_costs_nothing():
    assert bind_tools("time = 5\ntime + 1", SNAPSHOT).list_namespaces() == {}


@pytest.mark.parametrize("code", ["await github.create_isue(1)", "github?.create_isue({})"])
def test_a_wrong_name_is_bound_to_what_is_nearest(code: str):
    bound = bind_tools(code, SNAPSHOT)
    assert "create_isue" in bound.list_namespaces()["github"]
    with pytest.raises(
        CallFailed, match=r"no tool github\.create_isue\. Did you mean github\.create_issue"
    ):
        bound.get_tool("github", "create_isue")


def test_a_name_like_no_other_is_bound_to_what_there_is():
    with pytest.raises(CallFailed, match="time has: now"):
        bind_tools("time.xyzzyplugh()", SNAPSHOT).get_tool("time", "xyzzyplugh")


# What was passed

ISSUE = tool("github", "create_issue", "body", "title", "from", "page-size", required=("title",))


def test_one_object_is_the_arguments():
    assert build_arguments(ISSUE, [{"title": "x"}], {}) == {"title": "x"}
    assert build_arguments(ISSUE, [], {"title": "x", "body": "y"}) == {"title": "x", "body": "y"}
    assert build_arguments(ISSUE, [], {}) == {}


def test_values_are_taken_in_the_order_that_the_line_of_a_tool_shows():
    assert build_arguments(ISSUE, ["x", "y"], {}) == {"title": "x", "body": "y"}
    assert build_arguments(ISSUE, ["x"], {"from_": "z"}) == {"title": "x", "from": "z"}


def test_names_that_are_no_identifiers_may_be_written_as_such():
    given = {"_from": 1, "page_size": 2, "title": "x", "other": 3}
    assert build_arguments(ISSUE, [given], {}) == {
        "from": 1,
        "page-size": 2,
        "title": "x",
        "other": 3,
    }


def test_too_many_values_and_values_given_twice_are_said():
    with pytest.raises(
        CallFailed, match=r"takes 4 arguments \(title, body, from, page-size\), and 5"
    ):
        build_arguments(ISSUE, [1, 2, 3, 4, 5], {})
    with pytest.raises(CallFailed, match="title twice"):
        build_arguments(ISSUE, ["x"], {"title": "y"})
