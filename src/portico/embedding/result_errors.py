"""Error results of the gateway, converted to the exceptions that a program catches. Pure."""

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
    """Convert a result to the gateway error it reports.

    None for a success, and for an error of the tool itself. `hint` is appended to the advice of
    InvalidArguments.
    """
    meta = result.get("_meta")
    if not isinstance(meta, dict):
        return None
    error_data = cast("dict[str, Any]", meta).get(ERROR_META_KEY)
    if not isinstance(error_data, dict):
        return None
    facts = cast("dict[str, Any]", error_data)
    kind = facts["kind"]
    message = facts["message"]
    advice = facts.get("advice", "")
    if kind == RemoteError.kind:
        error = RemoteError(
            facts.get("code", INTERNAL_ERROR), message, facts.get("data"), has_data="data" in facts
        )
        error.advice = advice
        return error
    error_class = _ERRORS_BY_KIND.get(kind, PorticoError)
    if error_class is InvalidArguments:
        advice = "\n".join(filter(None, (advice, hint)))
        return InvalidArguments(message, problems=tuple(facts.get("problems", ())), advice=advice)
    if error_class is UnknownName:
        return UnknownName(message, nearest=tuple(facts.get("nearest", ())), advice=advice)
    error = error_class(message, advice=advice)
    error.retry_after_s = facts.get("retry_after_s")
    return error
