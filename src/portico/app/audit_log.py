"""Opens the audit log of a configuration."""

from collections.abc import Iterable

from portico.config import Config
from portico.observability.audit import AuditLog


def open_audit_log(config: Config) -> AuditLog | None:
    """Return the log if one is configured; it masks the configured secrets."""
    secrets: Iterable[str] = ()
    if config.audit.arguments == "redacted":
        # Imported late: its patterns cost start-up time.
        from portico.config_file.secret_values import collect_secret_values

        secrets = collect_secret_values(config)
    return AuditLog.from_settings(config.audit, config.data_dir, secrets)
