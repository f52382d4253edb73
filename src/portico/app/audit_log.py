"""The audit log that a configuration asks for."""

from collections.abc import Iterable

from portico.config import Config
from portico.observability.audit import AuditLog


def open_audit_log(config: Config) -> AuditLog | None:
    """The log, if one is wanted; it knows what must not be written in it."""
    hidden: Iterable[str] = ()
    if config.audit.arguments == "redacted":
        from portico.config_file.secret_values import (
            collect_secret_values,  # its patterns cost start-up
        )

        hidden = collect_secret_values(config)
    return AuditLog.from_settings(config.audit, config.data_dir, hidden)
