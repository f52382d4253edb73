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
from typing import Any, cast
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from portico.config import BackendConfig, Config
from portico.config.inherited_environment import PROXY_VARIABLES, select_inherited
from portico.config.server_auth import SECRET_FIELDS
from portico.config_file.mask import MASK, SECRET_NAME, mask_args, mask_command
from portico.config_file.secret_references import known_secrets

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
    """Return every value that must not be shown, such as tokens and passwords; also those of
    references that were read in this process."""
    found: set[str] = set(known_secrets.list_values())
    if config.gateway.token is not None:
        found.add(config.gateway.token.get_secret_value())
    for issuer in config.auth:
        if issuer.introspection is not None:
            found.add(issuer.introspection.client_secret.get_secret_value())
        if issuer.proxy is not None and issuer.proxy.client_secret is not None:
            found.add(issuer.proxy.client_secret.get_secret_value())
    if config.credentials_key is not None:
        found.add(config.credentials_key.get_secret_value())
    if config.database_url is not None:
        found.update(_iter_url_secrets(config.database_url.get_secret_value()))
    for name in PROXY_VARIABLES:
        found.update(_iter_url_secrets(environ.get(name, "")))
    for server in config.servers.values():
        found.update(_iter_server_secrets(server, environ))
    return frozenset(value for value in found if len(value) >= MIN_SECRET_LENGTH)


def _iter_server_secrets(server: BackendConfig, environ: Mapping[str, str]) -> Iterator[str]:
    yield from server.headers.values()
    yield from server.query.values()
    if server.auth is not None:
        yield from (getattr(server.auth, name) or "" for name in SECRET_FIELDS)
    environment = {**select_inherited(environ, server.inherit_env), **server.env}
    for name, value in environment.items():
        # A path or a number under a harmless name is not secret, and occurs in many log lines. Of
        # what only a pattern passes on, such as USER, nobody has said that the server needs it.
        is_named = name in server.env or name in server.inherit_env
        is_plain = not is_named or _PATH.match(value) or _HARMLESS.fullmatch(value)
        if SECRET_NAME.search(name) or not is_plain:
            yield value
        yield from _iter_url_secrets(value)
    for address in (server.url, server.base_url, server.openapi):
        yield from _iter_url_secrets(address or "")
    yield from _iter_argument_secrets(server.args, mask_args(server.args, server.written))
    yield from _iter_fixed_secrets(server)
    for name, tool in server.commands.items():
        masked = mask_command(tool.command, name, server.written)
        # A one-line command may be split differently, so its words are compared by value.
        is_aligned = len(masked) == len(tool.command)
        yield from _iter_argument_secrets(
            tool.command,
            masked if is_aligned else [arg if arg in masked else MASK for arg in tool.command],
        )


def _iter_fixed_secrets(server: BackendConfig) -> Iterator[str]:
    """Yield fixed arguments that come from variables, or whose parameter names a secret."""
    for glob, override in server.tools.override.items():
        for name, parameter in override.parameters.items():
            key = f"tools.override.{glob}.parameters.{name}.fixed"
            is_secret = SECRET_NAME.search(name) is not None
            yield from _iter_written_texts(parameter.fixed, key, server.written, is_all=is_secret)


def _iter_written_texts(
    value: Any, key: str, written: Mapping[str, str], *, is_all: bool
) -> Iterator[str]:
    if isinstance(value, str):
        if is_all or key in written:
            yield value
    elif isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            yield from _iter_written_texts(inner, f"{key}.{name}", written, is_all=is_all)
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _iter_written_texts(inner, f"{key}.{index}", written, is_all=is_all)


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
