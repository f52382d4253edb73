"""Everything that speaks SQL, under one name, for `storage.record` to load at once."""

from portico.storage.sql import catalog, database, migration, news, plans, pruning, shapes, standing, uses, watching

__all__ = ["catalog", "database", "migration", "news", "plans", "pruning", "shapes", "standing", "uses", "watching"]
