"""The secrets of a configuration by their values, and a mask that finds them in any text.

What looks like a secret is masked wherever it stands (`masking`); a password of three plain words
does not look like one, and is found only by whoever knows it.
"""

import base64
import html
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from portico.config import BackendConfig, Config
from portico.config_file.mask import MASK, SECRET_NAME, mask_args, mask_command

MIN_SECRET_LENGTH = 6
"""Characters: a shorter value stands in too many harmless words."""
_MIN_LINE_LENGTH = 16
"""The same for one line of a value that has several, such as a private key."""
_MAX_UNINDEXED_FORMS = 256
_MAX_INDEXED_TEXT = 16_384
"""Characters: the beginnings of a longer text would take more memory than they save time."""
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|ApiKey|Digest)\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")
_PATH = re.compile(r"(?:~?/|\.{1,2}/|[A-Za-z]:[\\/])")
_HARMLESS = re.compile(
    r"[\d.,:_-]+|true|false|enabled|disabled|production|development|localhost", re.IGNORECASE
)


def collect_secret_values(
    config: Config, environ: Mapping[str, str] = os.environ
) -> frozenset[str]:
    """Every value of a configuration that must not be shown: tokens, passwords, headers,
    environments of servers."""
    found: set[str] = set()
    if config.gateway.token is not None:
        found.add(config.gateway.token.get_secret_value())
    if config.database_url is not None:
        found.update(_iter_url_secrets(config.database_url.get_secret_value()))
    for server in config.servers.values():
        found.update(_iter_server_secrets(server, environ))
    return frozenset(value for value in found if len(value) >= MIN_SECRET_LENGTH)


def _iter_server_secrets(server: BackendConfig, environ: Mapping[str, str]) -> Iterator[str]:
    yield from server.headers.values()
    yield from server.query.values()
    given = {**{name: environ.get(name, "") for name in server.inherit_env}, **server.env}
    for name, value in given.items():
        # A folder or a number under a harmless name says nothing secret, and stands in half of all
        # log lines.
        if SECRET_NAME.search(name) or not (_PATH.match(value) or _HARMLESS.fullmatch(value)):
            yield value
            yield from _iter_url_secrets(value)
    for address in (server.url, server.base_url, server.openapi):
        yield from _iter_url_secrets(address or "")
    yield from _iter_argument_secrets(server.args, mask_args(server.args, server.written))
    for name, tool in server.commands.items():
        told = mask_command(tool.command, name, server.written)
        # Of a command in one line, what is not told as it is; it may have been split otherwise.
        same = len(told) == len(tool.command)
        yield from _iter_argument_secrets(
            tool.command, told if same else [arg if arg in told else MASK for arg in tool.command]
        )


def _iter_argument_secrets(args: Sequence[str], shown: Sequence[str]) -> Iterator[str]:
    for before, arg, told in zip(("", *args), args, shown, strict=False):
        if told == arg:
            continue
        # A folder from a variable (`${HOME}/docs`) is no secret, unless its name, or its flag's,
        # says so.
        if _PATH.match(arg) and MASK not in told and not SECRET_NAME.search(f"{before} {told}"):
            continue
        yield from _iter_url_secrets(arg)
        name, sign, value = arg.partition("=")
        # What is shown as a mask alone, or as the variable it came from, is secret as a whole.
        yield value if sign and told.startswith(f"{name}=") else arg


def _iter_url_secrets(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        if not parts.netloc:
            return
        password = parts.password or ""
    except ValueError:
        return
    yield from (password, unquote(password))
    if not password and parts.username:
        yield parts.username  # a token in the place of a name
    yield from (value for name, value in parse_qsl(parts.query) if SECRET_NAME.search(name))


class SecretMask:
    """Finds values in texts, as they are and as they may have been written down."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _iter_forms(secret)}
        # The longest first: one may be a part of another.
        self._forms = sorted(forms, key=_get_sort_key)
        if self._forms:
            self.longest_form = len(self._forms[0])
        else:
            self.longest_form = 1
        self._by_start: dict[str, list[str]] = {}
        for form in self._forms:
            self._by_start.setdefault(form[:MIN_SECRET_LENGTH], []).append(form)

    def apply(self, text: str) -> str:
        """The text without them."""
        for form in self._find_candidates(text):
            if form in text:
                text = text.replace(form, MASK)
        return text

    def _find_candidates(self, text: str) -> Sequence[str]:
        """The forms to look for: in a short text, of many forms, only those whose beginning is in
        it."""
        if len(self._forms) <= _MAX_UNINDEXED_FORMS or len(text) > _MAX_INDEXED_TEXT:
            return self._forms
        begins = {
            text[at : at + MIN_SECRET_LENGTH] for at in range(len(text) - MIN_SECRET_LENGTH + 1)
        }
        found = [form for begin in begins & self._by_start.keys() for form in self._by_start[begin]]
        return sorted(found, key=_get_sort_key)


def _get_sort_key(form: str) -> tuple[int, str]:
    return -len(form), form


def _iter_forms(secret: str) -> Iterator[str]:
    whole = secret.strip()
    if len(whole) < MIN_SECRET_LENGTH:
        return
    bare = _SCHEME.fullmatch(whole)
    lines = [line.strip() for line in whole.splitlines()]
    pieces = {
        whole,
        bare[1] if bare else whole,
        *(line for line in lines if len(line) >= _MIN_LINE_LENGTH),
    }
    for piece in pieces:
        if len(piece) >= MIN_SECRET_LENGTH:
            yield piece
            yield from (
                json.dumps(piece)[1:-1],
                json.dumps(piece, ensure_ascii=False)[1:-1],
                repr(piece)[1:-1],
            )
            data = piece.encode(errors="surrogatepass")
            yield from (repr(data)[2:-1], data.hex(), data.hex().upper())
            for encoded in (quote(data, safe=""), quote(data), quote_plus(data)):
                yield from (encoded, _PERCENT.sub(lambda match: match[0].lower(), encoded))
            for escaped in (html.escape(piece, quote=False), html.escape(piece)):
                yield from (escaped, escaped.replace("&#x27;", "&#39;"))
            yield from _iter_base64_forms(data)


def _iter_base64_forms(data: bytes) -> Iterator[str]:
    """Base64 of bytes, alone and inside of more (`user:password`): what is before them shifts every
    character."""
    yield base64.b64encode(data).decode().rstrip("=")
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        # A character that holds bits of what stands before or after is another each time.
        if encoded.endswith("="):
            end = encoded.find("=") - 1
        else:
            end = len(encoded)
        part = encoded[(0, 2, 3)[before] : end]
        if len(part) >= MIN_SECRET_LENGTH:
            yield from (part, part.translate(_URL_SAFE))
