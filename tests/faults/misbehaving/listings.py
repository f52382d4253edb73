"""Scripts that strike when a server is asked what it offers."""

from __future__ import annotations

from itertools import count

from tests.faults.misbehaving.healthy import TOOLS
from tests.faults.misbehaving.steps import LIMIT, die, encode, hang, line, raw, say, strikes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.misbehaving.steps import Step, Strike

_pages = count(1)


@strikes("listing")
def listing_dies(strike: Strike) -> Iterator[Step]:
    yield die(7)


@strikes("listing")
def listing_hangs(strike: Strike) -> Iterator[Step]:
    yield hang()


@strikes("listing")
def listing_refused(strike: Strike) -> Iterator[Step]:
    yield say(strike.refusing(-32603, "out of order"))


@strikes("listing")
def listing_half_then_death(strike: Strike) -> Iterator[Step]:
    yield raw(encode(strike.answer)[:-20])
    yield die(8)


@strikes("listing")
def listing_garbage(strike: Strike) -> Iterator[Step]:
    yield line(b"not a list")
    yield hang()


@strikes("listing")
def listing_without_end(strike: Strike) -> Iterator[Step]:
    # Full pages, so that the end of our timeout comes sooner.
    yield say(strike.saying({"tools": TOOLS * 400, "nextCursor": f"page-{next(_pages)}"}))


@strikes("listing")
def listing_in_circles(strike: Strike) -> Iterator[Step]:
    yield say(strike.saying({"tools": TOOLS, "nextCursor": "again"}))


@strikes("listing")
def listing_odd_cursor(strike: Strike) -> Iterator[Step]:
    yield say(strike.saying({"tools": TOOLS, "nextCursor": {"page": [2]}}))


@strikes("listing")
def listing_of_wrong_type(strike: Strike) -> Iterator[Step]:
    yield say(strike.saying({"tools": {"work": None}, "nextCursor": None}))


@strikes("listing")
def listing_of_nulls(strike: Strike) -> Iterator[Step]:
    odd = [None, 7, "tool", [], {}, {"name": None}, {"name": 7}, {"name": ""}, {"name": "\ud800"}]
    keys = ("description", "inputSchema", "outputSchema", "annotations", "title", "_meta", "icons")
    wrong = [
        {"name": f"odd_{key}_{place}", **{key: value}}
        for key in keys
        for place, value in enumerate(
            (None, 7, "text", [], [None], {"type": None}, {"type": ["a", 3]}, True)
        )
    ]
    yield say(strike.saying({"tools": [*odd, *wrong, *TOOLS]}))


@strikes("listing")
def listing_of_duplicates(strike: Strike) -> Iterator[Step]:
    yield say(
        strike.saying({"tools": [*TOOLS, *TOOLS, {**TOOLS[0], "description": "An impostor."}] * 50})
    )


@strikes("listing")
def listing_huge(strike: Strike) -> Iterator[Step]:
    many = [
        {"name": f"tool_{number}", "description": "x", "inputSchema": {}} for number in range(5_000)
    ]
    yield say(strike.saying({"tools": [*TOOLS, *many]}))


@strikes("listing")
def listing_over_the_limit(strike: Strike) -> Iterator[Step]:
    yield say(strike.saying({"tools": [{**TOOLS[0], "description": "x" * 2 * LIMIT}]}))


@strikes("listing")
def listing_too_deep(strike: Strike) -> Iterator[Step]:
    schema = b'{"properties":{"a":' * 500 + b"{}" + b"}}" * 500
    tool = b'{"name":"deep","inputSchema":' + schema + b"}"
    yield line(
        encode(strike.saying({"tools": TOOLS})).replace(b'"tools": [', b'"tools": [' + tool + b",")
    )


@strikes("listing")
def listing_of_nothing(strike: Strike) -> Iterator[Step]:
    yield say(strike.saying({"tools": []}))
