"""Servers that a registry of MCP servers describes: found by meaning, and made configuration.

server_json       a registry's description of a server, bounded and checked
asked_values      the values it asks of its user
package_launch    package or remote → an entry of the configuration
bundle            .mcpb files: checked, unpacked by their hash, and started
downloads         requests: bounded, to addresses that were checked
registry_client   a registry (v0.1), page by page
server_catalogue  the last snapshot of a registry, and search in it
"""
