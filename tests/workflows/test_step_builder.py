"""Steps from chosen tools and what was said for their parameters."""

from portico.catalog.tool import make_tool
from portico.workflows.planning.argument_reader import LeafReading
from portico.workflows.planning.offers import StepReading
from portico.workflows.planning.parameters import list_leaves
from portico.workflows.planning.said_words import SaidInput, SaidWords
from portico.workflows.planning.step_builder import build_steps
from portico.workflows.planning.tool_choice import ChosenTool

NOTHING_SAID = SaidWords("go", ((0, 2),), ((1,),), ())


def test_a_required_object_of_which_nothing_is_needed_is_there_and_empty():
    options = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"options": options}, "required": ["options"]}
    tool = make_tool("s", {"name": "t", "inputSchema": schema})
    readings = [LeafReading(leaf, 1.0, (), (), ()) for leaf in list_leaves(tool)]
    draft = build_steps(
        [StepReading(ChosenTool((0, 0), tool), readings)], NOTHING_SAID, lambda _: None
    )
    assert draft.steps == [{"id": "t", "tool": "s.t", "arguments": {"options": {}}}]
    assert not draft.inputs


def test_two_inputs_that_fit_about_as_well_keep_the_order_of_the_parameters():
    text = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {"find_text": text, "replace_text": text},
        "required": ["find_text", "replace_text"],
    }
    tool = make_tool("s", {"name": "t", "inputSchema": schema})
    inputs = (SaidInput("old_text", "a", 1, 1), SaidInput("new_text", "b", 2, 2))
    said = SaidWords("go", ((0, 2),), ((1,), (2,), (3,)), inputs)
    likely = ((0.7, 0.6), (0.8, 0.6))
    readings = [
        LeafReading(leaf, 0.0, found, (), ())
        for leaf, found in zip(list_leaves(tool), likely, strict=True)
    ]
    draft = build_steps([StepReading(ChosenTool((0, 0), tool), readings)], said, lambda _: None)
    assert draft.steps[0]["arguments"] == {
        "find_text": "${inputs.old_text}",
        "replace_text": "${inputs.new_text}",
    }
