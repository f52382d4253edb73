"""The composition root: builds every room from a configuration and owns their life.

gateway      one running Portico: puts the house together, opens and closes it
servers      the servers behind it: made from their configuration, replaced when that changes, let go in peace
warming      which servers start with the gateway, and how long a first question waits for them
measured     what a platform asks of it: figures → readiness
auditing     the audit log that a configuration asks for
changes      what differs between two configurations, and what there is to do about it; pure
"""

from portico.app.changes import Change
from portico.app.gateway import Gateway
from portico.app.places import (
    HABITS_FILE,
    INDEX_FILE,
    MANIFEST_FILE,
    RECORD_FILE,
    RESULTS_FOLDER,
    VECTOR_FILE,
)

__all__ = [
    "HABITS_FILE",
    "INDEX_FILE",
    "MANIFEST_FILE",
    "RECORD_FILE",
    "RESULTS_FOLDER",
    "VECTOR_FILE",
    "Change",
    "Gateway",
]
