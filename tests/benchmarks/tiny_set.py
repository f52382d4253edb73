"""A set of tools and questions small enough to know by heart, written where a test wants it."""

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TOOLS = (
    {
        "id": "post/send",
        "server": "post",
        "name": "send_email",
        "description": "Send an email to a person.",
    },
    {
        "id": "sky/now",
        "server": "sky",
        "name": "get_weather",
        "description": "The weather of a city right now.",
    },
    {
        "id": "code/issue",
        "server": "code",
        "name": "create_issue",
        "description": "Report a bug in a repository.",
    },
)
QUESTIONS = (
    {"id": "q1", "query": "send an email", "groups": [["post/send"]], "style": "keyword"},
    {"id": "q2", "query": "weather of a city", "groups": [["sky/now"]], "style": "task"},
    {
        "id": "q3",
        "query": "report a bug, then send an email about it",
        "groups": [["code/issue"], ["post/send"]],
    },
    {"id": "q4", "query": "knit a pullover", "groups": [], "style": "negative"},
)


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """JSON lines, gzipped if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path


def write_set(folder: Path) -> None:
    """The tiny set as a folder."""
    write_lines(folder / "tools.jsonl.gz", TOOLS)
    write_lines(folder / "queries.jsonl.gz", QUESTIONS)
