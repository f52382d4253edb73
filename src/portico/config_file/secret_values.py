"""Collects a configuration's secret values, and masks them in any text.

What looks like a secret is masked everywhere (`mask`); a password of three plain words does not
look like one and can only be found by its value.
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
"""Characters; a shorter value occurs in too many harmless words."""
_MIN_LINE_LENGTH = 16
"""Minimum for one line of a value with several, such as a private key."""
_MAX_UNINDEXED_FORMS = 256
_MAX_INDEXED_TEXT = 16_384
"""Characters; indexing a longer text would take more memory than it saves time."""
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
    """Return every value that must not be shown, such as tokens and passwords."""
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
    environment = {**{name: environ.get(name, "") for name in server.inherit_env}, **server.env}
    for name, value in environment.items():
        # A path or a number under a harmless name is not secret, and occurs in many log lines.
        if SECRET_NAME.search(name) or not (_PATH.match(value) or _HARMLESS.fullmatch(value)):
            yield value
            yield from _iter_url_secrets(value)
    for address in (server.url, server.base_url, server.openapi):
        yield from _iter_url_secrets(address or "")
    yield from _iter_argument_secrets(server.args, mask_args(server.args, server.written))
    for name, tool in server.commands.items():
        masked = mask_command(tool.command, name, server.written)
        # A one-line command may be split differently, so its words are compared by value.
        is_aligned = len(masked) == len(tool.command)
        yield from _iter_argument_secrets(
            tool.command,
            masked if is_aligned else [arg if arg in masked else MASK for arg in tool.command],
        )


def _iter_argument_secrets(args: Sequence[str], shown: Sequence[str]) -> Iterator[str]:
    for previous, arg, masked in zip(("", *args), args, shown, strict=False):
        if masked == arg:
            continue
        # A path with a variable (`${HOME}/docs`) is not secret unless its name or flag says so.
        if (
            _PATH.match(arg)
            and MASK not in masked
            and not SECRET_NAME.search(f"{previous} {masked}")
        ):
            continue
        yield from _iter_url_secrets(arg)
        name, sign, value = arg.partition("=")
        # What is shown as a mask alone, or as a variable, is secret as a whole.
        yield value if sign and masked.startswith(f"{name}=") else arg


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
        yield parts.username  # a token in place of a user name
    yield from (value for name, value in parse_qsl(parts.query) if SECRET_NAME.search(name))


class SecretMask:
    """Masks secret values in text, in their plain and common encoded forms."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _iter_forms(secret)}
        # Longest first, as one may be part of another.
        self._forms = sorted(forms, key=_get_sort_key)
        self.longest_form = len(self._forms[0]) if self._forms else 1
        self._by_start: dict[str, list[str]] = {}
        for form in self._forms:
            self._by_start.setdefault(form[:MIN_SECRET_LENGTH], []).append(form)

    def apply(self, text: str) -> str:
        """Return the text with all secrets masked."""
        for form in self._find_candidates(text):
            if form in text:
                text = text.replace(form, MASK)
        return text

    def _find_candidates(self, text: str) -> Sequence[str]:
        """Return the forms to search for; in short text, those whose beginning occurs."""
        if len(self._forms) <= _MAX_UNINDEXED_FORMS or len(text) > _MAX_INDEXED_TEXT:
            return self._forms
        prefixes = {
            text[at : at + MIN_SECRET_LENGTH] for at in range(len(text) - MIN_SECRET_LENGTH + 1)
        }
        found = [
            form for prefix in prefixes & self._by_start.keys() for form in self._by_start[prefix]
        ]
        return sorted(found, key=_get_sort_key)


def _get_sort_key(form: str) -> tuple[int, str]:
    return -len(form), form


def _iter_forms(secret: str) -> Iterator[str]:
    stripped = secret.strip()
    if len(stripped) < MIN_SECRET_LENGTH:
        return
    credential = _SCHEME.fullmatch(stripped)
    lines = [line.strip() for line in stripped.splitlines()]
    pieces = {
        stripped,
        credential[1] if credential else stripped,
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
    """Yield base64 forms of bytes at each offset in other data (`user:password`)."""
    yield base64.b64encode(data).decode().rstrip("=")
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        # Characters that share bits with neighbouring data vary, and are cut off.
        end = encoded.find("=") - 1 if encoded.endswith("=") else len(encoded)
        part = encoded[(0, 2, 3)[before] : end]
        if len(part) >= MIN_SECRET_LENGTH:
            yield from (part, part.translate(_URL_SAFE))
