"""Adoption: takes over the servers that clients already have, and points clients at Portico.

`portico adopt`, which never writes a client's file:

clients                     the clients, and where each has its servers
discovery, client_entries   their files → servers in our configuration keys
client_rules, rule_transfer clients' rules about tools → rules of ours, or named as lost
merge                       duplicates → one server each
secret_extraction           secrets → `${VAR}` and an env file
adoption_plan               the files as they would be, loaded before they are written
server_costs                costs in tokens
environment_search          the variables without which a server does not start

`adopt`, `add`, `remove`, `enable`, `disable`, `rename` and `undo` change the configuration:

config_document             it as a document → yaml_editor, json_editor, toml_editor
backups                     writes it, keeps what was there, and undoes the change

`portico install`:

client_entries              the entry for Portico in each client's spelling
installation, diff          plan, show and apply the change; undo it
client_documents            a client's file as a document → json_editor, toml_editor
backups, file_replacement   copies of the original files, atomic writes
"""
