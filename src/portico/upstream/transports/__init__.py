"""MCP over stdio, Streamable HTTP and SSE.

stdio               a child process; uses process, message_streams
own_processes       what the gateway's child processes start with
http_transport      Streamable HTTP; uses http_exchange, http_headers, http_errors
sse_transport       the older HTTP+SSE
wire                HTTP/1.1 connection pool for one origin
"""
