"""A server as some SDKs make it: slow to start, takes `server/discover` and `initialize` on one
pipe, and the later of the two decides which era it answers in. A file to be run: `python
slow_dual_server.py SECONDS`.
"""

import json
import sys
import time

MODERN = "2026-07-28"


def main() -> None:
    time.sleep(float(sys.argv[1]))
    era = "modern"
    for line in sys.stdin:
        frame = json.loads(line)
        method = frame["method"]
        if method == "server/discover":
            result = {
                "supportedVersions": [MODERN],
                "capabilities": {"tools": {}},
                "resultType": "complete",
            }
        elif method == "initialize":
            era = "legacy"
            info = {"name": "dual", "version": "1"}
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        elif method == "tools/list":
            result = {"tools": [{"name": "era", "inputSchema": {"type": "object"}}]}
        else:
            result = {"content": [{"type": "text", "text": era}]}
        if "id" in frame:
            print(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}), flush=True)


main()
