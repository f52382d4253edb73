"""Configuration of one server: how it is reached, which tools are kept, timeouts and limits."""

import hashlib
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args
from urllib.parse import urlsplit

from pydantic import ByteSize, Field, ValidationInfo, field_validator, model_validator

from portico.config.command_tool import CommandTool
from portico.config.section import Section, mark_internal

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


class ToolRules(Section):
    """Which of a server's tools are exposed, and under which names."""

    allow: tuple[str, ...] = Field(
        default=("*",), description="Globs of tool names to keep; the default keeps all."
    )
    deny: tuple[str, ...] = Field(
        default=(), description="Globs of tool names to drop; wins over `allow`."
    )
    rename: dict[str, str] = Field(
        default={}, description="The server's own tool name → the name exposed by the gateway."
    )
    destructive: tuple[str, ...] = Field(
        default=(),
        description="Globs of tool names that need approval in a workflow, beside those annotated"
        " as destructive.",
    )
    categories: dict[str, str] = Field(
        default={},
        description="Globs of tool names → the category of those tools; the first match counts.",
    )

    @field_validator("rename")
    @classmethod
    def _check_new_names(cls, value: dict[str, str]) -> dict[str, str]:
        taken: dict[str, str] = {}
        for old, new in value.items():
            if not re.fullmatch(r"[A-Za-z0-9_./-]{1,128}", new):
                raise ValueError(f"{new!r} is no tool name: use 1 to 128 of A-Z a-z 0-9 _ . / -")
            if new in taken:
                raise ValueError(f"{taken[new]!r} and {old!r} would both be named {new!r}")
            taken[new] = old
        return value

    def get_exposed_name(self, upstream_name: str) -> str:
        """Return the exposed name of a tool."""
        return self.rename.get(upstream_name, upstream_name)

    def permits(self, upstream_name: str) -> bool:
        """Return whether a tool is exposed. Globs match its own and its exposed name."""
        names = {upstream_name, self.get_exposed_name(upstream_name)}
        return any(fnmatchcase(name, glob) for glob in self.allow for name in names) and not any(
            fnmatchcase(name, glob) for glob in self.deny for name in names
        )


class PromptRules(Section):
    """Which of a server's prompts are exposed."""

    allow: tuple[str, ...] | None = Field(
        default=None,
        description="Globs to keep. Not given: all, or none where `tools` leaves some out.",
    )
    deny: tuple[str, ...] = Field(default=(), description="Globs to drop; wins over `allow`.")


class ResourceRules(PromptRules):
    """Which resources and resource templates are exposed; globs match the server's URIs."""

    unlisted: bool = Field(
        default=False,
        description="Pass on URIs that it neither lists nor has a listed template for. Links in its"
        " tools' results can be read by the client that received them in any case.",
    )


class CacheConfig(Section):
    """Caching of a server's tool results; cached results are marked as such."""

    ttl_s: float = Field(
        default=0, ge=0, description="Seconds, for tools annotated as read-only; 0 disables it."
    )
    tools: dict[str, float] = Field(
        default={},
        description="Globs of tool names → seconds; the first match counts, whatever the"
        " annotations.",
    )


class Timeouts(Section):
    """Timeouts of one server, in seconds."""

    start_s: float = Field(
        default=30, gt=0, description="Time to start the server and complete its handshake."
    )
    call_s: float = Field(
        default=120, gt=0, description="Time for a call; `limits.call_s` is the upper limit."
    )
    list_s: float = Field(
        default=30, gt=0, description="Time for a listing (tools, resources, prompts)."
    )


class ServerLimits(Section):
    """Concurrency and rate limits of one server; calls beyond them are queued in order."""

    concurrency: int = Field(
        default=64, ge=0, description="Maximum number of concurrent calls; 0 is unlimited."
    )
    rate_per_s: float = Field(
        default=0, ge=0, description="Maximum number of calls started per second; 0 is unlimited."
    )
    burst: int = Field(
        default=1,
        ge=1,
        description="Calls that may start at once after a pause, with `rate_per_s`.",
    )
    queue: int = Field(
        default=1_000,
        ge=0,
        description="Maximum number of queued calls; more are rejected. Queueing is call time.",
    )


class RetryConfig(Section):
    """Retries of calls whose connection to the server was lost."""

    times: int = Field(
        default=1,
        ge=0,
        le=5,
        description="Number of retries for tools annotated as read-only or idempotent; 0 is none.",
    )
    tools: tuple[str, ...] = Field(
        default=(), description="Globs of tool names that are safe to retry too."
    )


class HealthConfig(Section):
    """Health checks of a running server."""

    every_s: float = Field(
        default=30,
        ge=0,
        description="Seconds between health checks while nothing else is received; 0 disables"
        " them.",
    )
    timeout_s: float = Field(default=10, gt=0, description="Seconds to answer a health check.")
    failures: int = Field(
        default=3,
        ge=1,
        description="Failed health checks in a row after which it is restarted.",
    )


class RestartConfig(Section):
    """Restarts of a server that fails: with increasing delays, then quarantine."""

    pause_s: float = Field(
        default=1, gt=0, description="Delay after the first failure; it doubles with each."
    )
    longest_s: float = Field(default=60, gt=0, description="Maximum delay.")
    tries: int = Field(
        default=5,
        ge=1,
        description="Failures of a command within `window_s` after which it is quarantined.",
    )
    window_s: float = Field(default=600, gt=0, description="Seconds over which failures count.")
    quarantine_s: float = Field(
        default=1_800,
        ge=0,
        description="Seconds in quarantine before one more attempt; 0 is until `portico restart`,"
        " or a change of its configuration, which end it at once.",
    )
    memory: ByteSize = Field(
        default=ByteSize(4 * 1024**3),
        ge=0,
        description="Memory of a command and its children above which it is restarted; 0 is"
        " unlimited.",
    )
    drain_s: float = Field(
        default=30,
        ge=0,
        description="Seconds that running calls may still take when it is replaced.",
    )


class BackendConfig(Section):
    """One server behind the gateway."""

    problem: str | None = Field(
        default=None, **mark_internal("Why the server cannot be used; None when it can.")
    )

    type: BackendKind = Field(
        default="stdio",
        description="How it is reached. Inferred: `command` is stdio, `url` is http (sse where the"
        " path ends in /sse), the others are named after their own key. Clients' spellings"
        " (`streamable-http`, `local` …) are understood.",
    )
    title: str = Field(
        default="",
        description="Display name; the key as written where that had to be changed.",
    )
    description: str = Field(
        default="", description="What the server is for, in a sentence; improves search."
    )
    category: str = Field(
        default="", description="Category of its tools; else derived from its tags or texts."
    )
    tags: tuple[str, ...] = Field(
        default=(),
        description="Search words; the first that names a category is the category of its tools.",
    )
    disabled: bool = Field(default=False, description="Keep the entry, ignore the server.")

    command: str | None = Field(
        default=None, description="stdio: the program to run, without a shell."
    )
    args: tuple[str, ...] = Field(default=(), description="stdio: its arguments.", repr=False)
    env: dict[str, str] = Field(
        default={},
        description="stdio, commands: its environment variables. A key without a value passes the"
        " gateway's own.",
        repr=False,
    )
    env_file: str | None = Field(
        default=None, description="stdio, commands: a file of KEY=VALUE lines; `env` wins over it."
    )
    inherit_env: tuple[str, ...] = Field(
        default=(), description="stdio, commands: inherited variables beside the harmless ones."
    )
    cwd: str | None = Field(
        default=None,
        description="stdio, commands: its working directory; functions: the import directory."
        " Relative to the file.",
    )

    url: str | None = Field(default=None, description="http, sse: the endpoint.", repr=False)
    headers: dict[str, str] = Field(
        default={}, description="http, sse, openapi: headers sent with every request.", repr=False
    )

    openapi: str | None = Field(
        default=None,
        description="openapi: a description of an HTTP API, URL or file; its operations are the"
        " tools.",
    )
    base_url: str | None = Field(
        default=None,
        description="openapi: base URL of the API, if not the one in its description.",
        repr=False,
    )
    query: dict[str, str] = Field(
        default={},
        description="openapi: query parameters sent with every request.",
        repr=False,
    )

    commands: dict[str, CommandTool] = Field(
        default={}, description="commands: command-line programs as tools, by tool name."
    )

    functions: str | None = Field(
        default=None,
        description="functions: `package.module:attribute`, a module, mapping or list of Python"
        " callables.",
    )
    recorded: Path | None = Field(
        default=None,
        description="recorded: a listing on disk, .json or one line of a .jsonl(.gz)"
        " (`file.jsonl.gz#slug`).",
    )
    recorded_slug: str | None = Field(
        default=None, description="recorded: the `slug` of this server's line."
    )

    tools: ToolRules = Field(
        default=ToolRules(), description="Which of its tools are exposed, and renames."
    )
    resources: ResourceRules = Field(
        default=ResourceRules(), description="Which of its resources are exposed."
    )
    prompts: PromptRules = Field(
        default=PromptRules(), description="Which of its prompts are exposed."
    )
    client_meta: tuple[str, ...] = Field(
        default=(),
        description="Globs of keys in a client's `_meta` that are passed on beside those the"
        " protocol defines for servers (progress, trace, log level, capabilities, related task);"
        " never the client's identity.",
    )
    timeouts: Timeouts = Field(default=Timeouts(), description="Its timeouts.")
    cache: CacheConfig = Field(default=CacheConfig(), description="Caching of its results.")
    limits: ServerLimits = Field(
        default=ServerLimits(), description="Its concurrency and rate limits."
    )
    retry: RetryConfig = Field(
        default=RetryConfig(), description="Retries of calls whose connection was lost."
    )
    health: HealthConfig = Field(default=HealthConfig(), description="Its health checks.")
    restart: RestartConfig = Field(default=RestartConfig(), description="Restarts after failures.")
    start: Literal["lazy", "boot"] = Field(
        default="lazy", description="Start it on its first call, or with the gateway."
    )
    idle_s: float = Field(
        default=900,
        ge=0,
        description="Seconds without a call after which it is stopped, each instance separately; 0"
        " keeps it running.",
    )
    ttl_s: float = Field(
        default=3600,
        ge=0,
        description="Seconds after which a listing is refreshed.",
    )
    isolation: Literal["shared", "session"] = Field(
        default="shared",
        description="One connection for all clients, or an instance for each: by its session, its"
        " stdio connection, or the state handle in its first answer.",
    )
    max_instances: int = Field(
        default=64,
        ge=1,
        description="With `isolation: session`: maximum number of instances; beyond it the least"
        " recently used is stopped.",
    )
    protocol: Literal["auto", "legacy", "modern"] = Field(
        default="auto",
        description="Protocol era: detected, the initialize handshake, or 2026-07-28.",
    )
    roots: tuple[str, ...] = Field(
        default=(),
        description="Folders (paths, file:// URIs) sent to a server that asks for roots.",
    )

    written: dict[str, str] = Field(
        default={},
        **mark_internal(
            "Dotted key → text as it was written, for values that came from expansion."
        ),
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
        return self

    @property
    def kind(self) -> BackendKind:
        """Kind of backend."""
        return self.type

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
        for key in (
            "type",
            "command",
            "args",
            "cwd",
            "url",
            "openapi",
            "base_url",
            "functions",
            "recorded_slug",
        )
    }
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
