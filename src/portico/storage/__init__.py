"""Storage of everything that outlives the process, in the data directory or in PostgreSQL.

No other package contains SQL.

gateway_store: calls, usage, tiers and listings, shared between gateways · rows, plan_rows: its rows
sql/: its tables and statements · sqlite_file: a recreatable SQLite file with a fixed layout
manifests: the last listing of every server · result_files: bodies of large results
learning_store, learning_rows, learning_decay, hash_key: what search learns from use
index_file: the search index · vector_file: vectors by text hash · audit_file: the audit log
origin_pins: first origin of each API's credentials · restart_requests: restarts across processes
"""
