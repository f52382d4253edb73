"""The Python reference, generated from signatures and docstrings.

The part of docs/reference/python.md above the mark is written by hand; below it every public name
has its entry.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import portico
from portico import errors
from portico.library import Gateway, Match, Matches, Result, ServerInfo, SyncGateway, ToolInfo

_DATACLASSES = (ToolInfo, Match, Matches, Result, ServerInfo)


def page() -> str:
    """Render every public name as Markdown."""
    parts = [
        *_render_class(Gateway),
        *_render_sync_gateway(),
        *(part for fact in _DATACLASSES for part in _render_dataclass(fact)),
        *_render_errors(),
    ]
    return "\n\n".join(parts)


def _render_class(cls: type) -> Iterator[str]:
    yield f"## `{cls.__name__}`"
    yield inspect.getdoc(cls) or ""
    yield _render_signature(cls.__name__, cls.__init__)
    yield inspect.getdoc(cls.__init__) or ""
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        yield f"### `{cls.__name__}.{name}`"
        if not isinstance(member, property):
            yield _render_signature(name, member)
        yield inspect.getdoc(member) or ""


def _render_sync_gateway() -> Iterator[str]:
    yield "## `SyncGateway`"
    yield inspect.getdoc(SyncGateway) or ""
    names = [name for name in vars(SyncGateway) if not name.startswith("_")]
    yield f"It has {', '.join(f'`{name}`' for name in names)}, none of which is awaited."


def _render_dataclass(cls: type) -> Iterator[str]:
    yield f"## `{cls.__name__}`"
    yield inspect.getdoc(cls) or ""
    assert is_dataclass(cls)
    docs = _read_field_docs(cls)
    lines: list[str] = []
    for field in fields(cls):
        shown = field.repr or field.name in docs or field.name.endswith(("schema", "description"))
        if shown and field.name != "render":
            lines.append(
                _render_field(field.name, _render_type(field.type), docs.get(field.name, ""))
            )
    for name, member in vars(cls).items():
        if isinstance(member, property):
            getter = member.fget
        else:
            getter = getattr(member, "func", None)
        if getter is not None and not name.startswith("_"):
            lines.append(
                _render_field(
                    name,
                    _render_type(inspect.get_annotations(getter).get("return", "")),
                    inspect.getdoc(getter) or "",
                )
            )
    yield "\n".join(lines)


def _render_field(name: str, kind: str, doc: str) -> str:
    return f"- **`{name}`** ({kind})" + (f": {' '.join(doc.split())}" if doc else "")


def _read_field_docs(cls: type) -> dict[str, str]:
    """Read the docstrings below the fields of a class and its base classes."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if is_dataclass(base):
            source = inspect.getsource(base)
            found |= dict(
                re.findall(r'^    (\w+): [^\n]+\n    """(.+?)"""', source, re.MULTILINE | re.DOTALL)
            )
    return found


def _render_errors() -> Iterator[str]:
    yield "## Errors"
    yield (
        "All are importable from `portico`, and each has `message`, `advice` (what to do about "
        "it), `retryable` and `retry_after_s`."
    )
    tree = (errors.__doc__ or "").split("\n\n")[1]
    yield f"```text\n{tree.strip()}\n```"
    named = [getattr(portico, name) for name in portico.__all__ if name in vars(errors)]
    yield "\n".join(f"- **`{error.__name__}`**: {inspect.getdoc(error)}" for error in named)


def _render_signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        parameter for parameter in signature.parameters.values() if parameter.name != "self"
    ]
    shown = list[str]()
    starred = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            if not any(before.kind is before.VAR_POSITIONAL for before in parameters):
                shown.append("*")
        if parameter.kind is parameter.VAR_POSITIONAL:
            star = "*"
        else:
            star = ""
        starred = starred or bool(star)
        if parameter.default is parameter.empty:
            default = ""
        else:
            default = f" = {parameter.default!r}"
        shown.append(f"{star}{parameter.name}: {_render_type(parameter.annotation)}{default}")
    if name[0].isupper():
        returned = ""
    else:
        returned = f" -> {_render_type(signature.return_annotation)}"
    if inspect.iscoroutinefunction(function):
        before = "await "
    else:
        before = ""
    line = f"{before}{name}({', '.join(shown)}){returned}"
    if len(line) > 100:
        line = f"{before}{name}(\n    " + ",\n    ".join(shown) + f",\n){returned}"
    return f"```text\n{line}\n```"


def _render_type(annotation: Any) -> str:
    if isinstance(annotation, str):
        text = annotation
    else:
        text = inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text).replace("Self", "Gateway") or "None"
    # Python versions differ in how they print optional types.
    return re.sub(r"^Optional\[(.+)\]$", r"\1 | None", text)
