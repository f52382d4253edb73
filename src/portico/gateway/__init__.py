"""Composition root: builds all parts of the gateway from a configuration and owns their lifecycle.

runtime            one running Portico: composes, opens and closes everything
maintenance        its work in the background: first starts, upkeep
server_registry    servers and profile settings: created from configuration, replaced with it
monitoring         metrics, load of each server, and whether the gateway accepts work
rest_app           the REST API for the profile that a request may see
data_folder        the files that outlive the process
config_diff        differences between two configurations; pure
"""

from portico.gateway.config_diff import ConfigChange
from portico.gateway.data_folder import (
    HABITS_FILE,
    INDEX_FILE,
    MANIFEST_FILE,
    PINS_FILE,
    RECORD_FILE,
    RESULTS_FOLDER,
    VECTOR_FILE,
)
from portico.gateway.runtime import GatewayRuntime

__all__ = [
    "HABITS_FILE",
    "INDEX_FILE",
    "MANIFEST_FILE",
    "PINS_FILE",
    "RECORD_FILE",
    "RESULTS_FOLDER",
    "VECTOR_FILE",
    "ConfigChange",
    "GatewayRuntime",
]
