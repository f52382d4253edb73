"""The composition root: builds every room from a configuration and owns their life.

gateway      one running Portico: puts the house together, opens and closes it
servers      the servers behind it: made from their configuration, replaced when that changes, let go in peace
warming      which servers start with the gateway, and how long a first question waits for them
measured     what a platform asks of it: figures → readiness
auditing     the audit log that a configuration asks for
changes      what differs between two configurations, and what there is to do about it; pure
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
