"""One tree of frozen models: everything that can be configured, each field with its help text.

Knows nothing of files, environments or flags (`config_file` does); a `Config` built in Python is as good as a loaded
one. The key in a file is the field's name.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator

from portico.errors import UnknownName

Kind = Literal["stdio", "http", "sse", "functions", "recorded"]
Exposure = Literal["meta", "full", "code"]
Prefix = Literal["always", "never"]
MetaTool = Literal["search_tools", "browse_tools", "describe_tools", "call_tool"]
Learning = Literal["caller", "shared", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]

META_TOOLS: tuple[str, ...] = get_args(MetaTool)
RESERVED_NAMES = frozenset({"portico"})
LONGEST_NAME = 40
TARGETS: Mapping[str, tuple[str, ...]] = {
    "command": ("stdio",),
    "url": ("http", "sse"),
    "functions": ("functions",),
    "recorded": ("recorded",),
}
KIND_SPELLINGS: Mapping[str, Kind] = {
    **{kind: kind for kind in get_args(Kind)},
    "local": "stdio",
    "streamablehttp": "http",
    "httpstream": "http",
    "remote": "http",
}
"""What clients write for `type`, lower case and without `-`, `_` and spaces."""


class Section(BaseModel):
    """A part of the tree: frozen, closed, and silent about the values it refuses (they may be secrets)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


def internal(description: str) -> dict[str, Any]:
    """Field arguments of what Portico finds out itself and nobody may write in a file."""
    return {"description": description, "repr": False, "json_schema_extra": {"internal": True}}


class ToolRules(Section):
    """Which of a server's tools exist here, and under which names."""

    allow: tuple[str, ...] = Field(default=("*",), description="Globs of tool names to keep; the default keeps all.")
    deny: tuple[str, ...] = Field(default=(), description="Globs of tool names to drop; wins over `allow`.")
    rename: dict[str, str] = Field(default={}, description="The server's own tool name → the name it has here.")

    @field_validator("rename")
    @classmethod
    def _new_names_differ(cls, value: dict[str, str]) -> dict[str, str]:
        taken: dict[str, str] = {}
        for old, new in value.items():
            if not re.fullmatch(r"[A-Za-z0-9_./-]{1,128}", new):
                raise ValueError(f"{new!r} is no tool name: use 1 to 128 of A-Z a-z 0-9 _ . / -")
            if new in taken:
                raise ValueError(f"{taken[new]!r} and {old!r} would both be named {new!r}")
            taken[new] = old
        return value

    def name_of(self, upstream_name: str) -> str:
        """The name a tool has here."""
        return self.rename.get(upstream_name, upstream_name)

    def permits(self, upstream_name: str) -> bool:
        """Whether a tool exists here. Globs match the server's own name as well as the new one."""
        names = {upstream_name, self.name_of(upstream_name)}
        return any(fnmatchcase(name, glob) for glob in self.allow for name in names) and not any(
            fnmatchcase(name, glob) for glob in self.deny for name in names
        )


class Timeouts(Section):
    """How long one server is waited for, in seconds."""

    start_s: float = Field(default=30, gt=0, description="Until the server has been started and has introduced itself.")
    call_s: float = Field(default=120, gt=0, description="Until a call is answered; `limits.call_s` is the most.")
    list_s: float = Field(default=30, gt=0, description="Until a listing (tools, resources, prompts) is answered.")


class BackendConfig(Section):
    """One server behind the gateway."""

    problem: str | None = Field(default=None, **internal("Why the server cannot be used; None when it can."))

    type: Kind = Field(
        default="stdio",
        description="How it is reached. Inferred: `command` is stdio, `url` is http (sse where the path ends in /sse), "
        "`functions` and `recorded` are themselves. Clients' spellings (`streamable-http`, `local` …) are understood.",
    )
    title: str = Field(
        default="", description="A name for people; the key as it was written where that had to be changed."
    )
    description: str = Field(default="", description="What the server is for, in a sentence; helps search.")
    tags: tuple[str, ...] = Field(default=(), description="Categories its tools belong to.")
    disabled: bool = Field(default=False, description="Keep the entry, ignore the server.")

    command: str | None = Field(default=None, description="stdio: the program to run. No shell reads it.")
    args: tuple[str, ...] = Field(default=(), description="stdio: its arguments.", repr=False)
    env: dict[str, str] = Field(
        default={},
        description="stdio: environment variables it gets. A key without a value passes ours through.",
        repr=False,
    )
    env_file: str | None = Field(default=None, description="stdio: a file of KEY=VALUE lines; `env` wins over it.")
    inherit_env: tuple[str, ...] = Field(
        default=(), description="stdio: our variables it gets beside the harmless ones."
    )
    cwd: str | None = Field(
        default=None,
        description="stdio: its working directory; functions: where they are imported from; relative to the file.",
    )

    url: str | None = Field(default=None, description="http, sse: the endpoint.", repr=False)
    headers: dict[str, str] = Field(default={}, description="http, sse: headers sent with every request.", repr=False)

    functions: str | None = Field(
        default=None,
        description="functions: `package.module:attribute`, a module, mapping or list of Python callables.",
    )
    recorded: Path | None = Field(
        default=None,
        description="recorded: a listing on disk, .json or one line of a .jsonl(.gz) (`file.jsonl.gz#slug`).",
    )
    recorded_slug: str | None = Field(default=None, description="recorded: the `slug` of the line that is this server.")

    tools: ToolRules = Field(default=ToolRules(), description="Which of its tools are kept, and renames.")
    timeouts: Timeouts = Field(default=Timeouts(), description="How long it is waited for.")
    start: Literal["lazy", "boot"] = Field(
        default="lazy", description="Start it on its first call, or with the gateway."
    )
    idle_s: float = Field(default=900, ge=0, description="Stop it after so many seconds without a call; 0 keeps it.")
    ttl_s: float = Field(
        default=3600, ge=0, description="How long a listing is trusted before the server is asked again."
    )
    isolation: Literal["shared", "session"] = Field(
        default="shared", description="One conversation for everybody, or one for each client session."
    )
    protocol: Literal["auto", "legacy", "modern"] = Field(
        default="auto", description="The protocol era it speaks: found out, the initialize handshake, or 2026-07-28."
    )
    roots: tuple[str, ...] = Field(default=(), description="Folders (paths, file:// URIs) told to a server that asks.")

    written: dict[str, str] = Field(
        default={}, **internal("Dotted key → text as it was written, for values that came from expansion.")
    )

    @model_validator(mode="before")
    @classmethod
    def _infer(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        given = dict(cast("Mapping[str, Any]", data))
        if isinstance(given.get("recorded"), str) and "#" in given["recorded"] and not given.get("recorded_slug"):
            given["recorded"], _, given["recorded_slug"] = given["recorded"].rpartition("#")
        if given.get("type") is not None:
            given["type"] = spelled_kind(given["type"]) or given["type"]
        else:
            given["type"] = next((kinds[0] for key, kinds in TARGETS.items() if given.get(key)), "stdio")
            if given["type"] == "http" and urlsplit(str(given["url"])).path.rstrip("/").endswith("/sse"):
                given["type"] = "sse"
        return given

    @field_validator("url")
    @classmethod
    def _url_is_http(cls, value: str | None, info: ValidationInfo) -> str | None:
        # A server with a problem is kept to be shown; its address may be a placeholder that could not be filled in.
        if value is not None and info.data.get("problem") is None and not re.match(r"https?://[^/\s]", value):
            raise ValueError("a url starts with http:// or https:// and names a host")
        return value

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        given = [key for key in TARGETS if getattr(self, key)]
        if self.problem is not None:
            return self
        if not given:
            raise ValueError(f"say how to reach it: one of {', '.join(TARGETS)}")
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are both given: keep one")
        if self.type not in TARGETS[given[0]]:
            wanted = next(key for key, kinds in TARGETS.items() if self.type in kinds)
            raise ValueError(f"type {self.type} needs `{wanted}`, not `{given[0]}`")
        return self

    @property
    def kind(self) -> Kind:
        """How it is reached."""
        return self.type

    @property
    def usable(self) -> bool:
        """Whether it may be started: neither switched off nor broken."""
        return not self.disabled and self.problem is None


def spelled_kind(text: object) -> Kind | None:
    """The kind a client means by what it wrote for `type`."""
    return KIND_SPELLINGS.get(re.sub(r"[-_ ]", "", text).lower()) if isinstance(text, str) else None


class Gateway(Section):
    """The HTTP door."""

    host: str = Field(default="127.0.0.1", description="Address to listen on; any other than loopback needs a token.")
    port: int = Field(default=8420, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    token: SecretStr | None = Field(default=None, description="Bearer token that clients must send.")
    allowed_hosts: tuple[str, ...] = Field(default=(), description="Host headers accepted beside the loopback names.")
    allowed_origins: tuple[str, ...] = Field(
        default=(), description="Origins of web pages that may connect beside our own."
    )


class Budgets(Section):
    """How many tokens an answer may have."""

    discovery: int = Field(default=2000, ge=100, description="Answers of search, browse and describe.")


class ProfileBudgets(Section):
    """Budgets of one profile; what is not given is the gateway's."""

    discovery: int | None = Field(default=None, ge=100, description="Answers of search, browse and describe.")


class Limits(Section):
    """What nobody may exceed."""

    start_concurrency: int = Field(
        default=4,
        ge=1,
        description="Servers started together that nobody has called; one counts for its first 5 seconds.",
    )
    call_s: float = Field(
        default=600, gt=0, description="Longest call in seconds, whatever a server's own `timeouts` say."
    )
    max_request_bytes: ByteSize = Field(
        default=ByteSize(4 * 1024**2),
        gt=0,
        description="Largest request a client may send; a number or text like 4MiB.",
    )
    max_message_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024**2),
        gt=0,
        description="Largest message a server may send; a number or text like 64MiB.",
    )


class LearningConfig(Section):
    """What search learns from use; `learning: off` is short for `learning: {scope: off}`."""

    scope: Learning = Field(
        default="caller",
        description="Who learns together: each client by its name (and profile), all clients (`shared`), or nobody "
        "(`off`: nothing is recorded). No text of a query is kept, only hashes of its words and its vector.",
    )
    half_life_days: float = Field(default=30, gt=0, description="After so many days, what was learnt counts half.")
    max_followed: int = Field(
        default=2_000, ge=1, description="Searches and the tools called after them that each scope remembers."
    )
    max_together: int = Field(
        default=5_000, ge=1, description="Pairs of tools used together that each scope remembers."
    )

    @model_validator(mode="before")
    @classmethod
    def _a_scope_alone_will_do(cls, data: Any) -> Any:
        return {"scope": data} if isinstance(data, str | bool) else data

    @field_validator("scope", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        # YAML reads a bare `off` as false, and `on` as true.
        return {False: "off", True: "caller"}[value] if isinstance(value, bool) else value


class Profile(Section):
    """A named way in, at /mcp/p/{name} and `portico stdio --profile`; what is not given is the gateway's."""

    exposure: Exposure | None = Field(default=None, description="What its clients see.")
    servers: tuple[str, ...] = Field(default=("*",), description="Globs of the servers it contains.")
    tools: tuple[str, ...] = Field(
        default=("*",), description="Globs of the tool addresses (`server.tool`) it contains."
    )
    budgets: ProfileBudgets = Field(default=ProfileBudgets(), description="Its token budgets.")
    metatools: dict[MetaTool, bool] = Field(default={}, description="Its meta-tool switches.")


@dataclass(frozen=True, slots=True)
class View:
    """A profile with nothing left open: what a client that came by it may see."""

    profile: str | None
    exposure: Exposure
    servers: tuple[str, ...]
    tools: tuple[str, ...]
    discovery_budget: int
    metatools: frozenset[str]
    """Names of the meta-tools that are switched on."""


def default_data_dir() -> Path:
    """Where this user's data belongs on this platform."""
    import platformdirs  # costs milliseconds, and only matters where nobody chose a folder

    return Path(platformdirs.user_data_dir("portico", appauthor=False))


class Config(Section):
    """Everything."""

    servers: dict[str, BackendConfig] = Field(default={}, description="The servers behind the gateway, by name.")
    gateway: Gateway = Field(default=Gateway(), description="The HTTP door.")
    exposure: Exposure = Field(
        default="meta", description="What clients see: the meta-tools, every tool, or only search and describe."
    )
    prefix: Prefix = Field(
        default="always",
        description="Names in `full`: `always` server__tool; `never` leaves those of a single server as they are.",
    )
    metatools: dict[MetaTool, bool] = Field(
        default={}, description="Switches: `call_tool: false` takes that meta-tool away."
    )
    profiles: dict[str, Profile] = Field(default={}, description="Named ways in, by name.")
    budgets: Budgets = Field(default=Budgets(), description="Token budgets of answers.")
    limits: Limits = Field(default=Limits(), description="What nobody may exceed.")
    learning: LearningConfig = Field(default=LearningConfig(), description="What search learns from use.")
    pins: tuple[str, ...] = Field(default=(), description="Addresses (`server.tool`) of tools to start with.")
    data_dir: Path = Field(
        default_factory=default_data_dir, description="Folder for what Portico remembers of its servers."
    )
    log_level: LogLevel = Field(default="warning", description="Least serious messages that are logged (to stderr).")
    written: dict[str, str] = Field(default={}, **internal("As in a server, for keys outside servers."))

    @field_validator("log_level", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return {"warn": "warning"}.get(value.lower(), value.lower()) if isinstance(value, str) else value

    @field_validator("profiles")
    @classmethod
    def _profile_names_fit_a_url(cls, value: dict[str, Profile]) -> dict[str, Profile]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
                raise ValueError(f"{name!r} cannot be part of a URL: use 1 to 64 of A-Z a-z 0-9 _ -")
        return value

    @field_validator("servers")
    @classmethod
    def _server_names_are_keys(cls, value: dict[str, BackendConfig]) -> dict[str, BackendConfig]:
        for name in value:
            if not re.fullmatch(f"[A-Za-z0-9_-]{{1,{LONGEST_NAME}}}", name) or name in RESERVED_NAMES:
                raise ValueError(
                    f"{name!r} is no server name: use up to {LONGEST_NAME} of A-Z a-z 0-9 _ -, not portico"
                )
        return value

    def view(self, profile: str | None = None) -> View:
        """What a client sees that came by `profile` (None: by the front door)."""
        if profile is not None and profile not in self.profiles:
            raise UnknownName(
                f"There is no profile {profile!r}.",
                nearest=tuple(self.profiles),
                advice=f"Profiles: {', '.join(self.profiles) or 'none is configured'}.",
            )
        own = self.profiles[profile] if profile is not None else Profile()
        switches: dict[str, bool] = {**self.metatools, **own.metatools}
        return View(
            profile,
            own.exposure or self.exposure,
            own.servers,
            own.tools,
            own.budgets.discovery or self.budgets.discovery,
            frozenset(name for name in META_TOOLS if switches.get(name, True)),
        )


def fingerprint(backend: BackendConfig) -> str:
    """Identity of what decides which tools a server offers; the key of its manifest.

    Header values are left out (a renewed token is the same server); a recording changes with its file.
    """
    parts: dict[str, Any] = {
        key: getattr(backend, key) for key in ("type", "command", "args", "cwd", "url", "functions", "recorded_slug")
    }
    parts["env"] = {
        name: hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        for name, value in backend.env.items()
    }
    parts["inherit_env"] = sorted(backend.inherit_env)
    parts["headers"] = sorted(name.lower() for name in backend.headers)
    if backend.recorded is not None:
        parts["recorded"] = [str(backend.recorded)]
        try:
            found = backend.recorded.stat()
            parts["recorded"] += [found.st_mtime_ns, found.st_size]
        except OSError:
            pass
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()
