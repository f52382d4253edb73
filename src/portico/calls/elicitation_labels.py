"""Questions of servers as a person may be shown them: with the asking server's name, and nothing
hidden. Pure.

A question is elicitation, sampling or a request for roots, in either era: a request on a stream, an
answer that is
`input_required`, or the error that asks for a visit (-32042). Each gets the name that the configuration has for its
server, in front of its text and in `_meta` (`portico/server`), and loses control, escape,
bidirectional and invisible characters. Values that have to come back as they are (names of
properties, values of enumerations) are never changed: a question where one of them has such
characters is refused, as is one that is too large or sends to no web address.
"""

import re
import string
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import SplitResult, quote, urlsplit

from portico.calls.elicitation import (
    MAX_REQUESTS_AT_ONCE,
    SendCall,
    call_with_elicitation,
    is_input_required,
)
from portico.catalog.visible_text import sanitize_text
from portico.errors import INVALID_PARAMS, RemoteError
from portico.upstream.backend import Raw, Relay
from portico.upstream.protocol.url_elicitations import URL_ELICITATION_REQUIRED

SERVER_META_KEY = "portico/server"
"""In `_meta` of a question: the configured name of the server that asks."""
MAX_MESSAGE_CHARS = 2_000
"""Characters of an elicitation's message; the rest is cut, so that the name stays in view."""
MAX_CAPTION_CHARS = 500
"""Characters of a title or description in a form; the rest is cut."""
MAX_URL_CHARS = 8_192
MAX_NOTIFICATION_CHARS = 65_536
"""Characters of a progress or log message; the rest is cut."""
MAX_FORM_CHARS = 32_768
MAX_SAMPLING_CHARS = 131_072
"""Characters of all texts and keys of one question; a larger one is refused."""
MAX_BINARY_CHARS = 16 * 2**20
"""Characters of all images and sounds of one sampling request."""
MAX_VALUES = 2_000
"""Values in one question, at any depth."""
MAX_DEPTH = 50

_ELICITATION = "elicitation/create"
_SAMPLING = "sampling/createMessage"
_EXACT_KEYS = frozenset({"enum", "const", "required", "elicitationId", "mode"})
_BINARY_KEYS = frozenset({"data", "blob"})
_CAPTION_KEYS = frozenset({"title", "description", "enumNames"})
_PROSE_KEYS = frozenset({"text", "systemPrompt", *_CAPTION_KEYS})
_JOINERS = {0x200D: None, 0xFE0F: None}
"""Parts of emoji: invisible by themselves, and of no harm in a value."""
_WIDE_GAP = re.compile("[^\\S\n\u2800]{4,}|\u2800{4,}")
_BLANK_LINES = re.compile(r"\n\s*\n")
_LIKE_A_LABEL = re.compile(r"^(?=[^\w\n]{0,8}[\w-]{1,40} asks(?::| you to open ))", re.MULTILINE)


class LabelledRelay:
    """The way back to a caller for one server: what that asks is labelled, what it tells is
    cleaned."""

    def __init__(self, server: str, relay: Relay) -> None:
        self._server = server
        self._relay = relay

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._relay.capabilities

    @property
    def client_key(self) -> str:
        return self._relay.client_key

    async def notify(self, method: str, params: Raw) -> None:
        """Tell the caller; progress and log messages without hidden characters."""
        hidden = {
            key: _truncate(sanitize_text(text[:MAX_NOTIFICATION_CHARS]), MAX_NOTIFICATION_CHARS - 1)
            for key in ("message", "data", "logger")
            if isinstance(text := params.get(key), str)
            and (len(text) > MAX_NOTIFICATION_CHARS or not text.isprintable())
        }
        await self._relay.notify(method, {**params, **hidden} if hidden else params)

    async def request(self, method: str, params: Raw) -> Raw:
        """Ask the caller's client; raises RemoteError where the question cannot be shown."""
        return await self._relay.request(method, label_client_request(self._server, method, params))

    async def pause(self) -> None:
        await self._relay.pause()


async def call_with_labelled_elicitation(
    server: str,
    call: SendCall,
    extra: Mapping[str, Any],
    relay: Relay | None,
    *,
    is_multi_round: bool,
) -> Raw:
    """`settled`, with what the server asks in its answer or its refusal labelled. `relay` labels the rest itself."""
    try:
        result = await call_with_elicitation(call, extra, relay, is_multi_round=is_multi_round)
    except RemoteError as error:
        if error.code != URL_ELICITATION_REQUIRED:
            raise
        raise label_url_refusal(server, error) from error
    if is_input_required(result):
        return label_result(server, result)
    return result


def label_result(server: str, result: Raw) -> Raw:
    """Label the questions of a result that is `input_required`."""
    requests = result.get("inputRequests")
    if not isinstance(requests, dict) or len(cast(Raw, requests)) > MAX_REQUESTS_AT_ONCE:
        return result  # whoever reads it refuses it
    _check_size(requests, MAX_SAMPLING_CHARS)
    labelled = {
        _check_visible(key): _label_input_request(server, one)
        for key, one in cast(Raw, requests).items()
    }
    return {**result, "inputRequests": labelled}


def label_url_refusal(server: str, error: RemoteError) -> RemoteError:
    """Label the addresses that have to be visited before a server answers."""
    data = error.data
    if isinstance(data, dict):
        listed: Any = cast(Raw, data).get("elicitations")
    else:
        listed = None
    message = sanitize_text(error.message[:MAX_MESSAGE_CHARS])
    if not isinstance(listed, list):
        return RemoteError(error.code, message)
    _check_size(listed, MAX_FORM_CHARS)
    visits = [cast(Raw, one) for one in cast("list[Any]", listed) if isinstance(one, dict)][
        :MAX_REQUESTS_AT_ONCE
    ]
    labelled = [
        label_client_request(server, _ELICITATION, {**visit, "mode": "url"}) for visit in visits
    ]
    return RemoteError(error.code, message, {"elicitations": labelled})


def label_client_request(server: str, method: str, params: Raw) -> Raw:
    """Return a question's params as its client may show them; raises RemoteError where it cannot be
    shown."""
    _check_size(params, MAX_SAMPLING_CHARS if method == _SAMPLING else MAX_FORM_CHARS)
    meta = params.get("_meta")
    if isinstance(meta, dict):
        own: Raw = cast(Raw, meta)
    else:
        own = {}
    marked: Raw = {
        **{key: value for key, value in own.items() if not key.startswith("portico/")},
        SERVER_META_KEY: server,
    }
    asked = {key: value for key, value in params.items() if key != "_meta"}
    if method == _ELICITATION:
        asked = _label_elicitation(server, asked)
    elif method == _SAMPLING:
        asked = _label_sampling(server, asked)
    else:
        asked = _clean(asked)
    return {**asked, "_meta": marked}


def _label_input_request(server: str, request: Any) -> Any:
    if not isinstance(request, dict):
        return request
    one = cast(Raw, request)
    params = one.get("params")
    if isinstance(params, dict):
        given = cast(Raw, params)
    else:
        given = {}
    return {**one, "params": label_client_request(server, str(one.get("method")), given)}


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
    """A message after its label; one of several lines as a quotation, so that none of them passes
    for a label."""
    text = _BLANK_LINES.sub("\n\n", sanitize_text(message)).strip()
    text = _truncate(_WIDE_GAP.sub("   ", text), MAX_MESSAGE_CHARS)
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
    """Raise RemoteError for what is too large or too deep; the first that looks at a question, and
    it stops early."""
    parts = 0
    chars = 0
    binary = 0
    level: list[tuple[str, Any]] = [("", value)]
    for _ in range(MAX_DEPTH):
        below: list[tuple[str, Any]] = []
        for key, one in level:
            if isinstance(one, dict | list):
                parts += len(cast("list[Any]", one))
                if parts > MAX_VALUES:
                    raise _build_refusal(f"it has more than {MAX_VALUES:,} values")
            if isinstance(one, dict):
                chars += sum(map(len, cast(Raw, one)))
                below += cast(Raw, one).items()
            elif isinstance(one, list):
                below += [(key, item) for item in cast("list[Any]", one)]
            elif isinstance(one, str) and key in _BINARY_KEYS:
                binary += len(one)
            elif isinstance(one, str):
                chars += len(one)
        if chars > max_chars or binary > MAX_BINARY_CHARS:
            raise _build_refusal(f"it has more than {max_chars:,} characters")
        level = below
    if level:
        raise _build_refusal(f"it is nested more than {MAX_DEPTH} levels deep")


def _clean(value: Any, key: str = "") -> Any:
    """A copy without hidden characters; raises RemoteError where they are in what must not be
    changed."""
    if isinstance(value, dict):
        return {_check_visible(name): _clean(one, name) for name, one in cast(Raw, value).items()}
    if isinstance(value, list):
        return [_clean(one, key) for one in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    if key in _BINARY_KEYS:
        return _check_base64(value)
    if key in _EXACT_KEYS:
        return _check_visible(value)
    text = sanitize_text(value)
    if key in _CAPTION_KEYS:
        text = _truncate(text, MAX_CAPTION_CHARS)
    if key in _PROSE_KEYS:
        return _LIKE_A_LABEL.sub("> ", text)
    return text


def _check_visible(value: str) -> str:
    seen = value.translate(_JOINERS)
    if "\n" in seen or sanitize_text(seen) != seen:
        raise _build_refusal("a name or value in it has characters that cannot be seen")
    return value


def _check_base64(value: str) -> str:
    if not value.isascii() or "\x1b" in value:
        raise _build_refusal("an image or sound in it is not base64")
    return value


def _check_url(url: Any) -> tuple[str, str]:
    """An address in ASCII, and its host; raises RemoteError for what is not plainly a web address."""
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


def _truncate(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars - 1]}…"


def _build_refusal(reason: str) -> RemoteError:
    return RemoteError(INVALID_PARAMS, f"the server's question cannot be shown: {reason}")
