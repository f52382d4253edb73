"""What lies in `examples/` works as it lies there."""

import json
import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def portico(folder: Path, data: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PORTICO_DATA_DIR": str(data)}
    command = [sys.executable, "-m", "portico", *words, "--config", str(folder / "portico.yaml"), "--json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_functions_of_ones_own_are_found_and_called(tmp_path: Path):
    folder = EXAMPLES / "own_tools"
    found = json.loads(portico(folder, tmp_path, "search", "what does the customer pay with tax"))
    assert found["tools"][0]["name"] == "billing.invoice_total"
    result = json.loads(portico(folder, tmp_path, "call", "billing.invoice_total", "net=100"))
    assert result["structuredContent"] == {"net": 100.0, "tax": 19.0, "total": 119.0}
