"""Configuration of one server: how it is reached, and its fingerprint."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args
from urllib.parse import urlsplit

from pydantic import ValidationInfo, field_validator, model_validator

from portico.config.command_tool import CommandTool
from portico.config.containment import ContainmentConfig
from portico.config.section import Section, internal, list_names, setting
from portico.config.server_auth import ServerAuth
from portico.config.server_rules import (
    CacheConfig,
    HealthConfig,
    PromptRules,
    ResourceRules,
    RestartConfig,
    RetryConfig,
    ServerLimits,
    Timeouts,
    ToolRules,
)

Trust = Literal["first", "ask", "always"]
"""Whether what a server says of itself is held back: what changes after the first listing, what
nobody has looked at, or nothing."""
BackendKind = Literal["stdio", "http", "sse", "openapi", "commands", "functions", "recorded"]
TARGETS: Mapping[str, tuple[str, ...]] = {
    "command": ("stdio",),
    "url": ("http", "sse"),
    "openapi": ("openapi",),
    "commands": ("commands",),
    "functions": ("functions",),
    "recorded": ("recorded",),
}
KIND_SPELLINGS: Mapping[str, BackendKind] = {
    **{kind: kind for kind in get_args(BackendKind)},
    "local": "stdio",
    "streamablehttp": "http",
    "httpstream": "http",
    "remote": "http",
}
"""Values clients write for `type`, in lower case and without `-`, `_` and spaces."""


STATEFUL_PACKAGES = frozenset(
    {
        "@executeautomation/playwright-mcp-server",
        "@mobilenext/mobile-mcp",
        "@modelcontextprotocol/server-puppeteer",
        "@modelcontextprotocol/server-sequential-thinking",
        "@playwright/mcp",
        "chrome-devtools-mcp",
        "mcp-server-playwright",
        "mcp/playwright",
        "mcp/puppeteer",
        "mcp/sequentialthinking",
    }
)
"""Packages and images of servers that keep a state between calls: a page, a chain of thoughts."""
_VERSION = re.compile(r"(?<=.)[@:][^/@:]*$")


class BackendConfig(Section):
    """One server behind the gateway."""

    problem: str | None = internal(None, "Why the server cannot be used; None when it can.")

    type: BackendKind = setting(
        "stdio",
        "How it is reached. Inferred: `command` is stdio, `url` is http (sse where the path"
        " ends in /sse), the others are named after their own key. Clients' spellings"
        " (`streamable-http`, `local` …) are understood.",
    )
    title: str = setting("", "Display name; the key as written where that had to be changed.")
    description: str = setting("", "What the server is for, in a sentence; improves search.")
    category: str = setting("", "Category of its tools; else derived from its tags or texts.")
    tags: tuple[str, ...] = setting(
        (), "Search words; the first that names a category is the category of its tools."
    )
    disabled: bool = setting(False, "Keep the entry, ignore the server.")

    command: str | None = setting(None, "stdio: the program to run, without a shell.")
    args: tuple[str, ...] = setting((), "stdio: its arguments.", repr=False)
    env: dict[str, str] = setting(
        {},
        "stdio, commands: its environment variables. A key without a value passes the"
        " gateway's own.",
        repr=False,
    )
    env_file: str | None = setting(
        None, "stdio, commands: a file of KEY=VALUE lines; `env` wins over it."
    )
    inherit_env: tuple[str, ...] = setting(
        (),
        "stdio, commands: variables of the gateway passed on to it beside the default ones: names,"
        " patterns (`AWS_*`) or `all`. Those of the root key `inherit_env` are added.",
    )
    cwd: str | None = setting(
        None,
        "stdio, commands: its working directory; functions: the import directory. Relative to"
        " the file.",
    )

    contain: ContainmentConfig | bool | None = setting(
        None,
        "stdio: contain it (Linux): `true`, or what it may reach beside programs, a home of its own"
        " and what this entry names. Never started uncontained. Not given: as `contain` of the"
        " gateway.",
    )

    url: str | None = setting(None, "http, sse: the endpoint.", repr=False)
    headers: dict[str, str] = setting(
        {}, "http, sse, openapi: headers sent with every request.", repr=False
    )

    auth: ServerAuth | None = setting(
        None,
        "http, sse: how Portico signs in: `oauth`, or the settings below. Not given: found out"
        " from what the server answers.",
    )

    openapi: str | None = setting(
        None, "openapi: a description of an HTTP API, URL or file; its operations are the tools."
    )
    base_url: str | None = setting(
        None, "openapi: base URL of the API, if not the one in its description.", repr=False
    )
    query: dict[str, str] = setting(
        {}, "openapi: query parameters sent with every request.", repr=False
    )

    commands: dict[str, CommandTool] = setting(
        {}, "commands: command-line programs as tools, by tool name."
    )

    functions: str | None = setting(
        None,
        "functions: `package.module:attribute`, a module, mapping or list of Python callables.",
    )
    recorded: Path | None = setting(
        None,
        "recorded: a listing on disk, .json or one line of a .jsonl(.gz) (`file.jsonl.gz#slug`).",
    )
    recorded_slug: str | None = setting(None, "recorded: the `slug` of this server's line.")

    tools: ToolRules = setting(ToolRules(), "Which of its tools are exposed, and renames.")
    resources: ResourceRules = setting(ResourceRules(), "Which of its resources are exposed.")
    prompts: PromptRules = setting(PromptRules(), "Which of its prompts are exposed.")
    trust: Trust | None = setting(
        None,
        "As `trust` of the gateway, for this server. Not given: the gateway's, and `always` for"
        " what this configuration defines itself (`commands`, `functions`, `recorded`).",
    )
    client_meta: tuple[str, ...] = setting(
        (),
        "Globs of keys in a client's `_meta` that are passed on beside those the protocol"
        " defines for servers (progress, trace, log level, capabilities, related task); never"
        " the client's identity.",
    )
    timeouts: Timeouts = setting(Timeouts(), "Its timeouts.")
    cache: CacheConfig = setting(CacheConfig(), "Caching of its results.")
    limits: ServerLimits = setting(ServerLimits(), "Its concurrency and rate limits.")
    retry: RetryConfig = setting(RetryConfig(), "Retries of calls whose connection was lost.")
    health: HealthConfig = setting(HealthConfig(), "Its health checks.")
    restart: RestartConfig = setting(RestartConfig(), "Restarts after failures.")
    start: Literal["lazy", "boot"] = setting(
        "lazy", "Start it on its first call, or with the gateway."
    )
    idle_s: float = setting(
        900,
        "Seconds without a call after which it is stopped, each instance separately; 0 keeps"
        " it running.",
        ge=0,
    )
    ttl_s: float = setting(3600, "Seconds after which a listing is refreshed.", ge=0)
    isolation: Literal["auto", "shared", "session"] = setting(
        "auto",
        "One connection for all clients, or an instance for each: by its session, its stdio"
        " connection, or the state handle in its first answer. `auto`: an instance for each of a"
        " command that is known to keep a state (browsers, sequential thinking).",
    )
    max_instances: int = setting(
        64,
        "With an instance for each client: how many at most; beyond it the least recently used"
        " is stopped.",
        ge=1,
    )
    protocol: Literal["auto", "legacy", "modern"] = setting(
        "auto", "Protocol era: detected, the initialize handshake, or 2026-07-28."
    )
    roots: tuple[str, ...] = setting(
        (), "Folders (paths, file:// URIs) sent to a server that asks for roots."
    )

    written: dict[str, str] = internal(
        {}, "Dotted key → text as it was written, for values that came from expansion."
    )

    @model_validator(mode="before")
    @classmethod
    def _infer_type(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        values = dict(cast("Mapping[str, Any]", data))
        if (
            isinstance(values.get("recorded"), str)
            and "#" in values["recorded"]
            and not values.get("recorded_slug")
        ):
            values["recorded"], _, values["recorded_slug"] = values["recorded"].rpartition("#")
        if values.get("type") is not None:
            values["type"] = parse_kind(values["type"]) or values["type"]
        else:
            values["type"] = next(
                (kinds[0] for key, kinds in TARGETS.items() if values.get(key)), "stdio"
            )
            if values["type"] == "http" and urlsplit(str(values["url"])).path.rstrip("/").endswith(
                "/sse"
            ):
                values["type"] = "sse"
        return values

    @field_validator("auth", mode="before")
    @classmethod
    def _read_auth(cls, value: Any) -> Any:
        return {} if value == "oauth" else value

    @field_validator("inherit_env", mode="before")
    @classmethod
    def _list_inherited(cls, value: Any) -> Any:
        return list_names(value)

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        # A server with a problem is kept to be shown; its URL may be an unfilled placeholder.
        if (
            value is not None
            and info.data.get("problem") is None
            and not re.match(r"https?://[^/\s]", value)
        ):
            raise ValueError("a url starts with http:// or https:// and names a host")
        return value

    @model_validator(mode="after")
    def _check_single_target(self) -> Self:
        targets = [key for key in TARGETS if getattr(self, key)]
        if self.problem is not None:
            return self
        if not targets:
            raise ValueError(f"say how to reach it: one of {', '.join(TARGETS)}")
        if len(targets) > 1:
            raise ValueError(f"{' and '.join(targets)} are both given: keep one")
        if self.type not in TARGETS[targets[0]]:
            wanted = next(key for key, kinds in TARGETS.items() if self.type in kinds)
            raise ValueError(f"type {self.type} needs `{wanted}`, not `{targets[0]}`")
        if self.auth is not None and self.type not in ("http", "sse"):
            raise ValueError("auth is for servers with a `url`")
        if self.contain not in (None, False) and self.type != "stdio":
            raise ValueError("contain is for servers with a `command`")
        return self

    @property
    def kind(self) -> BackendKind:
        """Kind of backend."""
        return self.type

    def add_inherited(self, names: tuple[str, ...]) -> Self:
        """Return it with the gateway's `inherit_env` added, if it is started as a process."""
        added = tuple(name for name in names if name not in self.inherit_env)
        if not added or self.type not in ("stdio", "commands"):
            return self
        return self.model_copy(update={"inherit_env": (*self.inherit_env, *added)})

    def add_containment(self, default: ContainmentConfig | bool) -> Self:
        """Return it contained as the gateway's `contain` says, if it says nothing itself."""
        if default is False or self.contain is not None or self.type != "stdio":
            return self
        return self.model_copy(update={"contain": default})

    @property
    def containment(self) -> ContainmentConfig | None:
        """How it is contained; None where it is not."""
        if self.contain is True:
            return ContainmentConfig()
        return self.contain or None

    @property
    def is_isolated(self) -> bool:
        """Whether each client gets an instance of its own."""
        words = (self.command or "", *self.args) if self.isolation == "auto" else ()
        return self.isolation == "session" or any(
            _VERSION.sub("", word) in STATEFUL_PACKAGES or Path(word).name in STATEFUL_PACKAGES
            for word in words
        )

    def get_trust(self, default: Trust) -> Trust:
        """Return what of it is held back; `default` is the gateway's setting."""
        if self.trust is not None:
            return self.trust
        if self.type in ("commands", "functions", "recorded"):
            return "always"
        return default

    @property
    def is_personal(self) -> bool:
        """Whether each person uses an own account there."""
        return self.auth is not None and (self.auth.per_user or self.auth.is_exchanged)

    @property
    def is_usable(self) -> bool:
        """Whether it may be started: neither disabled nor faulty."""
        return not self.disabled and self.problem is None


def parse_kind(text: object) -> BackendKind | None:
    """Return the kind that a client means by its `type`."""
    if isinstance(text, str):
        return KIND_SPELLINGS.get(re.sub(r"[-_ ]", "", text).lower())
    return None


def compute_fingerprint(backend: BackendConfig) -> str:
    """Identify what decides which tools a server offers; the key of its manifest.

    Header and query values are left out (a renewed token is the same server); recordings and API
    descriptions are identified by file time and size.
    """
    parts: dict[str, Any] = {
        key: getattr(backend, key)
        for key in ("type", "command", "args", "cwd", "url", "openapi", "base_url", "functions")
    }
    parts["recorded_slug"] = backend.recorded_slug
    parts["commands"] = {
        name: tool.model_dump(mode="json") for name, tool in backend.commands.items()
    }
    parts["env"] = {
        name: hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        for name, value in backend.env.items()
    }
    parts["inherit_env"] = sorted(backend.inherit_env)
    parts["headers"] = sorted(name.lower() for name in backend.headers)
    parts["query"] = sorted(backend.query)
    if backend.recorded is not None:
        parts["recorded"] = _get_file_stamp(backend.recorded)
    if backend.openapi is not None and "://" not in backend.openapi:
        parts["openapi"] = _get_file_stamp(Path(backend.openapi))
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _get_file_stamp(path: Path) -> list[Any]:
    try:
        found = path.stat()
    except OSError:
        return [str(path)]
    return [str(path), found.st_mtime_ns, found.st_size]
