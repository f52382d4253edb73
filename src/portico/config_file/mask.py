"""Converts a configuration to plain values that are safe to show and to log.

Possible secrets are masked; values from variables are shown as written, `${VAR}`, which tells more
and leaks nothing. When in doubt, values are masked: a long random-looking argument counts as a key.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from portico.config import BackendConfig, Config
from portico.config.server_auth import SECRET_FIELDS
from portico.config_file.placeholders import PLACEHOLDER

MASK = "***"

SENSITIVE = (
    r"(?:api[-_]?key|access[-_]?key|private[-_]?key|(?<![a-z])key(?![a-z])|token|secret"
    r"|passw(?:or)?d|passphrase|pwd|credential|auth(?!or(?!i[sz]))|bearer|cookie|session|signature"
    r"|(?<![a-z])sig(?![a-z])|(?<![a-z])pat(?![a-z])|dsn|connection[-_]?string)"
)
SECRET_NAME = re.compile(SENSITIVE, re.IGNORECASE)
_PROSE = (
    r"(?:a|an|are|at|auth(?:enticat|oriz|oris)?(?:ed|ion)?|credentials?|empty|environment|expired"
    r"|failed|for|found|from|has|header|in|invalid|is|key|missing|must|no|none|not|null|of|or"
    r"|provided|realm|required|should|the|to|token|unset|undefined|variable|was|with|wrong"
    r"|your(?:[-_][\w-]*)?|process\.env\S*)(?![\w-])"
)
"""Words of a sentence about a secret, which are none: a server that says what it misses must be
understood."""
AUTH_SCHEME = re.compile(rf"\b(Bearer|Basic|Token)\s+(?!{_PROSE}|[<=:])[^\s\"',;]+", re.IGNORECASE)
USERINFO = re.compile(r"://[^/?#\s\"']*@")
_NO_VALUE = rf"Bearer\b|Basic\b|Token\b|[{{\[(]|{_PROSE}|<"
"""Text after a secret's name that is not its value: a scheme, or JSON."""
_ADVISED_DEFAULT = "default}"
"""Of `${KEY:-default}`, which messages about a missing variable advise."""
ASSIGNED_SECRET = re.compile(
    rf"""({SENSITIVE}[\w.-]{{0,60}}["']?\s*[:=]\s*["']?)(?!{_NO_VALUE})([^\s"',;&}}]+)""",
    re.IGNORECASE,
)
FLAG_SECRET = re.compile(
    rf"""((?<![\w-])["']?--?[\w-]{{0,40}}{SENSITIVE}[\w-]{{0,40}}(?:["'],\s*["']|\s+(?=\S*\d)))"""
    r"""([^\s"',;-][^"',;\s]*)""",
    re.IGNORECASE,
)
"""`--token x1` in a command line, where a word without a digit may be prose, or in an argument
list."""
SECRET_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      (?:sk|pk|rk|key|pplx|tvly|xai|gsk|ntn|secret|shpat|glpat|hf|npm|pypi|dop_v1|lin_api|figd
        |sntrys|rpa)[-_][A-Za-z0-9_-]{8,}
    | gh[pousr]_[A-Za-z0-9]{10,} | github_pat_\w{10,} | xox[a-z]-[A-Za-z0-9-]{8,}
    | A[KS]IA[0-9A-Z]{12,} | AIza[\w-]{20,} | eyJ[\w-]{8,}(?:\.[\w-]+)*
    | [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}
    | (?=[A-Za-z]*\d[A-Za-z]*\d)(?=\d*[A-Za-z]\d*[A-Za-z])[A-Za-z0-9]{20,}
    | (?=[\w-]{0,64}[a-z])(?=[\w-]{0,64}[A-Z])(?=(?:[A-Za-z_-]{0,64}\d){4})[\w-]{32,}
    )=*""",
    re.VERBOSE,
)
ONLY_PLACEHOLDERS = re.compile(
    r"(?:(?:Bearer|Basic|Token) )?(?:\$\{(?:\w[\w:]*|(?:keyring|file|cmd):[^{}]*)\})+",
    re.IGNORECASE,
)
ARGUMENT_PLACEHOLDER = re.compile(r"(?:^|=)\{[A-Za-z_][\w-]*\}$")
HEADER_FLAGS = ("-H", "--header", "--headers")
ENV_FLAGS = ("-e", "--env")


def mask_config(config: Config) -> dict[str, Any]:
    """Return the effective configuration, every key, without secrets."""
    plain = config.model_dump(
        mode="json", by_alias=True, exclude={"written": True, "servers": {"__all__": {"written"}}}
    )
    servers = plain.pop("servers")
    masked: dict[str, Any] = {
        "servers": {
            name: mask_server(servers[name], backend) for name, backend in config.servers.items()
        }
    }
    masked |= {key: mask_value(value, key, config.written) for key, value in plain.items()}
    if config.gateway.token is not None:
        masked["gateway"]["token"] = mask_secret("gateway.token", config.written)
    if config.credentials_key is not None:
        masked["credentials_key"] = mask_secret("credentials_key", config.written)
    if config.database_url is not None:
        masked["database_url"] = mask_secret("database_url", config.written)
    return masked


def mask_server(plain: Mapping[str, Any], backend: BackendConfig) -> dict[str, Any]:
    masked: dict[str, Any] = {
        key: value if key == "problem" else mask_value(value, key, backend.written)
        for key, value in plain.items()
        if key not in ("env", "headers", "query", "args")
    }
    for key in ("env", "headers", "query"):
        masked[key] = {name: mask_secret(f"{key}.{name}", backend.written) for name in plain[key]}
    masked["args"] = mask_args(backend.args, backend.written)
    for key in SECRET_FIELDS:
        if backend.auth is not None and getattr(backend.auth, key):
            masked["auth"][key] = mask_secret(f"auth.{key}", backend.written)
    for glob, override in backend.tools.override.items():
        for name, parameter in override.parameters.items():
            key = f"tools.override.{glob}.parameters.{name}.fixed"
            shown = masked["tools"]["override"][glob]["parameters"][name]
            if parameter.is_fixed and SECRET_NAME.search(name):
                shown["fixed"] = mask_secret(key, backend.written)
    for name, tool in backend.commands.items():
        masked["commands"][name]["command"] = mask_command(tool.command, name, backend.written)
    return {key: masked[key] for key in plain}


def mask_secret(key: str, written: Mapping[str, str]) -> str:
    """Return the variable a secret came from, or a mask if it contains more than that."""
    text = written.get(key, "")
    return mask_text(text) if ONLY_PLACEHOLDERS.fullmatch(text) else MASK


def mask_value(value: Any, key: str, written: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: mask_value(inner, f"{key}.{name}", written) for name, inner in value.items()}
    if isinstance(value, list):
        return [mask_value(inner, f"{key}.{index}", written) for index, inner in enumerate(value)]
    if key in written:
        return mask_text(written[key])
    if isinstance(value, str):
        return mask_text(value)
    return value


def mask_command(words: Sequence[str], tool: str, written: Mapping[str, str]) -> list[str]:
    """Mask the words of a command tool; a one-line command is shown as it was written."""
    key = f"commands.{tool}"
    line = written.get(f"{key}.command", written.get(key))
    if line is not None:
        words = line.split()
        written = {}
    # In the short form a list is directly under the tool's name.
    is_short_form = any(
        name.startswith(f"{key}.") and name[len(key) + 1 :].isdigit() for name in written
    )
    masked = mask_args(words, written, key if is_short_form else f"{key}.command")
    # `--token {token}` is filled in by the caller, so it is no secret.
    return [
        word if ARGUMENT_PLACEHOLDER.search(word) else masked_word
        for word, masked_word in zip(words, masked, strict=True)
    ]


def mask_args(
    args: Sequence[str], written: Mapping[str, str], key_prefix: str = "args"
) -> list[str]:
    """Mask arguments; the one after `--token`, `-e` or `-H` is judged by that option."""
    masked: list[str] = []
    previous = ""
    for index, arg in enumerate(args):
        key = f"{key_prefix}.{index}"
        text = written.get(key, arg)
        name, sign, _ = text.partition("=")
        is_flag = text.startswith("-")
        if previous in ENV_FLAGS and sign:
            value = text[len(name) + 1 :]
            masked.append(f"{name}={value if ONLY_PLACEHOLDERS.fullmatch(value) else MASK}")
        elif previous in HEADER_FLAGS and ":" in text:
            if key in written:
                masked.append(mask_text(text))
            else:
                masked.append(f"{text.partition(':')[0]}: {MASK}")
        elif (
            previous.startswith("-")
            and "=" not in previous
            and SECRET_NAME.search(previous)
            and not is_flag
        ):
            masked.append(mask_secret(key, written))
        else:
            masked.append(mask_text(text))
        previous = text
    return masked


def mask_text(text: str) -> str:
    """Mask everything in a text that looks like a secret; placeholders are kept."""
    text = USERINFO.sub(f"://{MASK}@", text)
    parts: list[str] = []
    end = 0
    for match in PLACEHOLDER.finditer(text):
        parts += [mask_literal(text[end : match.start()]), mask_default(match.group())]
        end = match.end()
    return "".join([*parts, mask_literal(text[end:])])


def mask_literal(text: str) -> str:
    text = FLAG_SECRET.sub(rf"\1{MASK}", AUTH_SCHEME.sub(rf"\1 {MASK}", text))
    return SECRET_SHAPES.sub(MASK, ASSIGNED_SECRET.sub(rf"\1{MASK}", text))


def mask_default(placeholder: str) -> str:
    """Mask the default in `${VAR:-default}` if its variable or form suggests a secret.

    In the words of a `${cmd:…}`, what looks like a secret is masked.
    """
    if placeholder.startswith("${cmd:"):
        return f"${{cmd:{mask_literal(placeholder[6:-1])}}}"
    name, sign, default = placeholder.partition(":-")
    if not sign:
        return placeholder
    if default == _ADVISED_DEFAULT:
        return placeholder
    if SECRET_NAME.search(name):
        return f"{name}:-{MASK}}}"
    return f"{name}:-{mask_text(default)}"
