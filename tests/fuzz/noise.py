"""Strategies: JSON of every shape, and JSON that is nearly what a schema asks for."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from portico.upstream.backend import Raw

DEEP = (8, 60, 99, 101, 200, 249, 251, 400)
"""Levels of nesting on both sides of every limit that something has on the way."""
PECULIAR = (
    "",
    " ",
    "\x00",
    "\x1b[31m\x07",
    "\r\n\r\ndata: x",
    "\u2028\u2029\ufeff",
    "\u202etxt",
    "\ud83d",
    "\udc00\ud800",
    "👩‍👩‍👧" * 50,
    "e\u0301" * 200,
    "__proto__",
    "constructor",
    "__class__.__init__.__globals__",
    "../../../../etc/passwd",
    "portico://result/../../x",
    "%s%n%x{0}{x!r}",
    "${inputs.x} ${a.b[0].c | length(@)} $${",
    "{{7*7}}",
    "(" * 300,
    "(a+)+$",
    "[" * 300,
    "a.b.c::d/e__f",
    ".",
    "null",
    "NaN",
    "-0",
    "1e999",
    "9" * 400,
    "'; DROP TABLE uses; --",
    "x" * 100_000,
    "word " * 5_000,
    "{" + '"a":[' * 200,
)
NUMBERS = st.one_of(
    st.integers(-3, 60),
    st.integers(),
    st.sampled_from(
        [
            0,
            -0.0,
            2**31,
            2**53 + 1,
            2**63 - 1,
            2**63,
            2**64,
            -(2**63) - 1,
            10**400,
            1e308,
            5e-324,
            0.1,
        ]
    ),
    st.floats(allow_nan=False, allow_infinity=False),
)


def peculiar(at: int) -> str:
    """One of the peculiar texts; by its number, because hypothesis writes out what it samples
    from."""
    return PECULIAR[at]


TEXT = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(), max_size=12),
    st.integers(0, len(PECULIAR) - 1).map(peculiar),
)
KEYS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["__proto__", "constructor", "_meta", "$ref", "", "self", "a.b"]),
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT


def nest(depth: int, value: Any = 1, kind: int = 0) -> Any:
    """A value that many levels down: in lists, in objects, or in both by turns."""
    for level in range(depth):
        value = [value] if kind == 0 or (kind == 2 and level % 2) else {"a": value}
    return value


NESTED = st.builds(nest, st.sampled_from(DEEP), SCALARS, st.integers(0, 2))
VALUES = st.one_of(
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
        max_leaves=15,
    ),
    NESTED,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def mangle(text: str) -> st.SearchStrategy[str]:
    """A text that was right once: whole, cut, with a sign changed, doubled, or with something after
    it."""
    at = st.integers(0, len(text))
    return st.one_of(
        st.just(text),
        at.map(lambda n: text[:n]),
        st.builds(
            lambda n, sign: text[:n] + sign + text[n + 1 :], at, st.characters(codec="utf-8")
        ),
        st.just(text * 2),
        st.builds(lambda more: text + more, TEXT),
        st.just(text.swapcase()),
    )


def fitting(schema: Mapping[str, Any], known: Sequence[str] = ()) -> st.SearchStrategy[Any]:
    """Return what a schema of plain types asks for; a text is often one of the `known`, or
    nearly."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "string":
        return st.one_of(st.sampled_from([*known]).flatmap(mangle), TEXT) if known else TEXT
    if kind in ("integer", "number"):
        low, high = schema.get("minimum"), schema.get("maximum")
        return (
            st.integers(low, high) if kind == "integer" else st.floats(low, high, allow_nan=False)
        )
    if kind == "boolean":
        return st.booleans()
    if kind == "array":
        return st.lists(
            fitting(schema.get("items", {}), known),
            min_size=1,
            max_size=min(4, schema.get("maxItems", 4)),
        )
    if kind == "object":
        return OBJECTS
    return VALUES


def arguments(schema: Raw, known: Mapping[str, Sequence[str]]) -> st.SearchStrategy[Any]:
    """Return what a tool may be passed: right, nearly right (a key missing, wrong or too many), or
    anything at all."""
    properties: Raw = schema["properties"]
    right = {name: fitting(shape, known.get(name, ())) for name, shape in properties.items()}
    needed = {name: right[name] for name in schema.get("required", ())}
    rest = {name: value for name, value in right.items() if name not in needed}
    valid = st.fixed_dictionaries(needed, optional=rest)
    wrong = st.dictionaries(st.sampled_from([*properties]) | KEYS, VALUES, max_size=2)
    near = st.builds(lambda given, other: {**given, **other}, valid, wrong)
    missing = st.builds(
        lambda given, gone: {key: value for key, value in given.items() if key != gone},
        valid,
        st.sampled_from([*properties]),
    )
    return st.one_of(valid, near, missing, OBJECTS)
