"""SQL of the gateway store: tables, migrations and statements; loaded when it is first opened.

database_url (parsing) · errors (database errors as advice) · tables (with escapes and hashes)
database (connections, transactions) · migrations (schema changes)
bulk_rows (upserts, locks) · usage (calls, counts, ledger, plans) · catalog (listings, tiers,
result shapes) ·
change_notifications (changes by other gateways)
"""
