"""The record in SQL: tables, migrations and every statement. Loaded by `storage.record` when it is
first opened.

address (what a URL says) · trouble (errors as advice) · text (what any database takes) · tables,
upsert engine (connections) · database (transactions) · files (where SQLite keeps it) · migration,
versions/ (Alembic) uses (calls, daily use, ledger) · catalog (servers, tools, manifests) · standing
(categories, tiers) · pruning news (telling other gateways) · listening, watching (hearing them, on
PostgreSQL and on SQLite)
"""
