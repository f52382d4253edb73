"""A program that says what it was given: its words, its input, its environment; on request how else
it behaves."""

import json
import os
import sys

if __name__ == "__main__":
    report = {
        "words": [
            word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            for word in sys.argv[1:]
        ],
        "stdin": sys.stdin.buffer.read().decode("utf-8", "replace"),
        "env": dict(os.environ),
        "cwd": os.getcwd(),
    }
    sys.stdout.write(json.dumps(report))
