"""A command-line program as a tool: its words, and the arguments that fill them."""

from typing import Any, Literal

from pydantic import Field

from portico.config.section import Section


class CommandArgument(Section):
    """One argument of a command that is a tool."""

    type: Literal["string", "integer", "number", "boolean", "array"] = Field(
        default="string", description="What it is; an array is one of strings, each a word of its own."
    )
    description: str = Field(default="", description="What it is for, in a sentence.")
    default: Any = Field(default=None, description="Its value when none is given.")
    required: bool = Field(default=False, description="Whether a call must give it.")
    choices: tuple[str | int | float, ...] = Field(default=(), description="The only values it may have.")
    pattern: str = Field(default="", description="A regular expression its text must match, from end to end.")
    flag: str = Field(
        default="", description="The option before its value (`--author`); of a boolean, the word that stands for true."
    )


class CommandTool(Section):
    """A command-line program as a tool. No shell reads it: each argument stays one word, whatever it says."""

    command: tuple[str, ...] = Field(
        min_length=1,
        description="The program and its words; `{name}` in a word is that argument. A word whose argument is not "
        "given is left out; arguments that no word names follow at the end.",
    )
    description: str = Field(default="", description="What it does: what search finds and the agent reads.")
    arguments: dict[str, CommandArgument] = Field(default={}, description="Its arguments by name.")
    stdin: str = Field(default="", description="Text it is given to read; `{name}` is an argument.")
    output: Literal["text", "json"] = Field(default="text", description="What it prints.")
    success: tuple[int, ...] = Field(default=(0,), description="Exit codes that are no failure.")
    read_only: bool = Field(default=False, description="It changes nothing: it may be cached and repeated.")
    destructive: bool = Field(default=False, description="It destroys: a workflow asks before it runs.")
