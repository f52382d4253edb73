"""A configuration → plain values fit for eyes and logs.

What may be secret is masked; what came from a variable is shown as it was written, `${VAR}`: that
tells more and leaks nothing. Errs on the side of masking: a long random-looking argument is taken
for a key even where nothing says so.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from portico.config import BackendConfig, Config
from portico.config_file.placeholders import PLACEHOLDER

MASK = "***"

SENSITIVE = (
    r"(?:api[-_]?key|access[-_]?key|private[-_]?key|(?<![a-z])key(?![a-z])|token|secret|passw(?:or)?d|passphrase|pwd|"
    r"credential|auth(?!or(?!i[sz]))|bearer|cookie|session|signature|(?<![a-z])sig(?![a-z])|(?<![a-z])pat(?![a-z])|dsn|"
    r"connection[-_]?string)"
)
SECRET_NAME = re.compile(SENSITIVE, re.IGNORECASE)
AUTH_SCHEME = re.compile(r"\b(Bearer|Basic|Token)\s+[^\s\"',;]+", re.IGNORECASE)
USERINFO = re.compile(r"://[^/?#\s\"']*@")
_NO_VALUE = r"Bearer\b|Basic\b|Token\b|[{\[(]|the environment variable\b"
"""What follows a secret's name and is not its value: a scheme, more JSON, our own words about what
is not set."""
ASSIGNED_SECRET = re.compile(
    rf"""({SENSITIVE}[\w.-]{{0,60}}["']?\s*[:=]\s*["']?)(?!{_NO_VALUE})([^\s"',;&}}]+)""",
    re.IGNORECASE,
)
FLAG_SECRET = re.compile(
    rf"""((?<![\w-])["']?--?[\w-]{{0,40}}{SENSITIVE}[\w-]{{0,40}}(?:["'],\s*["']|\s+(?=\S*\d)))([^\s"',;-][^"',;\s]*)""",
    re.IGNORECASE,
)
"""`--token x1` in a command line, where a word without a digit may be prose, or in a list of arguments.
"""
SECRET_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      (?:sk|pk|rk|key|pplx|tvly|xai|gsk|ntn|secret|shpat|glpat|hf|npm|pypi|dop_v1|lin_api|figd|sntrys|rpa)[-_][A-Za-z0-9_-]{8,}
    | gh[pousr]_[A-Za-z0-9]{10,} | github_pat_\w{10,} | xox[a-z]-[A-Za-z0-9-]{8,}
    | A[KS]IA[0-9A-Z]{12,} | AIza[\w-]{20,} | eyJ[\w-]{8,}(?:\.[\w-]+)*
    | [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}
    | (?=[A-Za-z]*\d[A-Za-z]*\d)(?=\d*[A-Za-z]\d*[A-Za-z])[A-Za-z0-9]{20,}
    | (?=[\w-]{0,64}[a-z])(?=[\w-]{0,64}[A-Z])(?=(?:[A-Za-z_-]{0,64}\d){4})[\w-]{32,}
    )=*""",
    re.VERBOSE,
)
ONLY_PLACEHOLDERS = re.compile(r"(?:(?:Bearer|Basic|Token) )?(?:\$\{\w[\w:]*\})+", re.IGNORECASE)
ARGUMENT_PLACEHOLDER = re.compile(r"(?:^|=)\{[A-Za-z_][\w-]*\}$")
HEADER_FLAGS = ("-H", "--header", "--headers")
ENV_FLAGS = ("-e", "--env")


def mask_config(config: Config) -> dict[str, Any]:
    """The effective configuration, every key, with nothing secret in it."""
    plain = config.model_dump(
        mode="json", exclude={"written": True, "servers": {"__all__": {"written"}}}
    )
    servers = plain.pop("servers")
    shown: dict[str, Any] = {
        "servers": {
            name: mask_server(servers[name], backend) for name, backend in config.servers.items()
        }
    }
    shown |= {key: mask_value(value, key, config.written) for key, value in plain.items()}
    if config.gateway.token is not None:
        shown["gateway"]["token"] = mask_secret("gateway.token", config.written)
    if config.database_url is not None:
        shown["database_url"] = mask_secret("database_url", config.written)
    return shown


def mask_server(plain: Mapping[str, Any], backend: BackendConfig) -> dict[str, Any]:
    shown: dict[str, Any] = {
        key: value if key == "problem" else mask_value(value, key, backend.written)
        for key, value in plain.items()
        if key not in ("env", "headers", "query", "args")
    }
    for key in ("env", "headers", "query"):
        shown[key] = {name: mask_secret(f"{key}.{name}", backend.written) for name in plain[key]}
    shown["args"] = mask_args(backend.args, backend.written)
    for name, tool in backend.commands.items():
        shown["commands"][name]["command"] = mask_command(tool.command, name, backend.written)
    return {key: shown[key] for key in plain}


def mask_secret(key: str, written: Mapping[str, str]) -> str:
    """A secret's place: the variable it came from, where it came from nothing else."""
    text = written.get(key, "")
    if ONLY_PLACEHOLDERS.fullmatch(text):
        return text
    return MASK


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
    """The words of a command that is a tool; written in one line, they are told as they were
    written."""
    key = f"commands.{tool}"
    line = written.get(f"{key}.command", written.get(key))
    if line is not None:
        words = line.split()
        written = {}
    # A list may stand under the tool's name itself.
    if any(place.startswith(f"{key}.") and place[len(key) + 1 :].isdigit() for place in written):
        key = key
    else:
        key = ""
    shown = mask_args(words, written, key or f"commands.{tool}.command")
    # `--token {token}` is the caller's to fill in.
    return [
        text if text != told and ARGUMENT_PLACEHOLDER.search(text) else told
        for text, told in zip(words, shown, strict=True)
    ]


def mask_args(
    args: Sequence[str], written: Mapping[str, str], key_prefix: str = "args"
) -> list[str]:
    """Arguments; the one after `--token`, `-e` or `-H` is judged by that."""
    shown: list[str] = []
    before = ""
    for index, arg in enumerate(args):
        key = f"{key_prefix}.{index}"
        text = written.get(key, arg)
        name, sign, _ = text.partition("=")
        is_flag = text.startswith("-")
        if before in ENV_FLAGS and sign:
            shown.append(
                f"{name}={MASK if not ONLY_PLACEHOLDERS.fullmatch(text[len(name) + 1 :]) else text[len(name) + 1 :]}"
            )
        elif before in HEADER_FLAGS and ":" in text:
            shown.append(
                f"{text.partition(':')[0]}: {MASK}" if key not in written else mask_text(text)
            )
        elif (
            before.startswith("-")
            and "=" not in before
            and SECRET_NAME.search(before)
            and not is_flag
        ):
            shown.append(mask_secret(key, written))
        else:
            shown.append(mask_text(text))
        before = text
    return shown


def mask_text(text: str) -> str:
    """A text with everything that looks like a secret masked, placeholders kept."""
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
    """`${VAR:-default}`, the default masked where the variable's name or its own look says so."""
    name, sign, default = placeholder.partition(":-")
    if not sign:
        return placeholder
    if SECRET_NAME.search(name):
        return f"{name}:-{MASK}}}"
    return f"{name}:-{mask_text(default)}"
