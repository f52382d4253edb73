"""Decides what in a configuration is secret, and checks for secrets in plain text. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.config import BackendConfig, Config
from portico.config_file.mask import SECRET_NAME

MIN_SECRET_CHARS = 6
_CREDENTIAL_HEADERS = frozenset({"authorization", "proxy-authorization"})
_KNOWN_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-|ghp_|gho_|github_pat_|glpat-|xox[a-z]-|hf_|AKIA|AIza|eyJ|npm_|pypi-)"
    r"[\w.-]{12,}"
)
_HARMLESS_NAME = re.compile(
    r"(?:file|path|dir|folder|url|uri|host|port|mode|type|limit|max|enabled|disabled|header|name|"
    r"id|ttl|expir\w*|method|scheme|provider|timeout|count|size|window)$",
    re.IGNORECASE,
)
_HARMLESS_VALUE = re.compile(
    r"(?:true|false|yes|no|on|off|none|null|auto|\d+(?:\.\d+)?|[/~.].*|https?://\S+)", re.IGNORECASE
)
_FLAG = re.compile(r"--?[\w-]+")


_PLACEHOLDER = re.compile(
    r"(?:bearer |basic |token )?(?:"
    r"<[^<>]{1,60}>|\[[^\[\]]{2,60}\]|\{\{[^{}]{1,60}\}\}|x{3,}|\*{3,}|\.{3}|…|-{3,}"
    r"|(?:your|insert|enter|paste|replace)[-_ ].{0,60}|.{0,40}[-_ ](?:here|goes[-_ ]here)"
    r"|my[-_ ]?(?:api[-_ ]?)?(?:key|token|secret|password)"
    r"|change[-_ ]?me|todo|tbd|fixme|placeholder|example|dummy|none|null|undefined"
    r"|(?:sk|ghp|xoxb|hf|pk)[-_](?:x{3,}|your.*|\.{3}|…|\*{3,})|.*_api_key_?(?:here)?"
    r")",
    re.IGNORECASE,
)


def is_placeholder(value: str) -> bool:
    """Return whether a value stands for one that was never filled in."""
    return bool(_PLACEHOLDER.fullmatch(value.strip()))


def is_credential(name: str) -> bool:
    """Return whether a variable or header of this name holds a credential."""
    if name.lower() in _CREDENTIAL_HEADERS:
        return True
    return bool(SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def is_secret(name: str, value: str) -> bool:
    """Return whether a value must not be shown or stored."""
    if (
        len(value) < MIN_SECRET_CHARS
        or "${" in value
        or is_placeholder(value)
        or (_HARMLESS_VALUE.fullmatch(value) and not _has_password(value))
    ):
        return False
    return is_credential(name) or bool(_KNOWN_SHAPES.search(value)) or _has_password(value)


def collect_secrets(config: Config) -> tuple[str, ...]:
    """Return every secret value of a configuration, the longest first, for masking."""
    found = {
        value for server in config.servers.values() for _, value in _find_server_secrets(server)
    }
    for server in config.servers.values():
        # Also the credential without its scheme.
        found |= {
            value.partition(" ")[2].strip()
            for name, value in server.headers.items()
            if is_secret(name, value)
        }
    found |= {
        secret.get_secret_value()
        for secret in (config.gateway.token, config.database_url)
        if secret is not None
    }
    if config.database_url is not None:
        found.add(_parse_password(config.database_url.get_secret_value()))
    return tuple(
        sorted((value for value in found if len(value) >= MIN_SECRET_CHARS), key=len, reverse=True)
    )


def check_plain_text(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield a finding for each secret that is in a file in plain text."""
    for name, server in config.servers.items():
        for where, _ in _find_server_secrets(server):
            if ".".join(map(str, where)) not in server.written and locations.is_in_file(
                "servers", name, *where
            ):
                yield _make_finding(str(where[-1]), locations.locate_server(name, *where), where)
    for where, secret in (
        (("gateway", "token"), config.gateway.token),
        (("database_url",), config.database_url),
    ):
        if secret is None or ".".join(where) in config.written or not locations.is_in_file(*where):
            continue
        if where == ("gateway", "token") or _has_password(secret.get_secret_value()):
            yield _make_finding(where[-1], locations.locate(*where), where)


def _make_finding(
    name: str, at: Mapping[str, object], where: tuple[str | int, ...]
) -> DoctorFinding:
    variable = re.sub(r"\W+", "_", name if isinstance(where[-1], str) else str(where[0])).upper()
    if isinstance(where[-1], str):
        what = f"{name} is"
    else:
        what = "an argument is"
    if name.lower() == "authorization":
        scheme = "Bearer "
    else:
        scheme = ""
    return DoctorFinding(
        "secret.in_file",
        "warning",
        f"{what} a secret in plain text: whoever reads the file has it",
        f"Write {scheme}${{{variable}}} there, and set {variable} in the environment or in an "
        "`env_file` (chmod 600).",
        **at,  # pyright: ignore[reportArgumentType]
    )


def _find_server_secrets(server: BackendConfig) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the key path and value of each secret of a server."""
    for section in ("env", "headers", "query"):
        values: dict[str, str] = getattr(server, section)
        for name, value in values.items():
            if is_secret(name, value):
                yield (section, name), value
    yield from _find_in_arguments(("args",), server.args)
    for tool, command in server.commands.items():
        # Placeholders of arguments are not secret.
        fixed = tuple(
            text if word.literal_text is not None else ""
            for text, word in zip(command.command, command.words, strict=True)
        )
        yield from _find_in_arguments(("commands", tool, "command"), fixed)
    if server.url and _has_password(server.url):
        yield ("url",), _parse_password(server.url)


def _find_in_arguments(
    where: tuple[str, ...], words: Sequence[str]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    before = ""
    for position, argument in enumerate(words):
        name, sign, value = argument.partition("=")
        if sign and _FLAG.fullmatch(name) and is_secret(name, value):
            yield (*where, position), value
        elif (
            (
                _FLAG.fullmatch(before)
                and not argument.startswith("-")
                and is_secret(before, argument)
            )
            or _KNOWN_SHAPES.search(argument)
            or _has_password(argument)
        ):
            yield (*where, position), argument
        before = argument


def _parse_password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""


def _has_password(text: str) -> bool:
    return "://" in text and "@" in text and len(_parse_password(text)) > 0 and "${" not in text
