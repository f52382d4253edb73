"""A command of the configuration → the tool definition that clients see. Pure."""

from portico.config.command_tool import CommandArgument, CommandTool
from portico.config.command_words import get_program_name
from portico.upstream.backend import Raw

_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
}


def build_definition(name: str, tool: CommandTool) -> Raw:
    """The tool as `tools/list` has it."""
    schema: Raw = {
        "type": "object",
        "properties": {key: _build_schema(argument) for key, argument in tool.arguments.items()},
        "additionalProperties": False,
    }
    # One with a default need not be given, whatever else is said of it.
    if required := [
        key for key, one in tool.arguments.items() if one.required and one.default is None
    ]:
        schema["required"] = required
    return {
        "name": name,
        # Of the words only the program is told: the others may hold what came from a variable.
        "description": tool.description or f"Runs the program {get_program_name(tool.command[0])}.",
        "inputSchema": schema,
        "annotations": _build_annotations(tool),
    }


def _build_annotations(tool: CommandTool) -> Raw:
    hints: Raw = {"readOnlyHint": tool.read_only}
    if tool.destructive is not None:
        hints["destructiveHint"] = tool.destructive
    if tool.idempotent:
        hints["idempotentHint"] = True
    if tool.open_world is not None:
        hints["openWorldHint"] = tool.open_world
    return hints


def _build_schema(argument: CommandArgument) -> Raw:
    one: Raw = {"type": argument.item_type}
    if argument.choices:
        one["enum"] = list(argument.choices)
    if argument.pattern:
        one["pattern"] = f"^(?:{argument.pattern})$"
    if argument.type == "array":
        schema: Raw = {"type": "array", "items": one}
    else:
        schema = one
    for key, bound in zip(
        _BOUNDS.get(argument.type, ()), (argument.minimum, argument.maximum), strict=False
    ):
        if bound is not None:
            schema[key] = int(bound) if bound.is_integer() else bound
    if argument.default is not None:
        schema["default"] = argument.default
    if argument.description:
        schema["description"] = argument.description
    return schema
