"""What a call needs to know of its operation, and nothing else."""

from dataclasses import dataclass
from typing import Literal

ParameterLocation = Literal["path", "query", "header", "cookie"]
BodyFormat = Literal["json", "form", "multipart", "raw"]


@dataclass(frozen=True, slots=True)
class ParameterPlan:
    """An argument that goes into the address or the head of a request."""

    argument: str
    name: str
    location: ParameterLocation
    style: str
    explode: bool
    required: bool = False
    allow_reserved: bool = False
    """Characters that separate parts of an address are sent as they are, where that cannot change
    its meaning."""
    is_json: bool = False
    keeps_slashes: bool = False
    """A path of its own: slashes stay."""


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """An argument that becomes a field of the body."""

    argument: str
    name: str
    is_file: bool = False
    media_type: str = ""
    uses_brackets: bool = False
    """A list is written `name[]=1`, as `deepObject` has it."""
    separator: str = ""
    """What its items are joined with, where it is not repeated."""


@dataclass(frozen=True, slots=True)
class BodyPlan:
    """How a body is made."""

    media_type: str
    format: BodyFormat
    required: bool
    argument: str = ""
    """The argument that is all of it; empty where its fields are arguments of their own."""
    fields: tuple[FieldPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """How an operation is called."""

    name: str
    method: str
    path: str
    server: str
    """Where it is, without a slash at the end."""
    parameters: tuple[ParameterPlan, ...] = ()
    body: BodyPlan | None = None
    required_credentials: tuple[str, ...] = ()
    """What it asks for, each in words: a header or parameter to configure."""
