"""What a call needs to know of its operation, and nothing else."""

from dataclasses import dataclass
from typing import Literal

Place = Literal["path", "query", "header", "cookie"]
Shape = Literal["json", "form", "multipart", "raw"]


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument that goes into the address or the head of a request."""

    argument: str
    name: str
    place: Place
    style: str
    explode: bool
    required: bool = False
    reserved: bool = False
    """Characters that separate parts of an address are sent as they are, where that cannot change its meaning."""
    as_json: bool = False
    segments: bool = False
    """A path of its own: slashes stay."""


@dataclass(frozen=True, slots=True)
class Part:
    """An argument that becomes a field of the body."""

    argument: str
    name: str
    file: bool = False
    media_type: str = ""
    brackets: bool = False
    """A list is written `name[]=1`, as `deepObject` has it."""
    joined: str = ""
    """What its items are joined with, where it is not repeated."""


@dataclass(frozen=True, slots=True)
class Body:
    """How a body is made."""

    media_type: str
    shape: Shape
    required: bool
    argument: str = ""
    """The argument that is all of it; empty where its fields are arguments of their own."""
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """How an operation is called."""

    name: str
    method: str
    path: str
    server: str
    """Where it is, without a slash at the end."""
    slots: tuple[Slot, ...] = ()
    body: Body | None = None
    security: tuple[str, ...] = ()
    """What it asks for, each in words: a header or parameter to configure."""
