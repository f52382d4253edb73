"""What a server says that no specification knows: definitions, results and errors, as they must
arrive.

Data alone: the server of these (`vendor_server`) is started without site-packages.
"""

HUGE = 2**80 + 1
"""Beyond 64 bits, and beyond what a double can say exactly."""

TOOL = {
    "name": "odd",
    "title": "Odd",
    "description": "Ünïcode \u2028 and an emoji \U0001f600.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "what": {"type": "string", "x-hint": [None, {}]},
            "number": {"type": "integer"},
        },
        "$defs": {"unused": {"const": HUGE}},
        "x-vendor": {"nothing": None},
    },
    "outputSchema": {"type": "object", "x-vendor": 1},
    "annotations": {"readOnlyHint": True, "x-risk": {"level": 0.1, "none": None}},
    "icons": [
        {
            "src": "data:image/png;base64,AA==",
            "mimeType": "image/png",
            "sizes": ["any"],
            "x-shade": None,
        }
    ],
    "_meta": {"example.org/tier": HUGE, "example.org/nothing": None},
    "execution": {"taskSupport": "optional", "x-more": True},
    "x-vendor": {
        "keeps": [1, 1.5, -0.25, 1e22, None, {"deep": True}],
        "big": -HUGE,
        "empty": {},
        "text": "",
    },
}

RESULTS = {
    "object": {
        "content": [
            {
                "type": "text",
                "text": "fine",
                "annotations": {"audience": ["user"], "x-more": None},
                "_meta": {"a": None},
                "x-vendor": HUGE,
            }
        ],
        "structuredContent": {
            "nothing": None,
            "list": [None, [], {}],
            "big": HUGE,
            "float": 1.0,
            "deep": {"a": None},
        },
        "isError": False,
        "_meta": {"example.org/kept": None, "example.org/big": -HUGE},
        "x-vendor": {"unknown": [None, False, 0, ""]},
    },
    "array": {"content": [], "structuredContent": [1, None, [HUGE], {"also": None}]},
    "scalar": {"content": [], "structuredContent": 7, "x-null": None},
    "null": {"content": [], "structuredContent": None},
    "content types": {
        "content": [
            {"type": "hologram", "depth": 3, "frames": [None]},
            {"type": "text", "text": "plain"},
            {"type": "image", "data": "AA==", "mimeType": "image/png", "x-lens": None},
            {"type": "resource_link", "uri": "vendor://thing/1", "name": "thing", "size": HUGE},
            {"no": "type"},
        ]
    },
    "no content": {"x-only": True},
    "failure": {
        "content": [{"type": "text", "text": "no"}],
        "isError": True,
        "structuredContent": {"why": None},
    },
    "empty": {},
}
"""By the word that asks for it."""

NO_DATA = "no data"
ERRORS = {
    "object": {"deep": [1, None, HUGE], "nothing": None},
    "null": None,
    "zero": 0,
    "false": False,
    "empty text": "",
    "empty list": [],
    "empty object": {},
    "text": "more",
    "huge": HUGE,
    NO_DATA: NO_DATA,
}
"""The data of an error by the word that asks for it."""
CODE, MESSAGE = -32099, "as odd as it gets: ü \U0001f600"
