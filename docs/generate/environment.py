"""The page of variables that servers get, from the lists the gateway passes on."""

from docs.generate.markdown import join_paragraphs, values
from portico.config.inherited_environment import (
    CERTIFICATE_VARIABLES,
    PROXY_VARIABLES,
    SYSTEM_VARIABLES,
)


def page() -> str:
    """Render each list under a heading."""
    return join_paragraphs(
        [
            "## User and system",
            f"{values(SYSTEM_VARIABLES)}",
            "## Certificates",
            f"{values(CERTIFICATE_VARIABLES)}",
            "## Proxies",
            f"{values(PROXY_VARIABLES)}",
        ]
    )
