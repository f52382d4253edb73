"""Backends: what a server can be.

factory           a server's configuration → its backend
openapi/          an HTTP API by its OpenAPI description
commands/         command-line programs
functions         Python functions of this process
recorded          a recorded listing
dedicated_thread  blocking calls in daemon threads
"""
