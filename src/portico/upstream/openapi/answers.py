"""An HTTP reply → a tool's result. Pure.

JSON is given as structured content and as text, other texts as they are, pictures and sound as such, the rest as an
embedded resource. What says where the next page is stands behind it, for the caller to follow.
"""

import base64
import http
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.upstream import json_windows
from portico.upstream.backend import Raw

SHOWN_ERROR_CHARS = 8_000
SHOWN_HEADER_CHARS = 2_000
SHOWN_HEADERS = (
    "link", "location", "content-location", "content-range", "retry-after", "x-next-page", "x-next", "x-next-cursor",
    "x-page", "x-per-page", "x-total", "x-total-count", "x-total-pages", "x-pagination", "x-has-more", "total-count",
    "x-ratelimit-reset", "x-continuation-token", "x-ms-continuation", "deprecation", "sunset",
)  # fmt: skip
_CHARSET = re.compile(
    r"utf-?(?:8|16|32)|us-ascii|latin-?1|iso-8859-(?:[1-9]|1[013-6])|windows-125[0-8]|koi8-[ru]|shift[_-]jis|"
    r"euc-(?:jp|kr)|gb2312|gbk|gb18030|big5",
    re.IGNORECASE,
)
"""Python has codecs that no text of the web is in: one takes hours for a megabyte, others make no text."""
_TEXTS = (
    "json",
    "xml",
    "yaml",
    "yml",
    "javascript",
    "x-www-form-urlencoded",
    "graphql",
    "ndjson",
    "jsonl",
    "x-sh",
    "toml",
    "sql",
)


@dataclass(frozen=True)
class Answer:
    """A reply that has arrived."""

    url: str
    """As it may be shown."""
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""

    @property
    def line(self) -> str:
        """`HTTP 404 Not Found`."""
        try:
            return f"HTTP {self.status} {http.HTTPStatus(self.status).phrase}"
        except ValueError:
            return f"HTTP {self.status}"

    @property
    def media_type(self) -> str:
        """What its body is, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def result(answer: Answer, advice: str = "") -> Raw:
    """What a caller is given; `advice` is added where it was refused."""
    if answer.status >= 400:
        return _refusal(answer, advice)
    found: Raw = {"content": []}
    content: list[Raw] = found["content"]
    if 300 <= answer.status < 400:
        content.append(_shown(f"{answer.line}: not followed" if "location" in answer.headers else answer.line))
    elif not answer.body:
        content.append(_shown(answer.line))
    else:
        found |= _content(answer)
        content = found["content"]
    if told := _told(answer):
        content.append(_shown("\n".join(f"{name}: {value}" for name, value in told.items())))
    found["_meta"] = {"portico/http": {"status": answer.status, "headers": told}}
    return found


def failure(text: str) -> Raw:
    """A call that came to nothing."""
    return {"content": [_shown(text)], "isError": True}


def _content(answer: Answer) -> Raw:
    kind = answer.media_type
    if kind.endswith(("json", "+json")) or (kind in ("", "text/plain") and answer.body.lstrip()[:1] in (b"{", b"[")):
        try:
            value: Any = json_windows.loads_here(answer.body)
        except (ValueError, RecursionError):
            pass
        else:
            structured = cast(Raw, value) if isinstance(value, dict) else {"result": value}
            return {"content": [_shown(_text(answer))], "structuredContent": structured}
    if _is_text(kind):
        return {"content": [_shown(_text(answer))]}
    if not kind:
        try:
            return {"content": [_shown(answer.body.decode())]}
        except UnicodeDecodeError:
            kind = "application/octet-stream"
    data = base64.b64encode(answer.body).decode()
    family = kind.partition("/")[0]
    if family in ("image", "audio"):
        return {"content": [{"type": family, "data": data, "mimeType": kind}]}
    return {"content": [{"type": "resource", "resource": {"uri": answer.url, "mimeType": kind, "blob": data}}]}


def _refusal(answer: Answer, advice: str) -> Raw:
    body = ""
    if answer.body and (_is_text(answer.media_type) or not answer.media_type):
        body = _text(answer)
        if len(body) > SHOWN_ERROR_CHARS:
            body = f"{body[:SHOWN_ERROR_CHARS]}… ({len(body) - SHOWN_ERROR_CHARS} more characters)"
    told = "\n".join(f"{name}: {value}" for name, value in _told(answer).items())
    found = failure("\n".join(part for part in (answer.line, body, told, advice) if part))
    found["_meta"] = {"portico/http": {"status": answer.status, "headers": _told(answer)}}
    return found


def _told(answer: Answer) -> dict[str, str]:
    return {name: answer.headers[name][:SHOWN_HEADER_CHARS] for name in SHOWN_HEADERS if name in answer.headers}


def _text(answer: Answer) -> str:
    _, _, parameters = answer.headers.get("content-type", "").partition(";")
    charset = next(
        (p.partition("=")[2].strip(" \"'") for p in parameters.split(";") if "charset=" in p.lower()), "utf-8"
    )
    return answer.body.decode(charset if _CHARSET.fullmatch(charset) else "utf-8", "replace")


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind.endswith(_TEXTS)


def _shown(text: str) -> Raw:
    return {"type": "text", "text": text}
