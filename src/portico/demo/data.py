"""Data: tables, JSON, hashes and encodings, all as text or JSON."""

import base64
import binascii
import csv
import hashlib
import html
import io
import json
import operator
import re
import statistics
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from portico.demo.tool_factory import make_read_only_tool

MAX_CHARS = 500_000
MAX_ROWS = 10_000

Row = dict[str, Any]
Rows = Annotated[list[Row], Field(max_length=MAX_ROWS, description="The rows, each an object.")]
Json = Annotated[str, Field(max_length=MAX_CHARS, description="JSON text.")]
Delimiter = Annotated[Literal[",", ";", "\t", "|"], Field(description="Between fields.")]
Compare = Literal["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with", "is_empty"]
Aggregate = Literal["count", "sum", "mean", "median", "min", "max"]
Encoding = Literal["base64", "base64url", "hex", "url", "html"]
Algorithm = Literal["sha256", "sha512", "sha1", "md5", "blake2b", "sha3_256"]

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]|\[\"([^\"]*)\"\]|\[(\*)\]")


def csv_to_json(
    text: Annotated[str, Field(max_length=MAX_CHARS, description="CSV with a header line.")],
    delimiter: Delimiter = ",",
    guess_types: Annotated[
        bool, Field(description="Turn numbers, true, false and empty fields into JSON values.")
    ] = True,
) -> list[Row]:
    """Read CSV text and return its rows as JSON objects keyed by the header."""
    lines = list(csv.reader(io.StringIO(text.lstrip("\ufeff")), delimiter=delimiter))
    lines = [line for line in lines if line]
    if not lines:
        return []
    header, *body = lines
    if len(set(header)) != len(header):
        raise ValueError("two columns have the same name")
    rows: list[Row] = []
    for number, line in enumerate(body, 2):
        if len(line) != len(header):
            raise ValueError(f"row {number} has {len(line)} fields, the header has {len(header)}")
        rows.append(
            {
                key: _parse_field(field) if guess_types else field
                for key, field in zip(header, line, strict=True)
            }
        )
    return rows


def _parse_field(field: str) -> Any:
    text = field.strip()
    if text == "":
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    # A leading zero means a code (a postcode, a telephone number), not a number.
    if re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", text):
        return int(text)
    if re.fullmatch(r"-?(?:0|[1-9]\d{0,17})\.\d{1,17}(?:[eE][-+]?\d{1,2})?", text):
        return float(text)
    return field


def json_to_csv(
    rows: Rows,
    columns: Annotated[
        list[str] | None, Field(description="Which columns, in which order; default: all.")
    ] = None,
    delimiter: Delimiter = ",",
) -> str:
    """Write JSON objects as CSV text with a header line."""
    names = columns or list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_to_field(row.get(name)) for name in names])
    return out.getvalue()


def _to_field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def query_rows(
    rows: Rows,
    column: Annotated[
        str | None, Field(description="Keep rows by the value of this column.")
    ] = None,
    compare: Annotated[Compare, Field(description="How that value is compared.")] = "=",
    value: Annotated[
        str | float | bool | None, Field(description="What it is compared with.")
    ] = None,
    select: Annotated[list[str] | None, Field(description="Columns to keep; default: all.")] = None,
    sort_by: Annotated[str | None, Field(description="Column to sort by.")] = None,
    descending: Annotated[bool, Field(description="Largest first.")] = False,
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="Most rows to return.")] = 100,
) -> dict[str, Any]:
    """Filter, sort and cut a table of JSON rows: a small SELECT … WHERE … ORDER BY … LIMIT."""
    found = [row for row in rows if column is None or _matches(row.get(column), compare, value)]
    if sort_by is not None:
        found.sort(key=lambda row: _to_sort_key(row.get(sort_by)), reverse=descending)
    shown = [{name: row.get(name) for name in select} if select else row for row in found[:limit]]
    return {"rows": shown, "matched": len(found), "of": len(rows)}


def _matches(field: Any, compare: Compare, value: Any) -> bool:
    match compare:
        case "is_empty":
            return field in (None, "", [], {})
        case "contains":
            return str(value).casefold() in _to_field(field).casefold()
        case "starts_with":
            return _to_field(field).casefold().startswith(str(value).casefold())
        case "=" | "!=":
            return (_to_comparable(field) == _to_comparable(value)) is (compare == "=")
        case _:
            left = _to_comparable(field)
            right = _to_comparable(value)
            return type(left) is type(right) and left is not None and _ORDER[compare](left, right)


def _to_comparable(value: Any) -> Any:
    """Convert numbers, also in text form, to float for comparison."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    text = _to_field(value)
    if re.fullmatch(r"-?\d{1,300}(?:\.\d{1,300})?", text):
        return float(text)
    return text


def _to_sort_key(value: Any) -> tuple[int, Any]:
    plain = _to_comparable(value)
    if isinstance(plain, bool):
        return (0, plain)
    if isinstance(plain, float):
        return (1, plain)
    if plain is None:
        return (3, "")
    return (2, plain)


def group_rows(
    rows: Rows,
    by: Annotated[str, Field(description="Column whose values make the groups.")],
    aggregate: Annotated[Aggregate, Field(description="What to compute for each group.")] = "count",
    column: Annotated[
        str | None, Field(description="Column to compute it of; not needed for count.")
    ] = None,
) -> list[Row]:
    """Group a table by a column and count, sum or average another: a small pivot table."""
    if aggregate != "count" and column is None:
        raise ValueError(f"{aggregate} needs a column")
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(_to_field(row.get(by)), []).append(row.get(column) if column else None)
    return [
        {by: key, aggregate: _aggregate(aggregate, members)}
        for key, members in sorted(groups.items())
    ]


def _aggregate(aggregate: Aggregate, members: Sequence[Any]) -> Any:
    if aggregate == "count":
        return len(members)
    numbers = [number for member in members if isinstance(number := _to_comparable(member), float)]
    if not numbers:
        return None
    functions: Mapping[str, Callable[[list[float]], float]] = {
        "sum": sum, "mean": statistics.fmean, "median": statistics.median, "min": min, "max": max,
    }  # fmt: skip
    return functions[aggregate](numbers)


def format_json(
    text: Json,
    indent: Annotated[
        int, Field(ge=0, le=8, description="Spaces a level; 0 writes one compact line.")
    ] = 2,
    sort_keys: Annotated[bool, Field(description="Keys in alphabetical order.")] = False,
) -> str:
    """Check JSON text and write it indented or compact; a mistake is reported with its line."""
    value = _parse_json(text)
    if indent == 0:
        separators = (",", ":")
    else:
        separators = (",", ": ")
    return json.dumps(
        value, indent=indent or None, sort_keys=sort_keys, ensure_ascii=False, separators=separators
    )


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise ValueError("not usable: nested too deeply") from None


def json_path(
    text: Json,
    path: Annotated[
        str, Field(max_length=500, description="Such as users[0].name or users[*].name.")
    ],
) -> dict[str, Any]:
    """Pick a value out of JSON text by its path; [*] picks from every element of a list."""
    values = [_parse_json(text)]
    many = False
    path_so_far = ""
    for step in _parse_path(path):
        path_so_far += f"[{step}]" if isinstance(step, int) else f".{step}"
        if step == "*":
            many = True
            values = [item for value in values if isinstance(value, list) for item in value]
            continue
        found = [value[step] for value in values if _has_step(value, step)]
        if not found and not many:
            raise ValueError(f"there is nothing at {path_so_far.lstrip('.')}{_list_keys(values)}")
        values = found
    return {"value": values if many else values[0], "found": len(values)}


def _parse_path(path: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 0
    text = path.removeprefix("$")
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise ValueError(f"{path!r} is not a path; write it like users[0].name")
        name, number, quoted, star = found.groups()
        if star:
            steps.append("*")
        elif number is not None:
            steps.append(int(number))
        else:
            steps.append(name if name is not None else quoted)
        position = found.end()
    return steps


def _has_step(value: Any, step: str | int) -> bool:
    if isinstance(step, int):
        return isinstance(value, list) and -len(value) <= step < len(value)
    return isinstance(value, dict) and step in value


def _list_keys(values: Sequence[Any]) -> str:
    keys = [str(key) for value in values if isinstance(value, dict) for key in value]
    if keys:
        return f"; keys there: {', '.join(keys[:10])}"
    return ""


def diff_json(
    before: Json,
    after: Json,
) -> list[dict[str, Any]]:
    """Compare two JSON texts and list what was added, removed or changed, with its path."""
    changes: list[dict[str, Any]] = []
    _collect_changes("", _parse_json(before), _parse_json(after), changes)
    return changes


def _collect_changes(path: str, before: Any, after: Any, changes: list[dict[str, Any]]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            if path:
                child_path = f"{path}.{key}"
            else:
                child_path = str(key)
            if key not in after:
                changes.append({"path": child_path, "change": "removed", "before": before[key]})
            elif key not in before:
                changes.append({"path": child_path, "change": "added", "after": after[key]})
            else:
                _collect_changes(child_path, before[key], after[key], changes)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            _collect_changes(f"{path}[{index}]", old, new, changes)
    elif before != after or type(before) is not type(after):
        changes.append({"path": path or "$", "change": "changed", "before": before, "after": after})


def hash_text(
    text: Annotated[str, Field(max_length=MAX_CHARS, description="The text, hashed as UTF-8.")],
    algorithm: Annotated[
        Algorithm, Field(description="md5 and sha1 are for checksums, not for secrets.")
    ] = "sha256",
) -> str:
    """Compute a hash or checksum of a text: SHA-256, SHA-512, MD5 and others."""
    return hashlib.new(algorithm, text.encode(), usedforsecurity=False).hexdigest()


def encode_text(
    text: Annotated[str, Field(max_length=MAX_CHARS, description="The text.")],
    encoding: Annotated[Encoding, Field(description="The form wanted.")] = "base64",
) -> str:
    """Encode a text as Base64, hexadecimal, URL (percent) or HTML entities."""
    raw = text.encode()
    match encoding:
        case "base64":
            return base64.b64encode(raw).decode()
        case "base64url":
            return base64.urlsafe_b64encode(raw).decode().rstrip("=")
        case "hex":
            return raw.hex()
        case "url":
            return urllib.parse.quote(text, safe="")
        case "html":
            return html.escape(text)


def decode_text(
    text: Annotated[str, Field(max_length=MAX_CHARS, description="The encoded text.")],
    encoding: Annotated[Encoding, Field(description="The form it is in.")] = "base64",
) -> str:
    """Decode Base64, hexadecimal, URL-encoded or HTML-escaped text."""
    try:
        match encoding:
            case "base64" | "base64url":
                plain = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
                return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
            case "hex":
                return bytes.fromhex(text).decode()
            case "url":
                return urllib.parse.unquote(text, errors="strict")
            case "html":
                return html.unescape(text)
    except UnicodeDecodeError:
        raise ValueError("it decodes to bytes that are not UTF-8 text") from None
    except (binascii.Error, ValueError):
        raise ValueError(f"this is not {encoding}") from None


TOOLS = (
    make_read_only_tool("CSV to JSON", csv_to_json),
    make_read_only_tool("JSON to CSV", json_to_csv),
    make_read_only_tool("Query rows", query_rows),
    make_read_only_tool("Group rows", group_rows),
    make_read_only_tool("Format JSON", format_json),
    make_read_only_tool("Pick from JSON", json_path),
    make_read_only_tool("Diff two JSON texts", diff_json),
    make_read_only_tool("Hash a text", hash_text),
    make_read_only_tool("Encode a text", encode_text),
    make_read_only_tool("Decode a text", decode_text),
)
