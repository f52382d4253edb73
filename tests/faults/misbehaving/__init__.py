"""A server that misbehaves in whatever way a file tells it to, over stdio, Streamable HTTP or
HTTP+SSE.

steps (what a script may do) · healthy (the server that is spoiled) · greeting, calls, answers,
listings, replies (the scripts) · over_stdio, over_http (carry them out). Standard library only: it
is started by the hundred.
"""
