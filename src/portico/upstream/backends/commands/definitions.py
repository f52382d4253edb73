"""Builds the tool definition of a configured command. Pure."""

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
    """Return the tool as `tools/list` shows it."""
    schema: Raw = {
        "type": "object",
        "properties": {key: _build_schema(argument) for key, argument in tool.arguments.items()},
        "additionalProperties": False,
    }
    # An argument with a default may be omitted, even if it is marked as required.
    required = [
        key
        for key, argument in tool.arguments.items()
        if argument.required and argument.default is None
    ]
    if required:
        schema["required"] = required
    return {
        "name": name,
        # Only the program is named: the other words may hold values of variables.
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
    item: Raw = {"type": argument.item_type}
    if argument.choices:
        item["enum"] = list(argument.choices)
    if argument.pattern:
        item["pattern"] = f"^(?:{argument.pattern})$"
    schema: Raw = {"type": "array", "items": item} if argument.type == "array" else item
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
