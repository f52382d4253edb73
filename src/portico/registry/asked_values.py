"""Values that a server's description asks of its user: what was given, what is missing. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from portico.errors import PorticoError
from portico.registry.server_json import Argument, Input, TemplateInput, UnusableServer

Values = Mapping[str, Sequence[str]]
"""Values by the name they are asked for; several for an argument that may be repeated."""
_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_SECRET_LIMIT = 8_192


class MissingValues(PorticoError):
    """Values that were asked for were not given; nothing was written."""

    kind = "missing_values"


@dataclass(frozen=True)
class AskedValue:
    """One value that is asked for."""

    name: str
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    default: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    kind: str = "string"
    is_repeated: bool = False

    @classmethod
    def from_input(cls, name: str, asked: Input, *, is_repeated: bool = False) -> "AskedValue":
        return cls(
            name,
            asked.description or asked.placeholder,
            asked.isRequired,
            asked.isSecret,
            (asked.default,) if asked.default is not None else (),
            asked.choices,
            asked.format,
            is_repeated,
        )


def name_argument(argument: Argument) -> str:
    """Return the name by which an argument's value is asked for."""
    return argument.name.lstrip("-") or argument.valueHint


def list_asked(inputs: Iterable[tuple[str, TemplateInput]]) -> list[AskedValue]:
    """Return what inputs ask for: themselves where they have no value, or their variables."""
    asked: dict[str, AskedValue] = {}
    for name, one in inputs:
        if one.value is None:
            repeated = isinstance(one, Argument) and one.isRepeated
            _add(asked, AskedValue.from_input(name, one, is_repeated=repeated))
            continue
        for variable in _VARIABLE.findall(one.value):
            if variable in one.variables and one.variables[variable].value is None:
                _add(asked, AskedValue.from_input(variable, one.variables[variable]))
    return list(asked.values())


def _add(asked: dict[str, AskedValue], one: AskedValue) -> None:
    known = asked.get(one.name)
    if known is not None:
        # One that is a secret anywhere is one everywhere.
        one = replace(
            known,
            is_required=known.is_required or one.is_required,
            is_secret=known.is_secret or one.is_secret,
        )
    asked[one.name] = one


def fill_template(one: TemplateInput, values: Values) -> str | None:
    """Return an input's own value with its variables; None where one of them was not given."""
    if one.value is None:
        return None
    missing = False

    def fill(match: re.Match[str]) -> str:
        nonlocal missing
        variable = one.variables.get(match[1])
        if variable is None:
            return match[0]
        if variable.value is not None:
            return variable.value
        given = values.get(match[1])
        if not given:
            missing = True
            return ""
        return given[0]

    text = _VARIABLE.sub(fill, one.value)
    return None if missing else text


def parse_given(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return values from `NAME=VALUE` texts; raises PorticoError."""
    given: dict[str, list[str]] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise PorticoError(
                "--set is not written as a name and a value", advice="As in --set API_KEY=abc."
            )
        given.setdefault(name.lstrip("-"), []).append(value)
    return given


def complete_values(
    asked: Sequence[AskedValue],
    given: Values,
    ask: Callable[[AskedValue], str] | None = None,
) -> dict[str, list[str]]:
    """Return a value for all that is asked for and has one: given, answered, or the default.

    `ask` gets what is required and was not given; without it, MissingValues lists all of that.
    """
    names = {one.name for one in asked}
    if unknown := [name for name in given if name not in names]:
        listed = ", ".join(sorted(names)) or "nothing"
        raise PorticoError(
            f"the server does not ask for {unknown[0]!r}", advice=f"It asks for {listed}."
        )
    missing = [
        one for one in asked if one.is_required and not one.default and not given.get(one.name)
    ]
    if missing and ask is None:
        raise MissingValues(
            f"the server needs {len(missing)} value{'s' if missing[1:] else ''} that "
            f"{'were' if missing[1:] else 'was'} not given:\n"
            + "\n".join(f"  {_describe(one)}" for one in missing),
            advice="Give each as --set NAME=VALUE; secrets are kept in the env file.",
        )
    values: dict[str, list[str]] = {}
    for one in asked:
        texts = list(given.get(one.name) or ())
        if not texts and one in missing and ask is not None:
            texts = [ask(one)]
        if not texts:
            texts = list(one.default)
        if texts:
            values[one.name] = [_check(one, text) for text in texts]
    return values


def _describe(one: AskedValue) -> str:
    words = " ".join(one.description.split())[:160]
    secret = " (secret)" if one.is_secret else ""
    return f"{one.name}{secret}{': ' if words else ''}{words}"


def _check(one: AskedValue, text: str) -> str:
    if len(text) > _SECRET_LIMIT or "\0" in text or "\n" in text or "\r" in text:
        raise PorticoError(f"the value of {one.name} is no single line")
    if one.choices and text not in one.choices:
        raise PorticoError(f"{one.name} has to be one of {', '.join(one.choices)}")
    if one.kind == "number":
        try:
            float(text)
        except ValueError:
            raise PorticoError(f"{one.name} has to be a number") from None
    if one.kind == "boolean" and text not in ("true", "false"):
        raise PorticoError(f"{one.name} has to be true or false")
    if one.kind == "filepath" and text.startswith("~"):
        return str(Path(text).expanduser())
    return text


def require_text(text: str | None, name: str) -> str:
    """Return a text that must be there; raises UnusableServer."""
    if text is None:
        raise UnusableServer(f"its {name} cannot be built: a variable has no value")
    return text
