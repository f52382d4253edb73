"""Parameters explained in a tool's description are explained beside their types instead."""

from portico.disclosure.docstring import docstring
from portico.disclosure.render import schema
from tests.disclosure.issues import lines, tool

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
    found = docstring(GOOGLE, names)
    assert found.notes == {"to": "Who gets it, as a full postal address", "copies": "How many. At most 3."}
    assert found.rest.split() == ["Send", "a", "letter.", "Returns:", "The", "letter"]
    assert docstring(MARKED, names).notes == {"to": "Who gets it", "copies": "How many"}
    assert docstring(SPHINX, names).notes == {"to": "Who gets it", "copies": "How many"}


def test_a_list_about_something_else_stays():
    text = "Send a letter.\n\nArgs:\n    whom: Somebody\nto: is a word"
    assert docstring(text, ["to"]).rest == text
    assert docstring("to: you", ["to"]).rest == "to: you"
    assert docstring(GOOGLE, []).rest == GOOGLE


def test_a_parameter_without_words_gets_those_of_the_description():
    own = {"to": {"type": "string"}, "copies": {"type": "integer", "description": "Number of copies to send"}}
    assert lines(own, ["to"], description=GOOGLE) == [
        " to: string — Who gets it, as a full postal address",
        " copies?: integer — Number of copies to send",
    ]
    assert schema(tool(own, description=GOOGLE)).split("\n")[0] == "github.create_issue — Send a letter. …"
