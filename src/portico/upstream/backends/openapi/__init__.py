"""HTTP APIs as servers: operations of an OpenAPI description (3.x, Swagger 2.0) are tools.

description/      a description → tool definitions and request plans
backend           the backend; connection: its connection
request_plans     what a call needs of its operation
parameter_styles  arguments → path, query, headers and cookies
request_bodies    arguments → body
http_client       sends requests; responses: tool results; decompression: bounded unpacking
urls, tls         origins, redirects and certificates
"""
