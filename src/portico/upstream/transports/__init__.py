"""MCP over stdio, Streamable HTTP and SSE.

stdio → process, file_descriptors, python_interpreter, output_lines, stdio_subscription
http → http_connection → http_exchange, http_headers, http_errors, http_subscription
sse → sse_connection; wire (HTTP/1.1 to one origin), event_stream (server-sent events), yield_budget
"""
