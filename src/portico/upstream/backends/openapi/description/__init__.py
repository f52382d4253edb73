"""An OpenAPI description → definitions of tools, and plans of requests.

reader (bytes, bounded) → parser, yaml_parser → documents (`$ref`, by the `referencing` library)
operations, swagger, security_schemes → schemas, schema_keywords, body_fields (JSON Schema 2020-12)
→ names, tools loader (all of it) → loader_process (a large description, in a process of its own)
"""
