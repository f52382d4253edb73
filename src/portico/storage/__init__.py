"""Storage of everything that outlives the process, in the data directory or in PostgreSQL.

No other package contains SQL.

gateway_store: calls, usage, tiers and listings, shared between gateways · rows: its rows
sql/: its tables and statements · sqlite_file: a recreatable SQLite file with a fixed layout
approval_store: requests for approval, and decisions · key_store: keys
manifests: the last listing of every server
learning_store: what search learns from use · data_files: pins, restarts, large results
search_files: the search index, and vectors by text hash · audit_file: the audit log
"""
