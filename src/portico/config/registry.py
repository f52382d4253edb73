"""Settings of registries of MCP servers: the one that is asked, and the one that the gateway is."""

from typing import Any

from pydantic import field_validator

from portico.config.section import Section, list_names, setting


class RegistryConfig(Section):
    """Registries of MCP servers: the one that is asked, and what the gateway serves as one."""

    url: str = setting(
        "https://registry.modelcontextprotocol.io",
        "Registry (v0.1) that `portico find --update` and `portico add` ask.",
    )
    servers: tuple[str, ...] = setting(
        (),
        "Servers of the last snapshot that the gateway lists at `/v0.1/servers` beside its own"
        " endpoints: names or patterns, such as `io.github.acme/*`.",
        max_length=1_000,
    )
    namespace: str = setting(
        "",
        "Namespace of the gateway's own entries there. Default: its host, reversed.",
        pattern=r"^[a-zA-Z0-9.-]*$",
        max_length=150,
    )

    @field_validator("servers", mode="before")
    @classmethod
    def _list_servers(cls, value: Any) -> Any:
        return list_names(value)
