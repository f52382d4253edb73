"""Do these arguments fit the tool's schema? Compiled once per definition.

A schema that cannot be compiled (a broken `$ref`, an unknown draft) checks nothing: the upstream is then the judge, as
it would be without a gateway. Remote references are never fetched.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

import jsonschema_rs

from portico.catalog.tool import Tool
from portico.errors import InvalidArguments
from portico.upstream import jsontext

MAX_PROBLEMS = 5


def check(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArguments, naming each problem, when the arguments do not fit."""
    validator = _validator(tool.hash, tool.blob)
    if validator is None or validator.is_valid(arguments):
        return
    problems: list[str] = []
    for error in validator.iter_errors(arguments):
        path = ".".join(str(step) for step in error.instance_path)
        problems.append(f"{path}: {error.message}" if path else error.message)
        if len(problems) == MAX_PROBLEMS:
            break
    raise InvalidArguments(
        f"the arguments do not fit {tool.address}: " + "; ".join(problems),
        problems=tuple(problems),
        advice="Correct the arguments and call again.",
    )


@lru_cache(maxsize=4_096)
def _validator(key: str, blob: bytes) -> Any | None:
    schema = jsontext.loads(blob).get("inputSchema")
    if not isinstance(schema, dict):
        return None
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except (ValueError, TypeError, RecursionError):
        return None


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"remote reference {uri} is not fetched")
