"""Checks values against JSON Schemas, which are compiled once per definition.

Nothing is checked, and the upstream decides, where a schema cannot be compiled (a broken `$ref`, an
unknown draft) or is too large, where a value would take too many checks, and for a `pattern` that
would take too long or needs backtracking. Errors are explained as far as that is cheap. All of this
is estimated beforehand (`schema_cost`). Remote references are never fetched.
"""

from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice
from threading import Lock
from typing import Any, NoReturn, cast

import jsonschema_rs

from portico.catalog.schema_cost import MAX_PEAK, PeakCounter, find_patterns
from portico.json_text import json_codec
from portico.json_text.json_codec import MAX_MEASURED_VALUES, ValueSize, measure_value
from portico.upstream.regex_cost import MAX_COMPILE_US, estimate_compilation

MAX_PROBLEMS = 5
MAX_SCHEMA_BYTES = 128 * 1024
"""Largest definition whose schema is compiled."""
MAX_CACHE_BYTES = 8 * 1024**2
"""Total size of the definitions whose compiled schemas are cached."""
_ENTRY_BYTES = 500
MAX_CHECKS = 500_000
"""Checks of a value with everything in it: 20 to 40 ns each."""
FIRST_ERRORS = 100
MAX_ERRORS = 1_000
"""Errors that an explanation may produce, some 15 µs each: the most where the first do not
suffice."""
MAX_COPIED_CHARS = 1_000_000
"""Characters that these errors may copy."""
MAX_PATTERN_STEPS = 2_500_000
"""Characters times states of a pattern: up to 8 ns each."""
MAX_PROBLEM_CHARS = 400
"""Limit for one problem: a wrong value may be a megabyte."""

MAX_PATTERNS = 64
"""Maximum number of patterns in a schema that is compiled with them."""

_PATTERN_STATES = {4 * 1024: 50, 32 * 1024: 400}
"""States of a compiled pattern, by the largest size in bytes."""
_SHALLOW_KEYWORDS = frozenset(("required", "additionalProperties", "type"))
"""Keywords whose result for a container does not depend on the contents of its members."""


def is_valid_for_schema(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether a value fits a part of a schema, or the part cannot be compiled alone."""
    blob = json_codec.dumps({"inputSchema": dict(schema)})
    validator = find_validator("", blob, "inputSchema")
    return validator is None or validator.is_valid(value)


def compile_condition(schema: Mapping[str, Any]) -> "SchemaValidator":
    """Compile a schema all of which is checked; raises ValueError if that is impossible."""
    try:
        blob = json_codec.dumps({"inputSchema": dict(schema)})
        validator = SchemaValidator(dict(schema), blob)
    except (TypeError, AttributeError, RecursionError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(f"it is no JSON Schema: {error}") from None
    if not validator.checks_patterns:
        raise ValueError("a pattern in it is invalid, or takes too long to compile")
    return validator


class SchemaValidator:
    def __init__(self, schema: dict[str, Any], blob: bytes) -> None:
        """Compile a schema of the definition `blob`; raises ValueError if it cannot be used."""
        patterns = blob.count(b'"pattern')
        self._schema = schema
        self._names_have_patterns = b'"patternProperties"' in blob
        self._peaks = PeakCounter(schema)
        self._patterns: PeakCounter | None = None
        if patterns or b'"format"' in blob:
            self._patterns = PeakCounter(schema, patterns_only=True)
        self._states = 1  # a format takes no longer than one state
        self._strict: Any = None
        self._lenient: Any = None
        if self._peaks.count_peak(0) >= MAX_PEAK:
            raise ValueError("it applies too many subschemas to one value")
        if not patterns:
            self._strict = _compile_schema(schema)
            return
        can_compile = (
            patterns <= MAX_PATTERNS
            and estimate_compilation(find_patterns(schema)) <= MAX_COMPILE_US
        )
        for size, states in _PATTERN_STATES.items() if can_compile else ():
            try:
                self._strict = _compile_schema(
                    schema, pattern_options=jsonschema_rs.RegexOptions(size)
                )
            except ValueError:
                continue
            self._states = states
            return
        self._lenient = self._compile_leniently()

    def is_valid(self, value: Any) -> bool:
        """Return whether a value fits, or would take too many checks."""
        return self._is_valid(value, self._measure(value))

    @property
    def checks_patterns(self) -> bool:
        """Whether its patterns could be compiled."""
        return self._strict is not None

    def check(self, value: Any) -> bool | None:
        """Return whether a value fits; None where that would take too many checks."""
        size = self._measure(value)
        peak = self._peaks.fixed_peak or self._peaks.count_peak(size.levels)
        if size.values > MAX_MEASURED_VALUES or peak >= MAX_PEAK or size.values * peak > MAX_CHECKS:
            return None
        validator = self._strict if self._patterns is None else self._choose_validator(size)
        if validator is None or validator is not self._strict:
            return None
        try:
            return validator.is_valid(value)
        except ValueError:  # nested too deeply, or invalid text
            return None

    def find_problems(self, value: Any) -> tuple[str, ...]:
        """Describe the errors of a value as far as that is cheap; empty if it is valid."""
        size = self._measure(value)
        if self._is_valid(value, size):
            return ()
        return self._explain(value, size)

    def _measure(self, value: Any) -> ValueSize:
        """Count the parts of a value, up to the number that is too large to be checked."""
        max_values = MAX_MEASURED_VALUES
        if self._peaks.fixed_peak:
            max_values = min(max_values, MAX_CHECKS // self._peaks.fixed_peak)
        return measure_value(value, max_values)

    def _is_valid(self, value: Any, size: ValueSize) -> bool:
        # Beyond MAX_MEASURED_VALUES not all characters and levels are counted.
        peak = self._peaks.fixed_peak or self._peaks.count_peak(size.levels)
        if size.values > MAX_MEASURED_VALUES or peak >= MAX_PEAK or size.values * peak > MAX_CHECKS:
            return True
        try:
            validator = self._strict if self._patterns is None else self._choose_validator(size)
            return validator is None or validator.is_valid(value)
        except ValueError:  # nested too deeply, or invalid text
            return False

    def _explain(self, value: Any, size: ValueSize) -> tuple[str, ...]:
        peak = max(1, self._peaks.count_peak(size.levels))
        found: tuple[str, ...] = ()
        try:
            validator = self._choose_validator(size)
            for max_errors in (FIRST_ERRORS, MAX_ERRORS):
                if peak > max_errors or validator is None:
                    continue
                part = _shrink(value, max_errors // peak, MAX_COPIED_CHARS // peak)
                certain = (
                    _format_problem(error)
                    for error in validator.iter_errors(part)
                    if _is_certain(error, value, part)
                )
                found = tuple(islice(certain, MAX_PROBLEMS))
                if part is value or len(found) == MAX_PROBLEMS:
                    break
        except (ValueError, RecursionError) as error:
            found = (str(error)[:MAX_PROBLEM_CHARS],)
        return found or ("they do not fit its schema; they are too large, or it is, to say where",)

    def _choose_validator(self, size: ValueSize) -> Any | None:
        """Return the validator with patterns and formats, without them if they take too long, or
        None."""
        patterns = self._patterns.count_peak(size.levels) if self._patterns is not None else 0
        if self._strict is not None and size.chars * patterns * self._states <= MAX_PATTERN_STEPS:
            return self._strict
        if self._lenient is None:
            self._lenient = self._compile_leniently()
        return self._lenient

    def _compile_leniently(self) -> Any | None:
        # Rules for additional members depend on the patterns of their names.
        if self._names_have_patterns:
            return None
        return _compile_schema(
            self._schema, keywords={"pattern": _AcceptingKeyword}, validate_formats=False
        )


class _AcceptingKeyword:
    def __init__(
        self, parent_schema: dict[str, Any], value: Any, schema_path: list[str | int]
    ) -> None:
        pass

    def validate(self, instance: Any) -> None:
        """Accept."""


def _compile_schema(schema: dict[str, Any], **options: Any) -> Any:
    # A `format: regex` would compile whatever a client sends.
    return jsonschema_rs.validator_for(
        schema, retriever=_refuse_reference, formats={"regex": _accept_format}, **options
    )


def _accept_format(_: str) -> bool:
    return True


def _refuse_reference(uri: str) -> NoReturn:
    raise ValueError(f"remote reference {uri} is not fetched")


def _shrink(value: Any, values: int, chars: int) -> Any:
    """Return the value, or a copy cut to at most so many values and characters.

    Parts that are not cut stay the same objects.
    """
    size = measure_value(value, values)
    if size.values <= values and size.chars <= chars:
        return value
    values -= 1
    if isinstance(value, list):
        part: list[Any] = []
        for item in cast("list[Any]", value):
            if values <= 0 or chars <= 0:
                break
            part.append(_shrink(item, values, chars))
            used = measure_value(part[-1], values)
            values -= used.values
            chars -= used.chars
        return part
    if isinstance(value, dict):
        members = list(islice(cast("dict[str, Any]", value).items(), max(0, values)))
        shrunk: dict[str, Any] = {}
        for members_left, (name, member) in zip(range(len(members), 0, -1), members, strict=True):
            chars -= len(name)
            if chars <= 0:
                break
            shrunk[name] = _shrink(member, values // members_left, chars // members_left)
            used = measure_value(shrunk[name], values)
            values -= used.values
            chars -= used.chars
        return shrunk
    if isinstance(value, str):
        return value[:MAX_PROBLEM_CHARS]
    return 0


def _is_certain(error: jsonschema_rs.ValidationError, value: Any, part: Any) -> bool:
    """Return whether an error of the shrunk value is also one of the whole value."""
    for step in error.instance_path:
        value = value[step]
        part = part[step]
    if value is part:
        return True
    if isinstance(value, dict | list) and len(cast("list[Any]", value)) != len(part):
        return error.kind.name == "type"
    return error.kind.name in _SHALLOW_KEYWORDS


def _format_problem(error: jsonschema_rs.ValidationError) -> str:
    path = ".".join(str(step) for step in error.instance_path)
    message = error.message
    # The message begins with the value and ends with what is wrong with it.
    if len(message) > MAX_PROBLEM_CHARS:
        message = f"{message[: MAX_PROBLEM_CHARS // 2]} … {message[-MAX_PROBLEM_CHARS // 2 :]}"
    return f"{path}: {message}" if path else message


class _ValidatorCache:
    """LRU cache of compiled schemas, each 30 times as large as its text. Thread-safe."""

    def __init__(self) -> None:
        self._validators: OrderedDict[tuple[str, bytes, str], SchemaValidator | None] = (
            OrderedDict()
        )
        self._bytes = 0
        self._lock = Lock()

    def find(self, key: str, blob: bytes, member: str) -> SchemaValidator | None:
        """Return the validator of a member of the definition `blob`; None if it cannot be
        used."""
        if len(blob) > MAX_SCHEMA_BYTES:
            return None
        cache_key = (key, blob, member)
        with self._lock:
            if cache_key in self._validators:
                self._validators.move_to_end(cache_key)
                return self._validators[cache_key]
        validator = _build_validator(blob, member)
        with self._lock:
            if cache_key not in self._validators:
                self._validators[cache_key] = validator
                self._bytes += len(blob) + _ENTRY_BYTES
            while self._bytes > MAX_CACHE_BYTES:
                (_, old, _), _ = self._validators.popitem(last=False)
                self._bytes -= len(old) + _ENTRY_BYTES
        return validator


find_validator = _ValidatorCache().find


def _build_validator(blob: bytes, member: str) -> SchemaValidator | None:
    try:
        schema = json_codec.loads(blob).get(member)
        if isinstance(schema, dict):
            return SchemaValidator(schema, blob)
        return None
    except (ValueError, TypeError, AttributeError, RecursionError, jsonschema_rs.ReferencingError):
        return None
