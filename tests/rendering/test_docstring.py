"""Parameters explained in a tool's description are explained beside their types instead."""

from portico.rendering.prose import parse_docstring
from portico.rendering.tool import render_schema
from tests.rendering.issue_tool import lines, tool

GOOGLE = """Send a letter.

    Args:
        to: Who gets it, as a full
            postal address
        copies (int, optional): How many. At most 3.

    Returns:
        The letter
    """
MARKED = """Send a letter.

**Parameters:**
- `to` (string): Who gets it
- **copies** - How many
"""
SPHINX = "Send a letter.\n:param to: Who gets it\n:param copies: How many\n:return: The letter"


def test_lists_of_parameters_are_found_in_the_usual_forms():
    names = ["to", "copies"]
    found = parse_docstring(GOOGLE, names)
    assert found.notes == {
        "to": "Who gets it, as a full postal address",
        "copies": "How many. At most 3.",
    }
    assert found.description.split() == ["Send", "a", "letter.", "Returns:", "The", "letter"]
    assert parse_docstring(MARKED, names).notes == {"to": "Who gets it", "copies": "How many"}
    assert parse_docstring(SPHINX, names).notes == {"to": "Who gets it", "copies": "How many"}


def test_a_list_about_something_else_stays():
    text = "Send a letter.\n\nArgs:\n    whom: Somebody\nto: is a word"
    assert parse_docstring(text, ["to"]).description == text
    assert parse_docstring("to: you", ["to"]).description == "to: you"
    assert parse_docstring(GOOGLE, []).description == GOOGLE


def test_a_parameter_without_words_gets_those_of_the_description():
    own = {
        "to": {"type": "string"},
        "copies": {"type": "integer", "description": "Number of copies to send"},
    }
    assert lines(own, ["to"], description=GOOGLE) == [
        " to: string — Who gets it, as a full postal address",
        " copies?: integer — Number of copies to send",
    ]
    assert (
        render_schema(tool(own, description=GOOGLE)).split("\n")[0]
        == "github.create_issue — Send a letter. …"
    )
