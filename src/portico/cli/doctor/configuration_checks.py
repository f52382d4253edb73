"""Checks the configuration itself: duplicate servers, variables, credentials, OpenAPI entries."""

import base64
import binascii
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

import orjson
from pydantic import SecretStr

from portico.adoption.environment_search import list_likely_variables
from portico.cli.doctor.finding import (
    ConfigLocation,
    ConfigLocations,
    DoctorFinding,
    broken,
    join_names,
    note,
    warning,
)
from portico.cli.doctor.probe import ServerProbe
from portico.config import BackendConfig, Config
from portico.config.inherited_environment import is_pattern, list_withheld
from portico.config_file.mask import SECRET_NAME
from portico.rendering.token_budget import format_count
from portico.upstream.backends.openapi.reader import is_url, parse_origin
from portico.upstream.transports.http_headers import redact_url

_MIN_SECRET_CHARS = 6
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
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_-]* \S")
_JWT = re.compile(r"eyJ[\w-]+\.(eyJ[\w-]+)\.[\w-]*")
_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
    if len(value) < _MIN_SECRET_CHARS or "${" in value or is_placeholder(value):
        return False
    if _has_password(value):
        return True
    if _HARMLESS_VALUE.fullmatch(value):
        return False
    return is_credential(name) or bool(_KNOWN_SHAPES.search(value))


def check_credentials(
    name: str, server: BackendConfig, locations: ConfigLocations, now: float | None = None
) -> Iterator[DoctorFinding]:
    """Yield credentials of one server that cannot work: empty, placeholders, expired."""
    now = time.time() if now is None else now
    for section in ("env", "headers", "query"):
        values: dict[str, str] = getattr(server, section)
        for variable, value in values.items():
            at = locations.locate_server(name, section, variable)
            is_header = section == "headers" and variable.lower() == "authorization"
            if is_credential(variable) and not value.strip():
                yield warning(
                    "credential.empty",
                    f"{variable} is empty",
                    f"Give {variable} its value, or take it out.",
                    at,
                )
            elif is_credential(variable) and is_placeholder(value):
                suggested = re.sub(r"[^A-Za-z0-9_]", "_", variable).upper()
                yield warning(
                    "credential.placeholder",
                    f"{variable} was never filled in: its value is a placeholder",
                    f"Put the real value there, as ${{{suggested}}}.",
                    at,
                )
            elif expired := _read_past_expiry(value, now):
                yield broken(
                    "credential.expired",
                    f"the token in {variable} expired on {expired}",
                    "Get a new one where it was issued, and put it in its place.",
                    at,
                )
            elif is_header and not _SCHEME.match(value.strip()):
                yield warning(
                    "credential.no_scheme",
                    f"{variable} names no scheme, so the server cannot tell what kind of "
                    "credential it is",
                    f'Write {variable}: "Bearer …" (or Basic …).',
                    at,
                )


def _read_past_expiry(value: str, now: float) -> str:
    """Return the expiry of a JSON Web Token that has expired, else empty. Nothing is verified."""
    token = _JWT.search(value)
    if token is None:
        return ""
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(token[1] + "=" * (-len(token[1]) % 4)))
        expires_at = float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return ""
    if expires_at < now:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expires_at))
    return ""


def check_plain_text(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield a finding for each secret that is in a file in plain text."""
    for name, server in config.servers.items():
        for where in _find_server_secrets(server):
            is_in_file = locations.is_in_file("servers", name, *where)
            if is_in_file and ".".join(map(str, where)) not in server.written:
                yield _make_plain_text_finding(where, locations.locate_server(name, *where))
    secrets: list[tuple[tuple[str | int, ...], SecretStr | None]] = [
        (("gateway", "token"), config.gateway.token),
        (("database_url",), config.database_url),
    ]
    for number, issuer in enumerate(config.auth):
        if issuer.introspection is not None:
            where = ("auth", number, "introspection", "client_secret")
            secrets.append((where, issuer.introspection.client_secret))
        if issuer.proxy is not None:
            secrets.append((("auth", number, "proxy", "client_secret"), issuer.proxy.client_secret))
    for where, secret in secrets:
        key = ".".join(map(str, where))
        if secret is None or key in config.written or not locations.is_in_file(*where):
            continue
        if where != ("database_url",) or _has_password(secret.get_secret_value()):
            yield _make_plain_text_finding(where, locations.locate(*where))


def _make_plain_text_finding(where: tuple[str | int, ...], at: ConfigLocation) -> DoctorFinding:
    name = str(where[-1])
    what = f"{name} is"
    if isinstance(where[-1], int):
        name = str(where[0])
        what = "an argument is"
    variable = re.sub(r"\W+", "_", name).upper()
    scheme = "Bearer " if name.lower() == "authorization" else ""
    return warning(
        "secret.in_file",
        f"{what} a secret in plain text: everybody who reads the file has it",
        f"Write {scheme}${{{variable}}} there, and set {variable} in the environment or in an "
        "`env_file` (chmod 600).",
        at,
    )


def _find_server_secrets(server: BackendConfig) -> Iterator[tuple[str | int, ...]]:
    """Yield the key path of each secret of a server."""
    for section in ("env", "headers", "query"):
        values: dict[str, str] = getattr(server, section)
        for name, value in values.items():
            if is_secret(name, value):
                yield section, name
    yield from _find_in_arguments(("args",), server.args)
    for tool, command in server.commands.items():
        # Placeholders of arguments are not secret.
        fixed = tuple(
            text if word.literal_text is not None else ""
            for text, word in zip(command.command, command.words, strict=True)
        )
        yield from _find_in_arguments(("commands", tool, "command"), fixed)
    if server.url and _has_password(server.url):
        yield ("url",)


def _find_in_arguments(
    where: tuple[str, ...], words: Sequence[str]
) -> Iterator[tuple[str | int, ...]]:
    before = ""
    for position, argument in enumerate(words):
        name, sign, value = argument.partition("=")
        follows_flag = _FLAG.fullmatch(before) and not argument.startswith("-")
        if (
            (sign and _FLAG.fullmatch(name) and is_secret(name, value))
            or (follows_flag and is_secret(before, argument))
            or _KNOWN_SHAPES.search(argument)
            or _has_password(argument)
        ):
            yield *where, position
        before = argument


def _has_password(text: str) -> bool:
    if "://" not in text or "@" not in text or "${" in text:
        return False
    try:
        return bool(urlsplit(text).password)
    except ValueError:
        return False


def check(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield everything that can be found without looking beyond the configuration."""
    yield from _check_duplicates(config.servers, locations)
    disabled = [name for name, server in config.servers.items() if server.disabled]
    if disabled:
        are = "is" if len(disabled) == 1 else "are"
        yield note(
            "server.disabled",
            f"{format_count(len(disabled), 'server')} {are} switched off: {join_names(disabled)}",
            f"`portico enable {disabled[0]}` switches it on again.",
            locations.locate("servers", disabled[0], "disabled"),
        )
    if not config.watch:
        yield note(
            "reload.off",
            "changes of this file are not taken while Portico runs (watch: false)",
            "Restart Portico after each change, or write watch: true.",
            locations.locate("watch"),
        )


def check_variables(
    name: str,
    server: BackendConfig,
    environ: Mapping[str, str],
    locations: ConfigLocations,
    inherited_by_all: Sequence[str] = (),
) -> Iterator[DoctorFinding]:
    """Check for environment variables that a server should inherit but that are not set."""
    for variable in dict.fromkeys(server.inherit_env):
        is_own = variable not in inherited_by_all
        if is_own and variable not in environ and not is_pattern(variable):
            yield warning(
                "variable.not_inherited",
                f"{variable} should be passed on to {name}, but it is not set",
                f"export {variable}=…",
                locations.locate_server(name, "inherit_env"),
            )


def check_openapi(
    name: str, server: BackendConfig, locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Check that an API's description exists, and that credentials go to the intended origin."""
    description = server.openapi or ""
    base = server.base_url
    at = locations.locate_server(name, "openapi")
    base_at = locations.locate_server(name, "base_url")
    if not is_url(description) and not os.path.isfile(os.path.expanduser(description)):
        yield broken(
            "openapi.missing",
            f"the description {description} does not exist",
            "Correct the path (it is relative to the configuration file), or write the URL of "
            "the description.",
            at,
        )
    if base is not None and (not is_url(base) or not parse_origin(base)[1]):
        shown = redact_url(base) if "://" in base else repr(base)
        yield broken(
            "openapi.base_url",
            f"base_url {shown} is no address of an API",
            "Write it in full: https://api.example.com/v1.",
            base_at,
        )
    if not any(is_secret(*pair) for pair in (*server.headers.items(), *server.query.items())):
        return
    if base is None and is_url(description):
        yield note(
            "openapi.credentials_follow",
            "its credentials go to the origin of its description, because nothing here says "
            "where the API is",
            "Write the address of the API as `base_url`: then they go there, whatever the "
            "description says.",
            at,
        )
    scheme, host, *_ = parse_origin(base or "")
    if scheme == "http" and host not in _LOOPBACK_HOSTS:
        yield warning(
            "openapi.plain_http",
            f"its credentials are sent to {redact_url(base or '')} without encryption",
            "Write https:// in `base_url`.",
            base_at,
        )


def _check_duplicates(
    servers: Mapping[str, BackendConfig], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    first: dict[tuple[object, ...], str] = {}
    for name, server in servers.items():
        if not server.is_usable:
            continue
        target: tuple[object, ...] = (
            server.command and os.path.expanduser(server.command),
            server.args,
            server.cwd,
            tuple(sorted(server.env.items())),
            server.url,
            tuple(sorted(server.headers.items())),
            server.openapi,
            server.base_url,
            repr(server.commands),
            server.functions,
            server.recorded,
            server.recorded_slug,
        )
        other = first.setdefault(target, name)
        if other != name:
            yield warning(
                "server.duplicate",
                f"{name} is the same server as {other}: each of its tools is there twice",
                f"Take out {name} or {other}.",
                locations.locate_server(name),
            )


def check_environment(
    probe: ServerProbe,
    server: BackendConfig,
    environ: Mapping[str, str],
    locations: ConfigLocations,
) -> Iterator[DoctorFinding]:
    """Yield variables that are set here and not passed on to a server that fails or needs them."""
    if not server.command:
        return
    likely = list_likely_variables(probe.server, server, environ)
    names = set(likely)
    if probe.error is not None:
        withheld = list_withheld(environ, server.inherit_env)
        words = set(_WORD.findall("\n".join([*probe.stderr, probe.error.message])))
        names |= {name for name in withheld if name in words and name not in server.env}
    if not names:
        return
    listed = ", ".join(sorted(names))
    are = "is" if len(names) == 1 else "are"
    find = note if probe.error is None else warning
    yield find(
        "variable.not_passed",
        f"{listed} {are} set in your shell and not passed on to {probe.server}",
        f"inherit_env: [{listed}]",
        locations.locate_server(probe.server),
    )
