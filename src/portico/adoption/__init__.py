"""Adoption: takes over the servers that clients already have, and points clients at Portico.

`portico adopt`, which never writes a client's file:

clients, config_locations   the clients, and where each has its servers
discovery, entry_converter  their files → servers in our configuration keys
merge                       duplicates → one server each
secret_extraction           secrets → `${VAR}` and an env file
adoption_plan, yaml_editor  the files as they would be, loaded before they are written
server_costs, selection     costs in tokens, and the choice of a person
config_writer               writes the configuration and the env file

`portico install`:

gateway_entry               the entry for Portico in each client's spelling
installation, diff          plan, show and apply the change; undo it
client_documents            a client's file as a document → json_editor, toml_editor
backups, atomic_files       copies of the original files, atomic writes
"""
