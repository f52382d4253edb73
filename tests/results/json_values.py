"""Values and results for the tests of this room."""

from typing import Any

from hypothesis import strategies as st

ODD_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | ODD_TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(ODD_TEXT, inner, max_size=8),
    max_leaves=60,
)


def nested(depth: int, value: Any = 1) -> Any:
    """A value that many levels down."""
    for level in range(depth):
        value = [value] if level % 2 else {"deeper": value}
    return value


def issues(count: int, body: int = 20) -> list[dict[str, Any]]:
    """A uniform list, as servers give it."""
    return [
        {
            "id": n,
            "title": f"Issue number {n}",
            "state": "open",
            "labels": ["bug", "ui"][: n % 3],
            "body": "x" * body,
        }
        for n in range(count)
    ]
