"""REST API: the tiers, servers and usage as JSON, for programs and people that do not speak MCP.

No tool is called here. It shows what clients of the default profile see, and can restart a server.
The only package that imports FastAPI; `portico stdio` never loads it.

app               composes the application and its OpenAPI
tool_routes, server_routes, restart_routes   the routes
params            query parameters with their limits
models            models of the answers
tiers, tool_search   content of the answers
pagination        pages and parts within a token budget
response_cache    rendered bodies and ETags
problems          error responses
security_headers  headers of every answer
docs              documentation page for people
"""
