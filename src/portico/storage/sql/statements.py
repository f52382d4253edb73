"""All SQL modules under one name, for `storage.gateway_store` to load at once."""

from portico.storage.sql import (
    catalog,
    change_notifications,
    database,
    migration,
    plans,
    retention,
    shapes,
    sqlite_watcher,
    tiers,
    usage,
)

__all__ = [
    "catalog",
    "change_notifications",
    "database",
    "migration",
    "plans",
    "retention",
    "shapes",
    "sqlite_watcher",
    "tiers",
    "usage",
]
