"""python tests/faults/misbehaving stdio FILE, or: python tests/faults/misbehaving http FOLDER

FILE holds the name of the fault that is on, or nothing; it is read again at the start and with each
message. FOLDER has such a file for each server and a list of them (`servers`: a name and `legacy`,
`modern` or `sse` a line); their ports are printed as one line of JSON.
"""

import os
import sys

sys.path.insert(
    0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
)

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        from tests.faults.misbehaving.over_stdio import serve

        serve(sys.argv[2])
    else:
        from tests.faults.misbehaving.over_http import serve_all

        serve_all(sys.argv[2])
