"""HTTP APIs as servers: the operations of an OpenAPI description (3.x, Swagger 2.0) are tools, a
call is a request.

description/   a description → definitions of tools and plans of requests
backend → connection → request_plans, parameter_styles, request_bodies → http_client → responses,
decompression
urls, tls      where a request may go
"""
