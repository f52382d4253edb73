"""Composition root: builds all parts of the gateway from a configuration and owns their lifecycle.

gateway            one running Portico: composes, opens, maintains and closes everything
server_registry    the servers: created from configuration, replaced when that changes
warmup             which servers start with the gateway, and how long a first search waits
profile_settings   settings of a profile's view
monitoring, readiness   metrics, and whether the gateway accepts work
audit_log          opens the configured audit log
config_diff        differences between two configurations; pure
data_files         names of the files in the data folder
"""

from portico.app.config_diff import ConfigChange
from portico.app.data_files import (
    HABITS_FILE,
    INDEX_FILE,
    MANIFEST_FILE,
    RECORD_FILE,
    RESULTS_FOLDER,
    VECTOR_FILE,
)
from portico.app.gateway import GatewayRuntime

__all__ = [
    "HABITS_FILE",
    "INDEX_FILE",
    "MANIFEST_FILE",
    "RECORD_FILE",
    "RESULTS_FOLDER",
    "VECTOR_FILE",
    "ConfigChange",
    "GatewayRuntime",
]
