"""What REST says of the configuration in use: its values, and where each came from."""

from typing import TYPE_CHECKING

from portico.cli.setup import Setup
from portico.gateway import GatewayRuntime

if TYPE_CHECKING:
    from portico.api.gateway_services import ConfigReport


def report_config(gateway: GatewayRuntime, setup: Setup) -> "ConfigReport":
    """Report the configuration of a gateway; sources are those of the files when it started.

    Keys that came with a later change of the files have none.
    """
    from portico.api.gateway_services import ConfigReport

    loaded = setup.loaded
    return ConfigReport(
        gateway.config,
        {key: str(source) for key, source in loaded.sources.items()},
        tuple(map(str, loaded.files)),
        tuple(map(str, loaded.warnings)),
        gateway.config_problem,
    )
