"""Labels for the requests of servers to a person: the server's name, and no hidden text. Pure.

A request is elicitation, sampling or a request for roots, in either era: a request on a stream, an
`input_required` result, or the error that requires a URL elicitation (-32042). Each is labelled
with the configured name of its server, before its text and in `_meta` (`portico/server`), and loses
control, escape, bidirectional and invisible characters. Values that have to be returned unchanged
(names of properties, values of enumerations) are never modified: a request with such characters in
one of them is refused, as is one that is too large or whose URL is not a web address.
"""

import re
import string
from typing import Any, cast
from urllib.parse import SplitResult, quote, urlsplit

from portico.catalog.tool import sanitize_text
from portico.errors import INVALID_PARAMS, RemoteError
from portico.upstream.backend import Raw

SERVER_META_KEY = "portico/server"
"""Key in the `_meta` of a request: the configured name of the server that sent it."""
MAX_REQUESTS_AT_ONCE = 64
"""Maximum number of input requests in one round."""
MAX_MESSAGE_CHARS = 2_000
"""Longest message of an elicitation; the rest is cut, so that the label stays visible."""
MAX_CAPTION_CHARS = 500
"""Longest title or description in a form; the rest is cut."""
MAX_URL_CHARS = 8_192
MAX_FORM_CHARS = 32_768
MAX_SAMPLING_CHARS = 131_072
"""Maximum characters of all texts and keys of one request; a larger one is refused."""
MAX_BINARY_CHARS = 16 * 2**20
"""Maximum characters of all images and audio of one sampling request."""
MAX_VALUES = 2_000
"""Maximum number of values in one request, at any depth."""
MAX_DEPTH = 50

_ELICITATION = "elicitation/create"
_SAMPLING = "sampling/createMessage"
_EXACT_KEYS = frozenset({"enum", "const", "required", "elicitationId", "mode"})
_BINARY_KEYS = frozenset({"data", "blob"})
_CAPTION_KEYS = frozenset({"title", "description", "enumNames"})
_PROSE_KEYS = frozenset({"text", "systemPrompt", *_CAPTION_KEYS})
_JOINERS = {0x200D: None, 0xFE0F: None}
"""Parts of emoji: invisible alone, and harmless in a value."""
_WIDE_GAP = re.compile("[^\\S\n\u2800]{4,}|\u2800{4,}")
_BLANK_LINES = re.compile(r"\n\s*\n")
_LIKE_A_LABEL = re.compile(r"^(?=[^\w\n]{0,8}[\w-]{1,40} asks(?::| you to open ))", re.MULTILINE)


def label_result(server: str, result: Raw) -> Raw:
    """Label the input requests of an `input_required` result."""
    requests = result.get("inputRequests")
    if not isinstance(requests, dict) or len(cast(Raw, requests)) > MAX_REQUESTS_AT_ONCE:
        return result  # refused later, when it is parsed
    _check_size(requests, MAX_SAMPLING_CHARS)
    labelled = {
        _check_visible(key): _label_input_request(server, request)
        for key, request in cast(Raw, requests).items()
    }
    return {**result, "inputRequests": labelled}


def get_required_urls(error: RemoteError) -> list[Raw]:
    listed = cast(Raw, error.data).get("elicitations") if isinstance(error.data, dict) else None
    if not isinstance(listed, list):
        return []
    elicitations = [cast(Raw, item) for item in cast("list[Any]", listed) if isinstance(item, dict)]
    return elicitations[:MAX_REQUESTS_AT_ONCE]


def label_url_refusal(server: str, error: RemoteError) -> RemoteError:
    message = sanitize_text(error.message[:MAX_MESSAGE_CHARS])
    if isinstance(error.data, dict):
        _check_size(cast(Raw, error.data).get("elicitations"), MAX_FORM_CHARS)
    labelled = [
        label_client_request(server, _ELICITATION, {**elicitation, "mode": "url"})
        for elicitation in get_required_urls(error)
    ]
    if not labelled:
        return RemoteError(error.code, message)
    return RemoteError(error.code, message, {"elicitations": labelled})


def label_client_request(server: str, method: str, params: Raw) -> Raw:
    """Return the labelled params of a request; raises RemoteError if it cannot be shown."""
    max_chars = MAX_SAMPLING_CHARS if method == _SAMPLING else MAX_FORM_CHARS
    _check_size(params, max_chars)
    labelled = {key: value for key, value in params.items() if key != "_meta"}
    meta = params.get("_meta")
    marked: Raw = {
        key: value
        for key, value in (cast(Raw, meta) if isinstance(meta, dict) else {}).items()
        if not key.startswith("portico/")
    }
    marked[SERVER_META_KEY] = server
    if method == _ELICITATION:
        labelled = _label_elicitation(server, labelled)
    elif method == _SAMPLING:
        labelled = _label_sampling(server, labelled)
    else:
        labelled = _clean(labelled)
    return {**labelled, "_meta": marked}


def _label_input_request(server: str, request: Any) -> Any:
    if not isinstance(request, dict):
        return request
    asked = cast(Raw, request)
    params = asked.get("params")
    if not isinstance(params, dict):
        params = {}
    labelled = label_client_request(server, str(asked.get("method")), cast(Raw, params))
    return {**asked, "params": labelled}


def _label_elicitation(server: str, params: Raw) -> Raw:
    rest = {key: value for key, value in params.items() if key not in ("message", "url")}
    cleaned: Raw = _clean(rest)
    label = f"{server} asks:"
    if params.get("mode") == "url":
        cleaned["url"], host = _check_url(params.get("url"))
        label = f"{server} asks you to open {host}:"
    elif isinstance(params.get("url"), str):
        cleaned["url"] = _check_visible(params["url"])
    cleaned["message"] = _format_message(label, params.get("message"))
    return cleaned


def _format_message(label: str, message: Any) -> str:
    """Put the label before a message; quote several lines, so that none of them imitates a
    label."""
    text = _BLANK_LINES.sub("\n\n", sanitize_text(message)).strip()
    text = truncate(_WIDE_GAP.sub("   ", text), MAX_MESSAGE_CHARS)
    if "\n" not in text:
        return f"{label} {text}"
    return "\n> ".join((label, *text.split("\n")))


def _label_sampling(server: str, params: Raw) -> Raw:
    cleaned: Raw = _clean(params)
    label = f"{server} asks:"
    labelled = _label_first_text(label, cleaned.get("messages"))
    prompt = cleaned.get("systemPrompt")
    if isinstance(prompt, str):
        cleaned["systemPrompt"] = f"{label} {prompt}"
    elif not labelled:
        cleaned["systemPrompt"] = f"{server} asks."
    return cleaned


def _label_first_text(label: str, messages: Any) -> bool:
    for message in cast("list[Any]", messages) if isinstance(messages, list) else ():
        if isinstance(message, dict):
            content = cast(Raw, message).get("content")
        else:
            content = None
        for block in cast("list[Any]", content) if isinstance(content, list) else [content]:
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                block["text"] = f"{label} {block['text']}"
                return True
    return False


def _check_size(value: Any, max_chars: int) -> None:
    """Raise RemoteError for a value that is too large or too deep. Runs first and stops early."""
    parts = 0
    chars = 0
    binary = 0
    level: list[tuple[str, Any]] = [("", value)]
    for _ in range(MAX_DEPTH):
        below: list[tuple[str, Any]] = []
        for key, node in level:
            if isinstance(node, dict | list):
                parts += len(cast("list[Any]", node))
                if parts > MAX_VALUES:
                    raise _build_refusal(f"it has more than {MAX_VALUES:,} values")
            if isinstance(node, dict):
                chars += sum(map(len, cast(Raw, node)))
                below += cast(Raw, node).items()
            elif isinstance(node, list):
                below += [(key, item) for item in cast("list[Any]", node)]
            elif isinstance(node, str) and key in _BINARY_KEYS:
                binary += len(node)
            elif isinstance(node, str):
                chars += len(node)
        if chars > max_chars or binary > MAX_BINARY_CHARS:
            raise _build_refusal(f"it has more than {max_chars:,} characters")
        level = below
    if level:
        raise _build_refusal(f"it is nested more than {MAX_DEPTH} levels deep")


def _clean(value: Any, key: str = "") -> Any:
    """Return a copy without hidden characters; raises RemoteError if an exact value has them."""
    if isinstance(value, dict):
        return {_check_visible(name): _clean(item, name) for name, item in cast(Raw, value).items()}
    if isinstance(value, list):
        return [_clean(item, key) for item in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    if key in _BINARY_KEYS:
        return _check_base64(value)
    if key in _EXACT_KEYS:
        return _check_visible(value)
    text = sanitize_text(value)
    if key in _CAPTION_KEYS:
        text = truncate(text, MAX_CAPTION_CHARS)
    if key in _PROSE_KEYS:
        return _LIKE_A_LABEL.sub("> ", text)
    return text


def _check_visible(value: str) -> str:
    text = value.translate(_JOINERS)
    if "\n" in text or sanitize_text(text) != text:
        raise _build_refusal("a name or value in it has characters that cannot be seen")
    return value


def _check_base64(value: str) -> str:
    if not value.isascii() or "\x1b" in value:
        raise _build_refusal("an image or sound in it is not base64")
    return value


def _check_url(url: Any) -> tuple[str, str]:
    """Return a URL in ASCII and its host; raises RemoteError unless it is a plain web address."""
    if not isinstance(url, str) or len(url) > MAX_URL_CHARS:
        raise _build_refusal(f"it sends to no address of up to {MAX_URL_CHARS:,} characters")
    if "\\" in url or any(map(str.isspace, url)):
        raise _build_refusal("it sends to an address with spaces or backslashes")
    try:
        parts = urlsplit(_check_visible(url))
        host = (parts.hostname or "").rstrip(".")
        if len(host) <= 253 and not host.isascii():
            host = host.encode("idna").decode()
        if parts.port is not None:
            port = f":{parts.port}"
        else:
            port = ""
    except ValueError:
        raise _build_refusal("it sends to an address that cannot be read") from None
    if (
        parts.scheme not in ("http", "https")
        or not host
        or not host.isascii()
        or set("@%") & set(parts.netloc)
    ):
        raise _build_refusal("it sends to something else than a plain http or https address")
    if url.isascii():
        return url, host
    return _to_ascii_url(parts, host + port), host


def _to_ascii_url(parts: SplitResult, netloc: str) -> str:
    path, query, fragment = (
        quote(part, safe=string.punctuation) for part in (parts.path, parts.query, parts.fragment)
    )
    return SplitResult(parts.scheme, netloc, path, query, fragment).geturl()


def truncate(text: str, max_chars: int) -> str:
    """Cut text to `max_chars`, with an ellipsis."""
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars - 1]}…"


def _build_refusal(reason: str) -> RemoteError:
    return RemoteError(INVALID_PARAMS, f"the server's question cannot be shown: {reason}")
