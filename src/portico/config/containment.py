"""Containment of a server that is started as a process (Linux)."""

from typing import Any, Literal

from pydantic import field_validator

from portico.config.section import Section, list_names, setting


class ContainmentConfig(Section):
    """What a contained server may reach; beside this only what its entry names, and programs."""

    network: Literal["none", "loopback", "all"] = setting(
        "all",
        "`none`: nothing; `loopback`: TCP on this machine; `all`: everything. Never the gateway"
        " itself.",
    )
    read: tuple[str, ...] = setting(
        (), "Files and folders it may read and execute, `~` and relative to the file."
    )
    write: tuple[str, ...] = setting((), "Files and folders it may also change.")

    @field_validator("read", "write", mode="before")
    @classmethod
    def _list_paths(cls, value: Any) -> Any:
        return list_names(value)
