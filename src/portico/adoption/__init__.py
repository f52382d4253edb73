"""Adoption: takes the servers that clients already have, and points those clients at Portico.

`portico adopt`: clients, places (who keeps servers where) → finding (their files → servers, by entries in our words) →
merging (each once) → secrets (`${VAR}` for what only its owner may read) → planning (what would be
added, tried before it is written; yaml_text) → cost (in tokens) and choosing → writing. No client's
file is ever written by it.
`portico install`: pointing (the entry that suits a client) → documents, json_editing, toml_editing → file_writing.
"""
