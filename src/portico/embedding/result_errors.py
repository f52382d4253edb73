"""The gateway's refusals, which a model reads as results, as the exceptions that a program catches.
Pure."""

from collections.abc import Mapping
from typing import Any, cast

from portico.errors import (
    INTERNAL_ERROR,
    BackendBusy,
    BackendTimeout,
    BackendUnavailable,
    ConfigError,
    DefinitionChanged,
    InvalidArguments,
    Overloaded,
    PorticoError,
    RecordedOnly,
    RemoteError,
    StaleCursor,
    UnknownName,
)
from portico.rendering.tool_result import ERROR_META_KEY

_ERRORS_BY_KIND: Mapping[str, type[PorticoError]] = {
    kind.kind: kind
    for kind in (
        BackendBusy,
        BackendTimeout,
        BackendUnavailable,
        ConfigError,
        DefinitionChanged,
        InvalidArguments,
        Overloaded,
        RecordedOnly,
        StaleCursor,
        UnknownName,
    )
}


def to_exception(result: Mapping[str, Any], hint: str = "") -> PorticoError | None:
    """The error that a result stands for; None for an answer, and for an error that is the tool's
    own.

    `hint` is added to what the error advises where arguments were wrong.
    """
    meta = result.get("_meta")
    if isinstance(meta, dict):
        facts = cast("dict[str, Any]", meta).get(ERROR_META_KEY)
    else:
        facts = None
    if not isinstance(facts, dict):
        return None
    told = cast("dict[str, Any]", facts)
    kind = told["kind"]
    message = told["message"]
    advice = told.get("advice", "")
    if kind == RemoteError.kind:
        error = RemoteError(
            told.get("code", INTERNAL_ERROR), message, told.get("data"), has_data="data" in told
        )
        error.advice = advice
        return error
    made = _ERRORS_BY_KIND.get(kind, PorticoError)
    if made is InvalidArguments:
        advice = "\n".join(filter(None, (advice, hint)))
        return InvalidArguments(message, problems=tuple(told.get("problems", ())), advice=advice)
    if made is UnknownName:
        return UnknownName(message, nearest=tuple(told.get("nearest", ())), advice=advice)
    error = made(message, advice=advice)
    error.retry_after_s = told.get("retry_after_s")
    return error
