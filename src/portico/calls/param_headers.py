"""`Mcp-Param-*` headers: arguments that a modern server wants mirrored (`x-mcp-header`)."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from portico.catalog.tool import Tool

_NO_HEADERS: Mapping[str, str] = {}


def build_param_headers(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the headers for this call; empty for almost every tool."""
    if b'"x-mcp-header"' not in tool.blob:
        return _NO_HEADERS
    from mcp.shared.inbound import mcp_param_headers

    return mcp_param_headers(_get_header_map(tool), arguments)


@lru_cache(maxsize=1_024)
def _get_header_map(tool: Tool) -> Mapping[tuple[str, ...], str]:
    from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

    if find_invalid_x_mcp_header(tool.input_schema):
        return {}
    return x_mcp_header_map(tool.input_schema)
