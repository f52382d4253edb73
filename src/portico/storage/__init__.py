"""Storage: what outlives the process, in the user's data directory or in PostgreSQL; nobody else
writes SQL.

record (what gateways share: who offered what, when, and how it was used) · rows (what it holds) ·
sql/ (how) manifests (what every server offered last time) · habits (what use has taught) ·
sqlite_file (a file of either kind) habit_rows, habit_worth, habit_key (what is kept of use, what it
is worth in time, what its words are hashed with) index_file (the search index, replaced whole) ·
vector_file (vectors by the text they were made from) audit_file (the audit log, in so many files) ·
origin_pins (where each API's credentials went first)
"""
