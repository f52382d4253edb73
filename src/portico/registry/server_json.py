"""Reads `server.json`, a registry's description of one server (schema of 2025-12-11).

Everything in it was written by a stranger: texts, lists and nesting are bounded here, and what
Portico cannot use is refused with the reason. Unknown keys are ignored, as later schemas add some.
Pure.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from portico.errors import PorticoError
from portico.json_text import json_codec
from portico.json_text.json_codec import has_more_values

MAX_SERVER_JSON_BYTES = 256 * 1024
MAX_SERVER_JSON_VALUES = 10_000
MAX_TEXT = 2_000
MAX_ITEMS = 64
SERVER_NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class UnusableServer(PorticoError):
    """What describes a server, or the server's package, cannot be used; nothing was written."""

    kind = "unusable_server"


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
ShortText = Annotated[str, StringConstraints(max_length=255)]


class RegistryModel(BaseModel):
    """Base: frozen; keys of later schemas are ignored; values are in no error message."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class Input(RegistryModel):
    """A value: fixed, or asked for."""

    description: Text = ""
    isRequired: bool = False
    format: Literal["string", "number", "boolean", "filepath"] = "string"
    value: Text | None = None
    isSecret: bool = False
    default: Text | None = None
    placeholder: Text = ""
    choices: Annotated[tuple[Text, ...], Field(max_length=MAX_ITEMS)] = ()


class TemplateInput(Input):
    """A value whose text may name variables in braces."""

    variables: Annotated[dict[ShortText, Input], Field(max_length=MAX_ITEMS)] = {}


class NamedInput(TemplateInput):
    """An environment variable or a header."""

    name: ShortText


class Argument(TemplateInput):
    """An argument of a command line."""

    type: Literal["positional", "named"]
    name: ShortText = ""
    valueHint: ShortText = ""
    isRepeated: bool = False


Inputs = Annotated[tuple[NamedInput, ...], Field(max_length=MAX_ITEMS)]
Arguments = Annotated[tuple[Argument, ...], Field(max_length=MAX_ITEMS)]


class RegistryTransport(RegistryModel):
    """How a server is spoken to; a remote one has an address."""

    type: Literal["stdio", "streamable-http", "sse"]
    url: Text = ""
    headers: Inputs = ()
    variables: Annotated[dict[ShortText, Input], Field(max_length=MAX_ITEMS)] = {}


class RegistryPackage(RegistryModel):
    """A package that contains the server."""

    registryType: ShortText
    identifier: Text
    transport: RegistryTransport
    registryBaseUrl: Text = ""
    version: ShortText = ""
    fileSha256: str = ""
    runtimeHint: ShortText = ""
    runtimeArguments: Arguments = ()
    packageArguments: Arguments = ()
    environmentVariables: Inputs = ()


class RegistryServer(RegistryModel):
    """One version of a server."""

    name: Annotated[str, StringConstraints(max_length=200)]
    description: Text = ""
    title: ShortText = ""
    version: ShortText
    websiteUrl: Text = ""
    packages: Annotated[tuple[RegistryPackage, ...], Field(max_length=MAX_ITEMS)] = ()
    remotes: Annotated[tuple[RegistryTransport, ...], Field(max_length=MAX_ITEMS)] = ()


def parse_server_json(data: bytes, source: str) -> RegistryServer:
    """Return what a `server.json` says; raises UnusableServer."""
    return check_server(decode_object(data, source), source)


def decode_object(data: bytes, source: str) -> dict[str, Any]:
    """Return the JSON object of a small file; raises UnusableServer."""
    if len(data) > MAX_SERVER_JSON_BYTES:
        raise UnusableServer(f"{source} has more than {MAX_SERVER_JSON_BYTES // 1024} KiB")
    if has_more_values(data, MAX_SERVER_JSON_VALUES):
        raise UnusableServer(f"{source} has more than {MAX_SERVER_JSON_VALUES:,} JSON values")
    try:
        found = json_codec.loads(data)
    except (ValueError, RecursionError):
        raise UnusableServer(f"{source} is no JSON") from None
    if not isinstance(found, dict):
        raise UnusableServer(f"{source} is no JSON object")
    return found


def check_server(found: Mapping[str, Any], source: str) -> RegistryServer:
    """Return the server of a JSON object; raises UnusableServer."""
    try:
        server = RegistryServer.model_validate(found)
    except ValidationError as error:
        raise UnusableServer(f"{source} is no server.json: {describe_problem(error)}") from None
    if not SERVER_NAME.fullmatch(server.name):
        raise UnusableServer(
            f"{source} is no server.json: its name is not written as namespace/name"
        )
    for package in server.packages:
        _check_names(package.environmentVariables, _ENVIRONMENT_NAME, "environment variable")
        _check_arguments((*package.runtimeArguments, *package.packageArguments))
        _check_names(package.transport.headers, _HEADER_NAME, "header")
    for remote in server.remotes:
        _check_names(remote.headers, _HEADER_NAME, "header")
    for text in _iter_texts(found):
        _check_text(text)
    return server


def describe_problem(error: ValidationError) -> str:
    """Return the first problem in words, with its place and without the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])[:120]
    return f"{place}: {first['msg']}"


def _check_names(inputs: tuple[NamedInput, ...], pattern: re.Pattern[str], kind: str) -> None:
    for one in inputs:
        if not pattern.fullmatch(one.name):
            raise UnusableServer(f"it names an {kind} {one.name[:60]!r}, which can be none")


def _check_arguments(arguments: tuple[Argument, ...]) -> None:
    for one in arguments:
        if one.type == "named" and not one.name.startswith("-"):
            raise UnusableServer(f"a named argument is {one.name[:60]!r}, which is no option")
        if one.type == "positional" and one.value is None and not one.valueHint:
            raise UnusableServer("a positional argument has neither a value nor a valueHint")


def _check_text(text: str) -> None:
    """Refuse text that the configuration would read as more than text."""
    if "${" in text:
        raise UnusableServer(
            "it contains ${, which a configuration would take for a variable of this machine, or "
            "for a command to run"
        )
    if _CONTROL.search(text):
        raise UnusableServer("it contains control characters where a word or a value stands")


_PROSE_KEYS = frozenset({"description", "_meta", "placeholder", "icons", "repository"})
"""Keys whose texts are shown at most."""


def _iter_texts(found: object) -> Iterator[str]:
    queue = [found]
    for node in queue:
        if isinstance(node, str):
            yield node
        elif isinstance(node, Mapping):
            # Objects of JSON, whose keys are texts.
            members: Mapping[str, object] = node  # pyright: ignore[reportUnknownVariableType]
            queue.extend(value for key, value in members.items() if key not in _PROSE_KEYS)
        elif isinstance(node, list):
            items: list[object] = node  # pyright: ignore[reportUnknownVariableType]
            queue.extend(items)
