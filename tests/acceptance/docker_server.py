"""A server of the user's own that needs DOCKER_HOST."""

import os
import urllib.request

from mcp.server import MCPServer

server = MCPServer("docker")


@server.tool()
def list_containers() -> str:
    """List the running containers."""
    address = os.environ["DOCKER_HOST"].replace("tcp://", "http://", 1)
    with urllib.request.urlopen(f"{address}/containers/json", timeout=10) as answer:
        return answer.read().decode()


if __name__ == "__main__":
    server.run()
