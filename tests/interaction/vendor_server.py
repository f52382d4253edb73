"""A server of the handshake era on stdio that says everything in `vendor`; a script, run by its
path."""

import json
import os
import sys

if __name__ == "__main__":
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.fixtures.broken_servers.healthy import (
    INVALID_PARAMS,
    Healthy,
    Message,
    Refused,
    text,
    tool,
)
from tests.interaction import vendor


class Vendor(Healthy):
    """`odd` and `refuse` answer with the result or error named `what`; `repeat` with its arguments
    as text."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [vendor.TOOL, tool("refuse"), tool("repeat")]

    def call(self, name: str, arguments: Message) -> Message | None:
        if name == "odd":
            return vendor.RESULTS[arguments["what"]]
        if name == "repeat":
            return text(json.dumps(arguments))
        if name != "refuse":
            raise Refused(INVALID_PARAMS, f"Unknown tool: {name}")
        refused = Refused(vendor.CODE, vendor.MESSAGE)
        if arguments["what"] != vendor.NO_DATA:
            refused.error["data"] = vendor.ERRORS[arguments["what"]]
        raise refused


if __name__ == "__main__":
    Vendor().run()
