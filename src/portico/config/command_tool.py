"""A command-line program as a tool: its words, and the arguments that fill them."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from portico.config.command_words import ARGUMENT_NAME, WordTemplate, parse_word, split_command_line
from portico.config.section import Section, setting

Scalar = str | int | float
_NUMBERS = ("integer", "number")


class CommandArgument(Section):
    """One argument of a command tool. A type alone (`count: integer`) is the short form."""

    type: Literal["string", "integer", "number", "boolean", "array"] = setting(
        "string", "Its type; each item of an array is a separate word."
    )
    description: str = setting("", "What it is for, in a sentence.")
    default: Any = setting(None, "Its value if none is given.")
    required: bool = setting(False, "Whether a call must give it.")
    choices: tuple[Scalar, ...] = setting(
        (), "The only values allowed for it, or for an item of it."
    )
    pattern: str = setting(
        "", "A regular expression that the whole text, or each item's, must match."
    )
    minimum: float | None = setting(
        None, "Minimum value; of text its characters, of an array its items."
    )
    maximum: float | None = setting(
        None, "Maximum value; of text its characters, of an array its items."
    )
    items: Literal["string", "integer", "number"] = setting("string", "Type of an array's items.")
    flag: str = setting(
        "",
        "The option before its value: `--author` becomes `--author=value`, `-n` becomes `-n`"
        " and the value as the next word, and `{}` sets another position (`--author {}`,"
        " `-I{}`); of a boolean, the word for true. Of an array it is repeated.",
    )
    options: bool = setting(
        False,
        "Its value may begin with `-`, though the program might take it for an option."
        " Otherwise that is refused unless `--` or a part of the word stands before it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, data: Any) -> Any:
        if data is None:
            return {}
        if isinstance(data, str):
            return {"type": data}
        return data

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, value: str) -> str:
        if value:
            import regex  # imported late: few commands have a pattern

            try:
                regex.compile(value)
            except (regex.error, OverflowError, RecursionError, ValueError) as error:
                raise ValueError(f"it is no regular expression ({error})") from None
        return value

    @field_validator("flag")
    @classmethod
    def _check_flag(cls, value: str) -> str:
        if value.count("{}") > 1 or any(brace in value.replace("{}", "") for brace in "{}"):
            raise ValueError("in a flag {} is where the value goes, once")
        if value.startswith("{}"):
            raise ValueError("a flag begins with the option, not with the value")
        words = value.split(" ")
        if len(words) > 2 or (len(words) == 2 and "{}" not in words[1]):
            raise ValueError(
                "a flag is one word, or an option and a word with {} in it, where the value goes"
            )
        return value

    @model_validator(mode="after")
    def _convert_values(self) -> Self:
        if self.type == "boolean" and (self.choices or self.pattern or "{}" in self.flag):
            raise ValueError(
                "a boolean has neither choices nor a pattern, and no value behind its flag"
            )
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError("its minimum is over its maximum")
        # A scalar in a file may be text where a number is meant, and vice versa.
        object.__setattr__(
            self,
            "choices",
            tuple(convert_value(choice, self.item_type, "a choice") for choice in self.choices),
        )
        if self.default is not None:
            object.__setattr__(self, "default", self._convert_default())
        return self

    def _convert_default(self) -> Any:
        if self.type != "array":
            value = convert_value(self.default, self.type, "the default")
            if self.choices and value not in self.choices:
                raise ValueError("the default is none of its choices")
            return value
        values = self.default if isinstance(self.default, list | tuple) else [self.default]
        items = cast("list[Any]", values)
        return [convert_value(item, self.items, "the default") for item in items]

    @property
    def is_free_text(self) -> bool:
        """Whether it may be any text."""
        return self.item_type == "string" and not self.choices and not self.pattern

    @property
    def item_type(self) -> str:
        """Type of its value, or of each item."""
        if self.type == "array":
            return self.items
        return self.type


class CommandTool(Section):
    """A command-line program as a tool. No shell is involved: each argument stays one word.

    A command alone (`uptime: uptime -p`) is the short form.
    """

    command: tuple[str, ...] = Field(
        min_length=1,
        description="The program and its words, as a list or in one line; `{name}` in a word is"
        " that argument, `{{` and `}}` are braces. A word whose argument is not given is left out."
        " Arguments that no word names follow at the end, those with a flag before a `--`. Without"
        " `arguments`, each name is a required text.",
    )
    description: str = setting("", "What it does, for search and for the agent.")
    arguments: dict[str, CommandArgument] = setting({}, "Its arguments by name.")
    stdin: str = setting(
        "", "Text for its standard input; `{name}` is an argument, as in `command`."
    )
    output: Literal["text", "json"] = setting("text", "Format of its output.")
    success: tuple[int, ...] = setting((0,), "Exit codes that mean success.")
    read_only: bool = setting(False, "It changes nothing: it may be cached and repeated.")
    destructive: bool | None = setting(
        None, "It is destructive: a workflow needs approval for it. Not given: unknown."
    )
    idempotent: bool = setting(False, "Running it twice has the same effect as running it once.")
    open_world: bool | None = setting(None, "It reaches beyond this machine. Not given: unknown.")

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, data: Any) -> Any:
        if isinstance(data, str | list | tuple):
            data = {"command": data}
        if not isinstance(data, Mapping):
            return data
        values = dict(cast("Mapping[str, Any]", data))
        if values.get("arguments") is None:
            values.pop("arguments", None)
        return values

    @field_validator("command", mode="before")
    @classmethod
    def _split_command(cls, value: Any) -> Any:
        if isinstance(value, str):
            return split_command_line(value)
        if isinstance(value, list | tuple):
            return [_restore_braces(item) for item in cast("list[Any]", value)]
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        words = self.words
        program = words[0]
        if program.names:
            raise ValueError(
                "the program itself may not be an argument: name it, and let its words be arguments"
            )
        if not (program.literal_text or "").strip():
            raise ValueError("the first word is the program, and it is empty")
        used = tuple(
            dict.fromkeys(name for word in (*words, self.stdin_word) for name in word.names)
        )
        if not self.arguments and used:
            implied = {name: CommandArgument(required=True) for name in used}
            object.__setattr__(self, "arguments", implied)
        for name in self.arguments:
            if not ARGUMENT_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no argument's name: use letters, digits, _ and -")
        for name in used:
            if name not in self.arguments:
                known = ", ".join(self.arguments)
                raise ValueError(
                    f"{{{name}}} is none of its arguments ({known}); {{{{{name}}}}} is that text"
                )
        for word in words:
            self._check_word(word)
        # Imported late: many installations have no commands.
        from portico.config.command_words import find_injected_code

        for code in find_injected_code(words):
            if not code.is_whole_word and self.arguments[code.argument].is_free_text:
                instead = (
                    "name the program itself, or hand the value over as a word of its own"
                    " behind the code, which has it as $1 (a shell) or sys.argv[1] (Python)"
                )
                if code.is_shell_joined:
                    instead = "give it a pattern or choices that leave nothing to a shell"
                raise ValueError(
                    f"{code.program} would run what a caller writes for {{{code.argument}}} as"
                    f" code: {instead}"
                )
        return self

    def _check_word(self, one: WordTemplate) -> None:
        arrays = [name for name in one.names if self.arguments[name].type == "array"]
        if len(arrays) > 1:
            raise ValueError(
                f"one word names two arrays ({', '.join(arrays)}): which values belong together?"
            )
        for name in () if one.sole_argument else one.names:
            if self.arguments[name].flag:
                raise ValueError(
                    f"{{{name}}} has a flag: let it be a word of its own, or take the flag away"
                )

    @cached_property
    def words(self) -> tuple[WordTemplate, ...]:
        """The parsed command."""
        return tuple(parse_word(text) for text in self.command)

    @cached_property
    def stdin_word(self) -> WordTemplate:
        """The parsed standard input."""
        return parse_word(self.stdin)


def convert_value(value: Any, kind: str, what: str) -> Any:
    """Convert a value from a file to its argument's type; raises ValueError."""
    try:
        if kind == "boolean":
            found = {"true": True, "yes": True, "false": False, "no": False}.get(str(value).lower())
            if found is not None:
                return found
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            pass
        elif kind == "string":
            return str(value)
        elif kind == "integer":
            if not isinstance(value, float) or value.is_integer():
                return int(value)
            return int(str(value))
        elif math.isfinite(number := float(value)):
            if number.is_integer() and "." not in str(value):
                return int(number)
            return number
    except (ValueError, OverflowError):
        pass
    wanted = {"string": "text, in quotes", "integer": "a whole number", "number": "a number"}
    raise ValueError(f"{what} is not {wanted.get(kind, 'true or false')}")


def _restore_braces(item: Any) -> Any:
    """Restore `{path}` in a YAML list such as `[cat, {path}]`, which YAML reads as a mapping."""
    if isinstance(item, Mapping) and len(entries := cast("Mapping[Any, Any]", item)) == 1:
        (name, nothing), *_ = entries.items()
        if nothing is None and isinstance(name, str) and ARGUMENT_NAME.fullmatch(name):
            return f"{{{name}}}"
    return item
