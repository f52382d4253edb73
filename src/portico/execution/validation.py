"""Check arguments against a tool's schema, and answers against what it declares. Compiled once per definition.

A schema that cannot be compiled (a broken `$ref`, an unknown draft) or is too large checks nothing: the upstream is
then the judge, as it would be without a gateway. So it is for a value that would take too many checks, and for a
`pattern` that would take too long or needs backtracking. What is wrong is explained as far as that is cheap. All of
this is counted before it is done (`schema_cost`). Remote references are never fetched.
"""

from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice
from threading import Lock
from typing import Any, NoReturn, cast

import jsonschema_rs

from portico.catalog.tool import Tool
from portico.errors import InvalidArguments
from portico.execution.misnamed import misnamed
from portico.execution.repair import Repair, repaired
from portico.execution.schema_cost import (
    MAX_PEAK,
    MAX_VALUES,
    PeakCounter,
    Size,
    find_patterns,
    measure,
)
from portico.upstream import jsontext
from portico.upstream.backend import Raw
from portico.upstream.pattern_cost import MAX_COMPILE_US, estimate_compilation

MAX_PROBLEMS = 5
MAX_SCHEMA = 128 * 1024
"""Bytes of a definition whose schema is compiled."""
MAX_KEPT = 8 * 1024**2
"""Bytes of the definitions whose compiled schemas are kept."""
_ENTRY_BYTES = 500
MAX_CHECKS = 500_000
"""Checks of a value and what is in it: 20 to 40 ns each."""
MAX_ERRORS = 1_000
"""Errors that an explanation may have to make: some 15 µs each."""
MAX_COPIED = 1_000_000
"""Characters that these errors may have to copy."""
MAX_MATCHED = 2_500_000
"""Characters times states of a pattern: up to 8 ns each."""
MAX_CHARS = 400
"""Of one problem: a wrong value may be a megabyte."""

MAX_PATTERNS = 64
"""Patterns of one schema that are compiled."""

_PATTERN_STATES = {4 * 1024: 50, 32 * 1024: 400}
"""How many states a compiled pattern of at most so many bytes has."""
_ANY_PART = frozenset(("required", "additionalProperties", "type"))
"""Keywords whose verdict on a container does not depend on what is inside its members."""


def fits(tool: Tool, arguments: Any) -> bool:
    """Whether the arguments fit. This is all that a call with the right ones pays."""
    checker = _checker(tool.hash, tool.blob, "inputSchema")
    return checker is None or checker.is_valid(arguments)


def fits_schema(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value fits a part of a schema, or that cannot be told: not every part can be read alone."""
    blob = jsontext.dumps({"inputSchema": dict(schema)})
    checker = _checker("", blob, "inputSchema")
    return checker is None or checker.is_valid(value)


def check(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArguments, naming each problem, when the arguments do not fit."""
    checker = _checker(tool.hash, tool.blob, "inputSchema")
    if checker is None or checker.is_valid(arguments):
        return
    problems = (*misnamed(tool.input_schema, arguments), *checker.explain(arguments))[:MAX_PROBLEMS]
    raise InvalidArguments(
        f"the arguments do not fit {tool.address}: " + "; ".join(problems),
        problems=problems,
        advice="Correct the arguments and call again.",
    )


def mended(tool: Tool, arguments: Any) -> Repair:
    """What must have been meant by arguments that do not fit; raises InvalidArguments where that is not certain."""
    try:
        repair = repaired(tool.input_schema, arguments)
    except ValueError:
        repair = None
    if repair is not None:
        # What could be repaired will be again: only the rest is its caller's to mend.
        check(tool, repair.arguments)
        return repair
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            f"the arguments of {tool.address} must be an object, not {type(arguments).__name__}",
            advice="Pass the parameters as one JSON object.",
        )
    check(tool, cast("Mapping[str, Any]", arguments))
    return Repair(cast("dict[str, Any]", arguments), ())


def mismatches(tool: Tool, result: Raw) -> tuple[str, ...]:
    """How a result differs from what its tool declares to answer; nothing where that is not known, or too large."""
    checker = _checker(tool.hash, tool.blob, "outputSchema")
    if checker is None or result.get("isError") or result.get("resultType", "complete") != "complete":
        return ()
    structured = result.get("structuredContent")
    if structured is None:
        return ("there is no structured content, though the tool declares some",)
    return () if checker.is_valid(structured) else checker.explain(structured)


class _Checker:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any], blob: bytes) -> None:
        """Compile a schema out of the definition `blob`; raises ValueError where it cannot be used."""
        patterns = blob.count(b'"pattern')
        self._schema = schema
        self._names_have_patterns = b'"patternProperties"' in blob
        self._peaks = PeakCounter(schema)
        matches = patterns or b'"format"' in blob
        self._patterns = PeakCounter(schema, patterns_only=True) if matches else None
        self._states = 1  # a format takes no longer than that
        self._strict: Any = None
        self._lenient: Any = None
        if self._peaks.peak(0) >= MAX_PEAK:
            raise ValueError("it applies too many subschemas to one value")
        if not patterns:
            self._strict = _compile(schema)
            return
        can_compile = patterns <= MAX_PATTERNS and estimate_compilation(find_patterns(schema)) <= MAX_COMPILE_US
        for size, states in _PATTERN_STATES.items() if can_compile else ():
            try:
                self._strict = _compile(schema, pattern_options=jsonschema_rs.RegexOptions(size))
            except ValueError:
                continue
            self._states = states
            return
        self._lenient = self._compile_leniently()

    def is_valid(self, value: Any) -> bool:
        """Whether a value fits, or would take too many checks to tell."""
        size = measure(value)
        # Beyond that its characters and levels are not all counted.
        peak = self._peaks.peak(size.levels)
        if size.values > MAX_VALUES or peak >= MAX_PEAK or size.values * peak > MAX_CHECKS:
            return True
        try:
            validator = self._choose(size)
            return validator is None or validator.is_valid(value)
        except ValueError:  # nested too deeply, or text that is none
            return False

    def explain(self, value: Any) -> tuple[str, ...]:
        """Say what is wrong with a value that does not fit, as far as that is cheap."""
        size = measure(value)
        peak = max(1, self._peaks.peak(size.levels))
        found: tuple[str, ...] = ()
        try:
            if peak <= MAX_ERRORS:
                part = _shrink(value, MAX_ERRORS // peak, MAX_COPIED // peak)
                validator = self._choose(size)
                errors = validator.iter_errors(part) if validator is not None else ()
                certain = (_problem(error) for error in errors if _is_certain(error, value, part))
                found = tuple(islice(certain, MAX_PROBLEMS))
        except (ValueError, RecursionError) as error:
            found = (str(error)[:MAX_CHARS],)
        return found or ("they do not fit its schema; they are too large, or it is, to say where",)

    def _choose(self, size: Size) -> Any | None:
        """The validator with patterns and formats, or where these take too long one without, or None."""
        patterns = self._patterns.peak(size.levels) if self._patterns is not None else 0
        if self._strict is not None and size.chars * patterns * self._states <= MAX_MATCHED:
            return self._strict
        if self._lenient is None:
            self._lenient = self._compile_leniently()
        return self._lenient

    def _compile_leniently(self) -> Any | None:
        # What a schema says of other members depends on the patterns of their names.
        if self._names_have_patterns:
            return None
        return _compile(self._schema, keywords={"pattern": _Unchecked}, validate_formats=False)


class _Unchecked:
    """A keyword that accepts everything."""

    def __init__(self, parent_schema: dict[str, Any], value: Any, schema_path: list[str | int]) -> None:
        pass

    def validate(self, instance: Any) -> None:
        """Accept."""


def _compile(schema: dict[str, Any], **options: Any) -> Any:
    # A `format: regex` would compile whatever a client sends.
    return jsonschema_rs.validator_for(schema, retriever=_refuse, formats={"regex": _accept}, **options)


def _accept(_: str) -> bool:
    return True


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"remote reference {uri} is not fetched")


def _shrink(value: Any, values: int, chars: int) -> Any:
    """Return the value, or a copy that is no larger than this: without the last items, members and characters.

    What stays whole is the same object.
    """
    size = measure(value, values)
    if size.values <= values and size.chars <= chars:
        return value
    values -= 1
    if isinstance(value, list):
        part: list[Any] = []
        for item in cast("list[Any]", value):
            if values <= 0 or chars <= 0:
                break
            part.append(_shrink(item, values, chars))
            used = measure(part[-1], values)
            values -= used.values
            chars -= used.chars
        return part
    if isinstance(value, dict):
        members = list(islice(cast("dict[str, Any]", value).items(), max(0, values)))
        kept: dict[str, Any] = {}
        for left, (name, member) in zip(range(len(members), 0, -1), members, strict=True):
            chars -= len(name)
            if chars <= 0:
                break
            kept[name] = _shrink(member, values // left, chars // left)
            used = measure(kept[name], values)
            values -= used.values
            chars -= used.chars
        return kept
    return value[:MAX_CHARS] if isinstance(value, str) else 0


def _is_certain(error: jsonschema_rs.ValidationError, value: Any, part: Any) -> bool:
    """Whether an error of a part is one of the whole value: nothing that it is about was left out."""
    for step in error.instance_path:
        value, part = value[step], part[step]
    if value is part:
        return True
    if isinstance(value, dict | list) and len(cast("list[Any]", value)) != len(part):
        return error.kind.name == "type"
    return error.kind.name in _ANY_PART


def _problem(error: jsonschema_rs.ValidationError) -> str:
    path = ".".join(str(step) for step in error.instance_path)
    message = error.message
    if len(message) > MAX_CHARS:  # it quotes the value first and says what is wrong with it last
        message = f"{message[: MAX_CHARS // 2]} … {message[-MAX_CHARS // 2 :]}"
    return f"{path}: {message}" if path else message


class _Checkers:
    """The compiled schemas that were used last: one takes 30 times as much memory as its text."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, bytes, str], _Checker | None] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def find(self, key: str, blob: bytes, member: str) -> _Checker | None:
        """Compile a member of the definition `blob`, or take what was compiled; None where it cannot be used."""
        if len(blob) > MAX_SCHEMA:
            return None
        place = (key, blob, member)
        with self._lock:
            if place in self._kept:
                self._kept.move_to_end(place)
                return self._kept[place]
        made = _make_checker(blob, member)
        with self._lock:
            if place not in self._kept:
                self._kept[place] = made
                self._bytes += len(blob) + _ENTRY_BYTES
            while self._bytes > MAX_KEPT:
                (_, old, _), _ = self._kept.popitem(last=False)
                self._bytes -= len(old) + _ENTRY_BYTES
        return made


_checker = _Checkers().find


def _make_checker(blob: bytes, member: str) -> _Checker | None:
    try:
        schema = jsontext.loads(blob).get(member)
        return _Checker(schema, blob) if isinstance(schema, dict) else None
    except (ValueError, TypeError, AttributeError, RecursionError, jsonschema_rs.ReferencingError):
        return None
