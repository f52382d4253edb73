"""A hostile client and a hostile server, each a process of its own, and the inputs they send.

kinds (what an input is) · schemas, requests, answers (the inputs, as tables) · server (an MCP
server of raw JSON-RPC lines that offers and answers them) · client (a client of raw HTTP that sends
them) · gateway (`portico` on an event loop that measures its pauses) · meter (reads that from
outside). `kinds`, the tables, `server` and `client` import nothing but the standard library.
"""
