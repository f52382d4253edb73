"""Rules of one server: what is exposed of it, caching, timeouts, limits, retries and restarts."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

from pydantic import ByteSize, field_validator

from portico.config.section import Section, setting
from portico.config.tool_overrides import ToolOverride, merge_overrides

Value = TypeVar("Value")


class ToolRules(Section):
    """Which of a server's tools are exposed, and under which names."""

    allow: tuple[str, ...] = setting(("*",), "Globs of tool names to keep; the default keeps all.")
    deny: tuple[str, ...] = setting((), "Globs of tool names to drop; wins over `allow`.")
    rename: dict[str, str] = setting(
        {}, "The server's own tool name → the name exposed by the gateway."
    )
    read_only: tuple[str, ...] = setting(
        (), "Globs of tool names that only read, whatever their server's annotations say."
    )
    destructive: tuple[str, ...] = setting(
        (),
        "Globs of tool names that destroy, whatever their server's annotations say; wins over"
        " `read_only`.",
    )
    override: dict[str, ToolOverride] = setting(
        {},
        "Globs of tool names → what is said of those tools in place of what their server says;"
        " where several match, the first that gives a setting counts.",
    )
    categories: dict[str, str] = setting(
        {}, "Globs of tool names → the category of those tools; the first match counts."
    )
    notes: dict[str, str] = setting(
        {}, "Globs of tool names → a note of yours that their full description shows."
    )
    references: dict[str, tuple[str, ...]] = setting(
        {}, "Globs of tool names → addresses to read on at, shown there too."
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

    def get_hints(self, upstream_name: str) -> dict[str, bool]:
        """Return the annotations that are given to a tool here; empty: those of its server hold."""
        for globs, is_destructive in ((self.destructive, True), (self.read_only, False)):
            if any(self.matches(glob, upstream_name) for glob in globs):
                return {"readOnlyHint": not is_destructive, "destructiveHint": is_destructive}
        return {}

    def find_override(self, upstream_name: str) -> ToolOverride | None:
        """Return what is said of a tool in place of what its server says; None: nothing."""
        found = [
            override
            for glob, override in self.override.items()
            if self.matches(glob, upstream_name)
        ]
        return merge_overrides(found) if found else None

    def matches(self, glob: str, upstream_name: str) -> bool:
        """Return whether a glob matches a tool by its own name, or the exposed one."""
        return fnmatchcase(upstream_name, glob) or fnmatchcase(
            self.get_exposed_name(upstream_name), glob
        )

    @property
    def gives_other_names(self) -> bool:
        """Whether tools or parameters have others here than at the server."""
        return bool(self.rename or self.override)

    def permits(self, upstream_name: str) -> bool:
        """Return whether a tool is exposed. Globs match its own and its exposed name."""
        return any(self.matches(glob, upstream_name) for glob in self.allow) and not any(
            self.matches(glob, upstream_name) for glob in self.deny
        )


def find_matching(values: Mapping[str, Value], name: str) -> list[Value]:
    """Return the values of the globs that match a name."""
    return [value for glob, value in values.items() if fnmatchcase(name, glob)]


class PromptRules(Section):
    """Which of a server's prompts are exposed."""

    allow: tuple[str, ...] | None = setting(
        None, "Globs to keep. Not given: all, or none where `tools` leaves some out."
    )
    deny: tuple[str, ...] = setting((), "Globs to drop; wins over `allow`.")


class ResourceRules(PromptRules):
    """Which resources and resource templates are exposed; globs match the server's URIs."""

    unlisted: bool = setting(
        False,
        "Pass on URIs that it neither lists nor has a listed template for. Links in its"
        " tools' results can be read by the client that received them in any case.",
    )


class CacheConfig(Section):
    """Caching of a server's tool results; cached results are marked as such."""

    ttl_s: float = setting(0, "Seconds, for tools annotated as read-only; 0 disables it.", ge=0)
    tools: dict[str, float] = setting(
        {}, "Globs of tool names → seconds; the first match counts, whatever the annotations."
    )


class Timeouts(Section):
    """Timeouts of one server, in seconds."""

    start_s: float = setting(30, "Time to start the server and complete its handshake.", gt=0)
    call_s: float = setting(120, "Time for a call; `limits.call_s` is the upper limit.", gt=0)
    list_s: float = setting(30, "Time for a listing (tools, resources, prompts).", gt=0)


class ServerLimits(Section):
    """Concurrency and rate limits of one server; calls beyond them are queued in order."""

    concurrency: int = setting(64, "Maximum number of concurrent calls; 0 is unlimited.", ge=0)
    rate_per_s: float = setting(
        0, "Maximum number of calls started per second; 0 is unlimited.", ge=0
    )
    burst: int = setting(1, "Calls that may start at once after a pause, with `rate_per_s`.", ge=1)
    queue: int = setting(
        1_000, "Maximum number of queued calls; more are rejected. Queueing is call time.", ge=0
    )


class RetryConfig(Section):
    """Retries of calls whose connection to the server was lost."""

    times: int = setting(
        1,
        "Number of retries for tools annotated as read-only or idempotent; 0 is none.",
        ge=0,
        le=5,
    )
    tools: tuple[str, ...] = setting((), "Globs of tool names that are safe to retry too.")


class HealthConfig(Section):
    """Health checks of a running server."""

    every_s: float = setting(
        30, "Seconds between health checks while nothing else is received; 0 disables them.", ge=0
    )
    timeout_s: float = setting(10, "Seconds to answer a health check.", gt=0)
    failures: int = setting(3, "Failed health checks in a row after which it is restarted.", ge=1)


class RestartConfig(Section):
    """Restarts of a server that fails: with increasing delays, then quarantine."""

    pause_s: float = setting(1, "Delay after the first failure; it doubles with each.", gt=0)
    longest_s: float = setting(60, "Maximum delay.", gt=0)
    tries: int = setting(
        5, "Failures of a command within `window_s` after which it is quarantined.", ge=1
    )
    window_s: float = setting(600, "Seconds over which failures count.", gt=0)
    quarantine_s: float = setting(
        1_800,
        "Seconds in quarantine before one more attempt; 0 is until `portico restart`, or a"
        " change of its configuration, which end it at once.",
        ge=0,
    )
    memory: ByteSize = setting(
        ByteSize(4 * 1024**3),
        "Memory of a command and its children above which it is restarted; 0 is unlimited.",
        ge=0,
    )
    drain_s: float = setting(
        30, "Seconds that running calls may still take when it is replaced.", ge=0
    )
