"""Request plans: what a call needs of its operation."""

from dataclasses import dataclass
from typing import Literal

ParameterLocation = Literal["path", "query", "header", "cookie"]
BodyFormat = Literal["json", "form", "multipart", "raw"]


@dataclass(frozen=True, slots=True)
class ParameterPlan:
    """An argument in the path, query, headers or cookies of a request."""

    argument: str
    name: str
    location: ParameterLocation
    style: str
    explode: bool
    required: bool = False
    allow_reserved: bool = False
    """Send reserved characters unencoded, where that cannot change the meaning of the URL."""
    is_json: bool = False
    keeps_slashes: bool = False
    """The value is a path: slashes stay unencoded."""


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """An argument that becomes a field of the body."""

    argument: str
    name: str
    is_file: bool = False
    media_type: str = ""
    uses_brackets: bool = False
    """A list is written `name[]=1`, as with `deepObject`."""
    separator: str = ""
    """Separator of list items, unless the field is repeated."""


@dataclass(frozen=True, slots=True)
class BodyPlan:
    """Media type, format and arguments of a body."""

    media_type: str
    format: BodyFormat
    required: bool
    argument: str = ""
    """The argument that is the whole body; empty if its fields are arguments."""
    fields: tuple[FieldPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """Method, URL, parameters and body of an operation."""

    name: str
    method: str
    path: str
    server: str
    """Base URL without a trailing slash."""
    parameters: tuple[ParameterPlan, ...] = ()
    body: BodyPlan | None = None
    required_credentials: tuple[str, ...] = ()
    """Descriptions of the credentials that it requires: a header or parameter to configure."""
