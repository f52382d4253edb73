"""Storage: what outlives the process, in the user's data directory; nobody else writes SQL.

manifests (what every server offered last time) · habits (what use has taught) · sqlite_file (a file of either kind)
index_file (the search index, replaced whole) · vector_file (vectors by the text they were made from)
"""
