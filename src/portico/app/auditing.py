"""The audit log that a configuration asks for."""

from collections.abc import Iterable

from portico.config import Config
from portico.observability.audit import Audit


def audit_of(config: Config) -> Audit | None:
    """The log, if one is wanted; it knows what must not be written in it."""
    hidden: Iterable[str] = ()
    if config.audit.arguments == "redacted":
        from portico.config_file.secret_values import secret_values  # its patterns cost start-up

        hidden = secret_values(config)
    return Audit.kept(config.audit, config.data_dir, hidden)
