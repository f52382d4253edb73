"""Backends: what a server can be.

factory           a server's configuration → its backend; recorded and unusable servers
openapi/          an HTTP API by its OpenAPI description
http              MCP servers with a URL
commands          command-line programs; uses command_line, program_run
functions         Python functions of this process
tool_connection   base of the connections of all these; blocking calls in threads
"""
