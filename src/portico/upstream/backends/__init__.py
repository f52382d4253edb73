"""What a server can be, beside a process or a URL.

factory        from a server's configuration to its backend
openapi/       an HTTP API by its description
commands/      command-line programs
functions, recorded, dedicated_thread   Python functions; a recorded listing
"""
