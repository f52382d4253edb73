"""What each way to a tool does with each override, as a table: written before the code.

The server `desk` lists `create_issue(title, owner, repo, body?, priority?)`,
`list_issues(owner, repo, state?)` (read-only), `delete_issue(owner, repo, number)` and `ping()`.
The configuration renames `create_issue` to `report_bug` and its `title` to `summary`, describes
both, fixes `owner` of every issue tool to `acme` and defaults their `repo` to `portico` and
`priority` to `low`.
"""

from typing import NamedTuple


class Case(NamedTuple):
    """An override, a way, and what is expected."""

    override: str
    way: str
    expected: str


CASES: tuple[Case, ...] = (
    # description and title
    Case("description", "search", "the new words find the tool first"),
    Case("description", "search brief", "the line of the tool has the new sentence"),
    Case("description", "describe schema", "the typed form begins with the new sentence"),
    Case("description", "describe full", "the new text, and nothing of the server's"),
    Case("title", "full exposure", "the listed title is the new one"),
    Case("title", "REST", "the definition has the new title"),
    Case("title", "describe --original", "the server's own definition, with its own title"),
    # descriptions of parameters
    Case("parameter description", "describe schema", "the parameter has the new text"),
    Case("parameter description", "full exposure", "the input schema has the new text"),
    Case("parameter description", "search", "words of it find the tool"),
    # defaults
    Case("default", "describe schema", "the parameter is optional and shows its default"),
    Case("default", "full exposure", "it is not required, and `default` stands in the schema"),
    Case("default", "call_tool", "left out, it is sent"),
    Case("default", "call_tool", "given, the given value is sent"),
    Case("default", "script", "left out, it is sent"),
    Case("default", "workflow", "left out, it is sent"),
    Case("default", "rules", "`when` sees the default"),
    # fixed arguments
    Case("fixed", "describe schema", "the parameter is not shown"),
    Case("fixed", "describe full", "neither its name nor its value is shown"),
    Case("fixed", "full exposure", "it is not in the input schema"),
    Case("fixed", "call_tool", "it is sent with the call"),
    Case("fixed", "call_tool", "a caller that sends it is refused with the reason"),
    Case("fixed", "full exposure", "a caller that sends it is refused, and nothing is sent"),
    Case("fixed", "script", "it is sent; a script that sends it gets the reason"),
    Case("fixed", "workflow", "a step that gives it is refused before anything runs"),
    Case("fixed", "REST", "it is sent; a caller that sends it gets the reason"),
    Case("fixed", "library", "it is sent with the call"),
    Case("fixed", "CLI", "`portico call` sends it"),
    Case("fixed", "call_tool", "its name in other letters is refused too"),
    Case("fixed", "arguments as text", "it is refused there too"),
    Case("fixed", "rules", "`when` does not see it"),
    Case("fixed", "audit", "the line of the call does not have it"),
    # renamed parameters
    Case("parameter name", "describe schema", "the new name only"),
    Case("parameter name", "call_tool", "the server gets its own name"),
    Case("parameter name", "call_tool", "the server's name is refused, with the new one"),
    Case("parameter name", "call_tool", "a misspelt new name is repaired"),
    Case("parameter name", "call_tool", "an error names the parameter as callers know it"),
    Case("parameter name", "script", "the new name is a keyword of the function"),
    Case("parameter name", "workflow", "a step that uses the new name runs"),
    Case("parameter name", "rules", "`when` sees the new name"),
    Case("parameter name", "REST", "the new name works"),
    # renamed tools
    Case("tool name", "list", "full exposure lists the new flat name only"),
    Case("tool name", "call_tool", "the new name works, and the server gets its own"),
    Case("tool name", "call_tool", "the old name is answered with the new one"),
    Case("tool name", "full exposure", "the old flat name is answered with the new one"),
    Case("tool name", "script", "the new identifier works"),
    Case("tool name", "REST", "the old name is answered with the new one"),
    Case("tool name", "CLI", "`portico describe` of the old name says the new one"),
    # annotations
    Case("annotations", "full exposure", "the listed hints are the new ones"),
    Case("annotations", "describe schema", "the hint is shown"),
    # nothing
    Case("none", "call_tool", "a tool without overrides is as its server lists it"),
    Case("any", "results", "a result passes as the server sent it"),
)
