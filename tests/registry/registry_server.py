"""An HTTP server that speaks v0.1 of the registry API from recorded entries, and serves files."""

import contextlib
import json
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

OFFICIAL = "io.modelcontextprotocol.registry/official"
PAGE = 30


@dataclass
class RegistryServer:
    """What it serves; changed while it runs."""

    servers: list[dict[str, Any]]
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    redirects: dict[str, str] = field(default_factory=dict[str, str])
    raw: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Answers to these paths, whatever the registry has."""
    requests: list[str] = field(default_factory=list[str])
    url: str = ""

    def answer(self, target: str) -> tuple[int, bytes, Mapping[str, str]]:
        """Return status, body and headers of a request."""
        parts = urlsplit(target)
        self.requests.append(target)
        if parts.path in self.redirects:
            return 302, b"", {"Location": self.redirects[parts.path]}
        if parts.path in self.files:
            return 200, self.files[parts.path], {}
        if parts.path in self.raw:
            return 200, self.raw[parts.path], {}
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/v0.1/servers":
            return 200, json.dumps(self._list(query)).encode(), {}
        words = parts.path.split("/")
        if parts.path.startswith("/v0.1/servers/") and len(words) == 6 and words[4] == "versions":
            return self._find(unquote(words[3]), unquote(words[5]))
        return 404, b'{"error": "Server not found"}', {}

    def _list(self, query: Mapping[str, str]) -> dict[str, Any]:
        limit = min(int(query.get("limit", PAGE)), PAGE)
        start = int(query.get("cursor", "0"))
        page = self.servers[start : start + limit]
        metadata: dict[str, Any] = {"count": len(page)}
        if start + limit < len(self.servers):
            metadata["nextCursor"] = str(start + limit)
        return {"servers": [wrap(server) for server in page], "metadata": metadata}

    def _find(self, name: str, version: str) -> tuple[int, bytes, Mapping[str, str]]:
        for server in self.servers:
            if server["name"] == name and version in ("latest", server["version"]):
                return 200, json.dumps(wrap(server)).encode(), {}
        return 404, b'{"error": "Server not found"}', {}


def wrap(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return a server as a registry answers it."""
    return {"server": server, "_meta": {OFFICIAL: {"status": "active", "isLatest": True}}}


@contextlib.contextmanager
def serve_registry(servers: Sequence[Mapping[str, Any]]) -> Generator[RegistryServer]:
    """Serve entries on a free port of this machine."""
    registry = RegistryServer([dict(server) for server in servers])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, headers = registry.answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield registry
        server.shutdown()
        thread.join()
