"""HTTP APIs as servers: the operations of an OpenAPI description (3.x, Swagger 2.0) are tools, a call is a request.

reading     a file or URL → bytes, bounded, never from a host that a reference chose
text, yaml_reading      bytes → plain values, JSON or YAML
documents   values → what a `$ref` means, by the `referencing` library
operations, swagger    a description → its operations, in one shape for every version
schemas, numbers       OpenAPI's schemas → JSON Schema 2020-12 with `$defs`
names, tools           an operation → a tool's definition, and the plan of its call
plans       what a call needs to know, and nothing else: the description is dropped once the plans are made
loading     all of that → an `Api`
own_process a large description, read where it holds nobody else up
addresses   origins, servers, redirects: where a request may go
styles, bodies         arguments → path, query, headers, body
answers, advice        a reply → a result; what to configure when access is refused
exchange, unpacking     one request over the wire; a reply that was compressed
backend, connection    all of it, as a server
"""
