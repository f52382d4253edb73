"""Converts an HTTP response to a tool result. Pure.

JSON becomes structured content and text; other text stays text; images and audio become such
content, everything else an embedded resource. Headers that locate the next page are appended as
text.
"""

import base64
import http
import re
from collections.abc import Mapping
from dataclasses import dataclass

from portico.json_text import chunked_decoder
from portico.upstream.backend import Raw
from portico.upstream.backends.tool_connection import (
    make_error_result,
    make_json_result,
    make_text_result,
)

SHOWN_ERROR_CHARS = 8_000
SHOWN_HEADER_CHARS = 2_000
SHOWN_HEADERS = (
    "link", "location", "content-location", "content-range", "retry-after", "x-next-page", "x-next",
    "x-next-cursor", "x-page", "x-per-page", "x-total", "x-total-count", "x-total-pages",
    "x-pagination", "x-has-more", "total-count", "x-ratelimit-reset", "x-continuation-token",
    "x-ms-continuation", "deprecation", "sunset",
)  # fmt: skip
_CHARSET = re.compile(
    r"utf-?(?:8|16|32)|us-ascii|latin-?1|iso-8859-(?:[1-9]|1[013-6])|windows-125[0-8]|koi8-[ru]|"
    r"shift[_-]jis|euc-(?:jp|kr)|gb2312|gbk|gb18030|big5",
    re.IGNORECASE,
)
"""Charsets of the web only: other Python codecs can be extremely slow or return no text."""
_TEXT_SUFFIXES = (
    "json", "xml", "yaml", "yml", "javascript", "x-www-form-urlencoded", "graphql", "ndjson",
    "jsonl", "x-sh", "toml", "sql",
)  # fmt: skip


@dataclass(frozen=True)
class ApiResponse:
    url: str
    """Redacted URL."""
    status: int
    headers: Mapping[str, str]
    """Headers with names in lower case."""
    body: bytes = b""

    @property
    def status_line(self) -> str:
        """Status as text: `HTTP 404 Not Found`."""
        try:
            return f"HTTP {self.status} {http.HTTPStatus(self.status).phrase}"
        except ValueError:
            return f"HTTP {self.status}"

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def to_tool_result(response: ApiResponse, advice: str = "") -> Raw:
    """Return the tool result; `advice` is added to errors."""
    headers = _select_shown_headers(response)
    if response.status >= 400:
        result = _convert_error_response(response, headers, advice)
    elif response.status >= 300 and "location" in response.headers:
        result = make_text_result(f"{response.status_line}: not followed")
    elif response.status >= 300 or not response.body:
        result = make_text_result(response.status_line)
    else:
        result = _convert_content(response)
    if headers and response.status < 400:
        result["content"] += make_text_result(_format_headers(headers))["content"]
    result["_meta"] = {"portico/http": {"status": response.status, "headers": headers}}
    return result


def _convert_content(response: ApiResponse) -> Raw:
    kind = response.media_type
    if kind.endswith(("json", "+json")) or (
        kind in ("", "text/plain") and response.body.lstrip()[:1] in (b"{", b"[")
    ):
        try:
            value = chunked_decoder.decode_sync(response.body)
            return make_json_result(_decode_body(response), value)
        except (ValueError, RecursionError):
            pass  # it is text then
    if _is_text(kind):
        return make_text_result(_decode_body(response))
    if not kind:
        try:
            return make_text_result(response.body.decode())
        except UnicodeDecodeError:
            kind = "application/octet-stream"
    data = base64.b64encode(response.body).decode()
    family = kind.partition("/")[0]
    if family in ("image", "audio"):
        return {"content": [{"type": family, "data": data, "mimeType": kind}]}
    resource = {"uri": response.url, "mimeType": kind, "blob": data}
    return {"content": [{"type": "resource", "resource": resource}]}


def _convert_error_response(response: ApiResponse, headers: Mapping[str, str], advice: str) -> Raw:
    body = ""
    if response.body and (_is_text(response.media_type) or not response.media_type):
        body = _decode_body(response)
        if len(body) > SHOWN_ERROR_CHARS:
            body = f"{body[:SHOWN_ERROR_CHARS]}… ({len(body) - SHOWN_ERROR_CHARS} more characters)"
    parts = (response.status_line, body, _format_headers(headers), advice)
    return make_error_result("\n".join(part for part in parts if part))


def _format_headers(headers: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in headers.items())


def _select_shown_headers(response: ApiResponse) -> dict[str, str]:
    return {
        name: response.headers[name][:SHOWN_HEADER_CHARS]
        for name in SHOWN_HEADERS
        if name in response.headers
    }


def _decode_body(response: ApiResponse) -> str:
    _, _, parameters = response.headers.get("content-type", "").partition(";")
    charset = "utf-8"
    for parameter in parameters.split(";"):
        if "charset=" in parameter.lower():
            charset = parameter.partition("=")[2].strip(" \"'")
            break
    return response.body.decode(charset if _CHARSET.fullmatch(charset) else "utf-8", "replace")


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind.endswith(_TEXT_SUFFIXES)
