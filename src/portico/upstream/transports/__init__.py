"""MCP over stdio, Streamable HTTP and SSE.

stdio               a child process; uses process, file_descriptors, output_lines
stdio_subscription  subscription streams over a pipe
python_interpreter  start of the gateway's own Python processes
http                Streamable HTTP; http_connection, http_exchange, http_headers, http_errors
http_subscription   session and subscription streams over HTTP
sse                 the older HTTP+SSE transport; sse_connection
wire                HTTP/1.1 connection pool for one origin
event_stream        parser of server-sent events
yield_budget        fairness while a stream is read
"""
