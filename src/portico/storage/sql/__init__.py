"""SQL of the gateway store: tables, migrations and statements; loaded when it is first opened.

database_url (parsing) · errors (database errors as advice) · text_encoding (escapes, hashes)
tables · bulk_rows (upserts, locks) · engine (connections) · database (transactions)
sqlite_files (files and damage) · migration, alembic_upgrade, versions/ (schema changes)
usage (calls, counts, ledger) · catalog (servers, tools, manifests) · tiers · shapes · plans
retention · change_notifications, postgres_listener, sqlite_watcher (changes by other gateways)
"""
