"""One server behind the gateway: how it is reached, which of its tools are kept, how long it is
waited for."""

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
"""What clients write for `type`, lower case and without `-`, `_` and spaces."""


class ToolRules(Section):
    """Which of a server's tools exist here, and under which names."""

    allow: tuple[str, ...] = Field(
        default=("*",), description="Globs of tool names to keep; the default keeps all."
    )
    deny: tuple[str, ...] = Field(
        default=(), description="Globs of tool names to drop; wins over `allow`."
    )
    rename: dict[str, str] = Field(
        default={}, description="The server's own tool name → the name it has here."
    )
    destructive: tuple[str, ...] = Field(
        default=(),
        description="Globs of tool names that a workflow asks about first, beside those that call themselves so.",
    )
    categories: dict[str, str] = Field(
        default={},
        description="Globs of tool names → the category those tools are in; the first that matches counts.",
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
        """The name a tool has here."""
        return self.rename.get(upstream_name, upstream_name)

    def permits(self, upstream_name: str) -> bool:
        """Whether a tool exists here. Globs match the server's own name as well as the new one."""
        names = {upstream_name, self.get_exposed_name(upstream_name)}
        return any(fnmatchcase(name, glob) for glob in self.allow for name in names) and not any(
            fnmatchcase(name, glob) for glob in self.deny for name in names
        )


class PromptRules(Section):
    """Which of a server's prompts exist here."""

    allow: tuple[str, ...] | None = Field(
        default=None,
        description="Globs of those to keep. Not given: all, or none where `tools` leaves some out.",
    )
    deny: tuple[str, ...] = Field(
        default=(), description="Globs of those to drop; wins over `allow`."
    )


class ResourceRules(PromptRules):
    """Which of a server's resources and resource templates exist here; globs are of the server's
    own URIs."""

    unlisted: bool = Field(
        default=False,
        description="Pass on addresses that it neither lists nor has a listed template for. Links in its tools' "
        "results can be read by who got them in any case.",
    )


class CacheConfig(Section):
    """How long answers of a server's tools are kept and given again, marked as such."""

    ttl_s: float = Field(
        default=0, ge=0, description="Seconds, for tools that say they are read-only; 0 keeps none."
    )
    tools: dict[str, float] = Field(
        default={},
        description="Globs of tool names → seconds; the first that matches counts, whatever the tool says.",
    )


class Timeouts(Section):
    """How long one server is waited for, in seconds."""

    start_s: float = Field(
        default=30, gt=0, description="Until the server has been started and has introduced itself."
    )
    call_s: float = Field(
        default=120, gt=0, description="Until a call is answered; `limits.call_s` is the most."
    )
    list_s: float = Field(
        default=30, gt=0, description="Until a listing (tools, resources, prompts) is answered."
    )


class ServerLimits(Section):
    """How much one server is asked to do at once; whoever is too many waits, first come, first
    served."""

    concurrency: int = Field(
        default=64, ge=0, description="Calls at the same time; 0 is any number."
    )
    rate_per_s: float = Field(
        default=0, ge=0, description="Calls that begin in a second; 0 is any number."
    )
    burst: int = Field(
        default=1,
        ge=1,
        description="Calls that may begin at once after a pause, with `rate_per_s`.",
    )
    queue: int = Field(
        default=1_000,
        ge=0,
        description="Calls that may wait; more are turned away at once. Waiting is call time.",
    )


class RetryConfig(Section):
    """Calls that are made again when the conversation with the server was lost."""

    times: int = Field(
        default=1,
        ge=0,
        le=5,
        description="How often, for tools that say they are read-only or idempotent; 0 is never.",
    )
    tools: tuple[str, ...] = Field(
        default=(), description="Globs of tool names that may run twice too, whatever they say."
    )


class HealthConfig(Section):
    """How it is found out that a server which is up no longer answers."""

    every_s: float = Field(
        default=30,
        ge=0,
        description="Ask it so often whether it is there, while nothing else is heard of it; 0 never.",
    )
    timeout_s: float = Field(default=10, gt=0, description="How long it may take to say so.")
    failures: int = Field(
        default=3,
        ge=1,
        description="Questions in a row without an answer after which it is started anew.",
    )


class RestartConfig(Section):
    """What happens to a server that fails: it is tried again, later and later, and then left alone."""

    pause_s: float = Field(
        default=1, gt=0, description="The wait after the first failure; it doubles with each."
    )
    longest_s: float = Field(default=60, gt=0, description="The longest wait.")
    tries: int = Field(
        default=5,
        ge=1,
        description="Failures of a command within `window_s` after which it is put in quarantine.",
    )
    window_s: float = Field(default=600, gt=0, description="The time in which those count.")
    quarantine_s: float = Field(
        default=1_800,
        ge=0,
        description="How long it stays there before one more try; 0 is until `portico restart`, or a change of its "
        "configuration, which end it at once.",
    )
    memory: ByteSize = Field(
        default=ByteSize(4 * 1024**3),
        ge=0,
        description="Memory of a command with its children over which it is started anew; 0 is any amount.",
    )
    drain_s: float = Field(
        default=30,
        ge=0,
        description="How long calls under way may still take when it is replaced by a new one.",
    )


class BackendConfig(Section):
    """One server behind the gateway."""

    problem: str | None = Field(
        default=None, **mark_internal("Why the server cannot be used; None when it can.")
    )

    type: BackendKind = Field(
        default="stdio",
        description="How it is reached. Inferred: `command` is stdio, `url` is http (sse where the path ends in /sse), "
        "the others are named after their own key. Clients' spellings (`streamable-http`, `local` …) are understood.",
    )
    title: str = Field(
        default="",
        description="A name for people; the key as it was written where that had to be changed.",
    )
    description: str = Field(
        default="", description="What the server is for, in a sentence; helps search."
    )
    category: str = Field(
        default="", description="The category its tools are in; else its tags say, or its texts."
    )
    tags: tuple[str, ...] = Field(
        default=(),
        description="Words to find it by; the first that names a category is the one of its tools.",
    )
    disabled: bool = Field(default=False, description="Keep the entry, ignore the server.")

    command: str | None = Field(
        default=None, description="stdio: the program to run. No shell reads it."
    )
    args: tuple[str, ...] = Field(default=(), description="stdio: its arguments.", repr=False)
    env: dict[str, str] = Field(
        default={},
        description="stdio, commands: environment variables it gets. A key without a value passes ours through.",
        repr=False,
    )
    env_file: str | None = Field(
        default=None, description="stdio, commands: a file of KEY=VALUE lines; `env` wins over it."
    )
    inherit_env: tuple[str, ...] = Field(
        default=(), description="stdio, commands: our variables it gets beside the harmless ones."
    )
    cwd: str | None = Field(
        default=None,
        description="stdio, commands: its working directory; functions: where they are imported from. Relative to "
        "the file.",
    )

    url: str | None = Field(default=None, description="http, sse: the endpoint.", repr=False)
    headers: dict[str, str] = Field(
        default={}, description="http, sse, openapi: headers sent with every request.", repr=False
    )

    openapi: str | None = Field(
        default=None,
        description="openapi: a description of an HTTP API, URL or file; its operations are the tools.",
    )
    base_url: str | None = Field(
        default=None,
        description="openapi: where the API is, if not where its description says.",
        repr=False,
    )
    query: dict[str, str] = Field(
        default={},
        description="openapi: parameters sent in the address of every request.",
        repr=False,
    )

    commands: dict[str, CommandTool] = Field(
        default={}, description="commands: command-line programs, each a tool, by the tool's name."
    )

    functions: str | None = Field(
        default=None,
        description="functions: `package.module:attribute`, a module, mapping or list of Python callables.",
    )
    recorded: Path | None = Field(
        default=None,
        description="recorded: a listing on disk, .json or one line of a .jsonl(.gz) (`file.jsonl.gz#slug`).",
    )
    recorded_slug: str | None = Field(
        default=None, description="recorded: the `slug` of the line that is this server."
    )

    tools: ToolRules = Field(
        default=ToolRules(), description="Which of its tools are kept, and renames."
    )
    resources: ResourceRules = Field(
        default=ResourceRules(), description="Which of its resources are kept."
    )
    prompts: PromptRules = Field(
        default=PromptRules(), description="Which of its prompts are kept."
    )
    client_meta: tuple[str, ...] = Field(
        default=(),
        description="Globs of keys in a client's `_meta` that it gets beside those the protocol defines for servers "
        "(progress, trace, log level, capabilities, related task); never who the client is.",
    )
    timeouts: Timeouts = Field(default=Timeouts(), description="How long it is waited for.")
    cache: CacheConfig = Field(default=CacheConfig(), description="How long its answers are kept.")
    limits: ServerLimits = Field(
        default=ServerLimits(), description="How much it is asked to do at once."
    )
    retry: RetryConfig = Field(
        default=RetryConfig(), description="Which calls are made again when it was lost."
    )
    health: HealthConfig = Field(
        default=HealthConfig(), description="How it is found out that it no longer answers."
    )
    restart: RestartConfig = Field(
        default=RestartConfig(), description="What happens when it fails."
    )
    start: Literal["lazy", "boot"] = Field(
        default="lazy", description="Start it on its first call, or with the gateway."
    )
    idle_s: float = Field(
        default=900,
        ge=0,
        description="Stop it after so many seconds without a call, each instance by itself; 0 keeps it.",
    )
    ttl_s: float = Field(
        default=3600,
        ge=0,
        description="How long a listing is trusted before the server is asked again.",
    )
    isolation: Literal["shared", "session"] = Field(
        default="shared",
        description="One conversation for everybody, or one for each client: by its session, its stdio connection, or "
        "the handle that its first answer says.",
    )
    max_instances: int = Field(
        default=64,
        ge=1,
        description="With `isolation: session`: how many run at most; for one more, the longest unused goes.",
    )
    protocol: Literal["auto", "legacy", "modern"] = Field(
        default="auto",
        description="The protocol era it speaks: found out, the initialize handshake, or 2026-07-28.",
    )
    roots: tuple[str, ...] = Field(
        default=(), description="Folders (paths, file:// URIs) told to a server that asks."
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
        given = dict(cast("Mapping[str, Any]", data))
        if (
            isinstance(given.get("recorded"), str)
            and "#" in given["recorded"]
            and not given.get("recorded_slug")
        ):
            given["recorded"], _, given["recorded_slug"] = given["recorded"].rpartition("#")
        if given.get("type") is not None:
            given["type"] = parse_kind(given["type"]) or given["type"]
        else:
            given["type"] = next(
                (kinds[0] for key, kinds in TARGETS.items() if given.get(key)), "stdio"
            )
            if given["type"] == "http" and urlsplit(str(given["url"])).path.rstrip("/").endswith(
                "/sse"
            ):
                given["type"] = "sse"
        return given

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        # A server with a problem is kept to be shown; its address may be a placeholder that could
        # not be filled in.
        if (
            value is not None
            and info.data.get("problem") is None
            and not re.match(r"https?://[^/\s]", value)
        ):
            raise ValueError("a url starts with http:// or https:// and names a host")
        return value

    @model_validator(mode="after")
    def _check_single_target(self) -> Self:
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
    def kind(self) -> BackendKind:
        """How it is reached."""
        return self.type

    @property
    def is_usable(self) -> bool:
        """Whether it may be started: neither switched off nor broken."""
        return not self.disabled and self.problem is None


def parse_kind(text: object) -> BackendKind | None:
    """The kind a client means by what it wrote for `type`."""
    if isinstance(text, str):
        return KIND_SPELLINGS.get(re.sub(r"[-_ ]", "", text).lower())
    return None


def compute_fingerprint(backend: BackendConfig) -> str:
    """Identity of what decides which tools a server offers; the key of its manifest.

    Header and query values are left out (a renewed token is the same server); a recording and a
    description change with their files.
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
