"""HTTP APIs as servers: operations of an OpenAPI description (3.x, Swagger 2.0) are tools.

A description → tool definitions and request plans:

reader            bytes of a description and its parts, bounded; its origins and servers
documents         JSON or YAML → values; `$ref` resolution
operations        operations in one shape, also of Swagger 2.0; fields of a body
schemas           JSON Schema 2020-12; schema_keywords
names             tool and argument names
tools             an operation → definition and plan
loader            all of it; large descriptions in a separate process

Calls:

backend           the backend; connection: its connection and HTTP client
request_encoding  request plans; arguments → path, query, headers, cookies and body
responses         HTTP responses → tool results
"""
