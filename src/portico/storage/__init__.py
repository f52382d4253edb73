"""Storage: what outlives the process. SQLite in the user's data directory; nobody else writes SQL.

manifests (what every server offered last time, and the search index over it)
"""
