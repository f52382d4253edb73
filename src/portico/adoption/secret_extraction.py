"""Moves secrets out of an entry: each becomes `${VAR}`, with its value in the env file. Pure.

`config_file.mask` decides what looks like a secret; here only the secret part of a text is taken,
so that `Bearer` and a database's host stay readable. In doubt a value is taken: an additional
variable changes nothing for the server.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, cast

from portico.config_file.mask import (
    ASSIGNED_SECRET,
    AUTH_SCHEME,
    ENV_FLAGS,
    FLAG_SECRET,
    HEADER_FLAGS,
    ONLY_PLACEHOLDERS,
    SECRET_NAME,
    SECRET_SHAPES,
    USERINFO,
)
from portico.config_file.placeholders import PLACEHOLDER

_PASSWORD_NAME = re.compile(r"(?:^|[_-])(?:pass|pw)(?:$|[_-])", re.IGNORECASE)
_NOT_SECRET = re.compile(r"\s*|true|false|yes|no|on|off|none|null|enabled|disabled", re.IGNORECASE)
_AUTH_SCHEME = re.compile(r"\s*(?:Bearer|Basic|Token|ApiKey|Digest)\s+", re.IGNORECASE)
_PARAMETER = re.compile(r"[?&;]([^=&;#\s]+)=([^&;#\s]+)")
_PATH = re.compile(r"(?:~?/|\.{1,2}[/\\]|[A-Za-z]:[\\/](?!/))")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")

SecretSpan = tuple[int, int, str]
"""Start and end of a secret in a text, and its name there."""
_BARE = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")
_SHELL_ESCAPES = str.maketrans({char: f"\\{char}" for char in '\\"$`'})
"""Characters with a meaning for a shell between double quotes."""
_HEADER = """\
# Secrets of the configuration beside it, for ${VAR} there. The environment wins over them.
# Keep this file to yourself.
"""


class VariableNames:
    """Variable names for secrets; none has two values, here or in the overriding environment."""

    def __init__(self, environ: Mapping[str, str], known: Mapping[str, str]) -> None:
        self._environ = environ
        self._values = dict(known)

    def assign_name(
        self, server: str, wanted: str, value: str, *, allow_unprefixed: bool = False
    ) -> str:
        """Return a variable for a value; `allow_unprefixed` allows a name without the server's."""
        plain = _to_variable_name(wanted)
        prefixed = _to_variable_name(f"{server}_{wanted}")
        for candidate in chain(
            (plain,) if allow_unprefixed else (), (prefixed,), (f"{prefixed}_{n}" for n in count(2))
        ):
            if (
                self._values.get(candidate, value) == value
                and self._environ.get(candidate, value) == value
            ):
                self._values[candidate] = value
                return candidate
        raise AssertionError("counting does not end")

    def reserve(self, names: Mapping[str, str]) -> None:
        """Reserve names of variables whose values are not known yet."""
        for name in names:
            self._values.setdefault(name, f"\0{name}")


def extract_secrets(
    server: str, entry: Mapping[str, Any], variables: VariableNames
) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, str] = {}

    def make_namer(allow_unprefixed: bool) -> Callable[[str, str], str]:
        def name_secret(wanted: str, value: str) -> str:
            variable = variables.assign_name(
                server, wanted, value, allow_unprefixed=allow_unprefixed
            )
            values[variable] = value
            return variable

        return name_secret

    cleaned = dict(entry)
    for key, own in (("env", True), ("headers", False), ("query", False)):
        if isinstance(mapping := cleaned.get(key), dict):
            values_by_name = dict(cast("dict[str, Any]", mapping))
            for name, text in values_by_name.items():
                if isinstance(text, str):
                    spans = list(_find_in_named_value(name, text, header=key == "headers"))
                    values_by_name[name] = _replace_spans(text, spans, make_namer(own))
            cleaned[key] = values_by_name
    for key in ("url", "base_url", "openapi"):
        if isinstance(text := cleaned.get(key), str):
            cleaned[key] = _replace_spans(text, list(_find_in_text(text)), make_namer(False))
    if isinstance(args := cleaned.get("args"), list):
        cleaned["args"] = list(_extract_from_args(cast("list[Any]", args), make_namer(False)))
    return cleaned, values


def _to_variable_name(text: str) -> str:
    word = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "SECRET"
    if word[0].isdigit():
        return f"_{word}"
    return word


def _is_secret_name(name: str) -> bool:
    return bool(SECRET_NAME.search(name) or _PASSWORD_NAME.search(name))


def _find_in_named_value(name: str, text: str, *, header: bool) -> Iterator[SecretSpan]:
    """Find the secret of a variable or header: all of it if the name says so, else by shape."""
    if not _is_secret_name(name):
        yield from (
            (start, end, name if called == "secret" else called)
            for start, end, called in _find_in_text(text)
        )
    elif PLACEHOLDER.search(text):
        yield from ((start, end, name) for start, end, _ in _find_in_text(text))
    elif not _NOT_SECRET.fullmatch(text):
        scheme = _AUTH_SCHEME.match(text) if header else None
        bearer = scheme is not None and name.lower() == "authorization"
        yield (scheme.end() if scheme else 0, len(text), "token" if bearer else name)


def _extract_from_args(
    args: Sequence[Any], name_secret: Callable[[str, str], str]
) -> Iterator[Any]:
    before = ""
    for arg in args:
        if not isinstance(arg, str):
            yield arg
            continue
        yield _replace_spans(arg, list(_find_in_arg(arg, before)), name_secret)
        before = arg


def _find_in_arg(arg: str, before: str) -> Iterator[SecretSpan]:
    """Find the secrets of an argument; one after `--token`, `-e` or `-H` is judged by that flag."""
    name, sign, value = arg.partition("=")
    header, colon, header_value = arg.partition(":")
    if before in ENV_FLAGS and sign:
        yield from _shift_spans(_find_in_named_value(name, value, header=False), len(name) + 1)
    elif before in HEADER_FLAGS and colon:
        gap = len(header_value) - len(header_value.lstrip())
        yield from _shift_spans(
            _find_in_named_value(header, header_value[gap:], header=True), len(header) + 1 + gap
        )
    elif _FLAG.fullmatch(name) and sign and _is_secret_name(name):
        yield from _shift_spans(_find_in_named_value(name, value, header=False), len(name) + 1)
    elif _FLAG.fullmatch(before) and _is_secret_name(before) and not arg.startswith("-"):
        yield from _find_in_named_value(before, arg, header=False)
    else:
        yield from _find_in_text(arg)


def _shift_spans(spans: Iterator[SecretSpan], by: int) -> Iterator[SecretSpan]:
    return ((start + by, end + by, name) for start, end, name in spans)


def _find_in_text(text: str) -> Iterator[SecretSpan]:
    """Find secrets by context or shape: in a URL, after a scheme or a telling name, random text."""
    for match in USERINFO.finditer(text):
        user, colon, password = match.group()[3:-1].partition(":")
        if colon and password:
            yield match.start() + 3 + len(user) + 1, match.end() - 1, "password"
        elif user and not colon:
            yield match.start() + 3, match.end() - 1, "token"  # A token in place of a user name.
    for match in _PARAMETER.finditer(text):
        if _is_secret_name(match[1]):
            yield match.start(2), match.end(2), match[1]
    for match in AUTH_SCHEME.finditer(text):
        start = match.start() + len(match[1])
        yield start + len(text[start:]) - len(text[start:].lstrip()), match.end(), "token"
    for pattern in (ASSIGNED_SECRET, FLAG_SECRET):
        for match in pattern.finditer(text):
            yield match.start(2), match.end(2), match[1].strip(" \t\"':=-") or "secret"
    if _PATH.match(text):
        return  # Names of folders often look random.
    for match in SECRET_SHAPES.finditer(text):
        yield match.start(), match.end(), "secret"


def _replace_spans(
    text: str, spans: list[SecretSpan], name_secret: Callable[[str, str], str]
) -> str:
    if not spans or ONLY_PLACEHOLDERS.fullmatch(text):
        return text
    placeholders = [match.span() for match in PLACEHOLDER.finditer(text)]
    parts: list[str] = []
    end = 0
    for start, stop, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        # Overlapping spans are taken once, and a placeholder is already a variable.
        if (
            start < end
            or start == stop
            or any(start < last and first < stop for first, last in placeholders)
        ):
            continue
        parts += [text[end:start], f"${{{name_secret(name, text[start:stop])}}}"]
        end = stop
    return "".join([*parts, text[end:]])


def render_env_line(name: str, value: str) -> str:
    """Render an assignment that this package and a shell read back as the same value."""
    if _BARE.fullmatch(value):
        return f"{name}={value}\n"
    if "'" not in value:
        return f"{name}='{value}'\n"
    return f'{name}="{value.translate(_SHELL_ESCAPES)}"\n'


def add_env_values(
    text: str | None, values: Mapping[str, str], unset_variables: Mapping[str, str]
) -> str:
    """Return an env file with these values added, and a commented line for each unset variable."""
    if text is None:
        text = _HEADER
    if text and not text.endswith("\n"):
        text += "\n"
    for name, why in unset_variables.items():
        if name not in values and not re.search(rf"(?m)^\s*#?\s*{re.escape(name)}=", text):
            text += f"# {name}=    {' '.join(why.split())}\n"
    return text + "".join(render_env_line(name, value) for name, value in values.items())
