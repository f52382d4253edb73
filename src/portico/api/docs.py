"""Documentation page of the API for people, built from its OpenAPI. Pure; no script, no external
resources."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font: 13px ui-monospace, monospace; } h2 { margin-top: 2.5rem; } \
table { border-collapse: collapse; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
@media (prefers-color-scheme: dark) { \
body { background: #16181c; color: #ddd; } a { color: #8ab4f8; } }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def render_docs_page(openapi: Mapping[str, Any]) -> str:
    """Render the page."""
    info = openapi["info"]
    parts: list[str] = []
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            parts += _render_operation(f"{method.upper()} {path}", operation)
    body = "\n".join(parts)
    title = escape(info["title"])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{title} API</title>"
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{title} API {escape(info['version'])}</h1>{_render_paragraphs(info['description'])}"
        '<p>For programs: <a href="/api/openapi.json">openapi.json</a>.</p>'
        f"{body}</body></html>\n"
    )


def _render_operation(title: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(title)}</code></h2><p><b>{escape(operation['summary'])}.</b></p>"
    yield _render_paragraphs(operation.get("description", ""))
    if parameters := operation.get("parameters"):
        rows = "".join(map(_render_parameter, parameters))
        header = "<tr><th>parameter</th><th>type</th><th>default</th><th></th></tr>"
        yield f"<table>{header}{rows}</table>"
    codes = (
        f"<li>{status}: {escape(response['description'])}</li>"
        for status, response in operation["responses"].items()
    )
    yield f"<ul>{''.join(codes)}</ul>"


def _render_parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter["schema"]
    kinds = [variant.get("type", "") for variant in schema.get("anyOf", [schema])]
    default = schema.get("default")
    cells = (
        f"<code>{escape(parameter['name'])}</code>",
        escape(" or ".join(kind for kind in kinds if kind and kind != "null")),
        escape("" if default is None or default == [] else str(default)),
        escape(parameter.get("description", "")),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _render_paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip())
