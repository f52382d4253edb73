"""Everything in `examples/` works unchanged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def portico(folder: Path, elsewhere: Path, *words: str) -> str:
    """Return what the installed command answers, started as a user does: in another folder, with
    nothing
    on Python's path."""
    script = Path(sys.executable).with_name("portico.exe" if sys.platform == "win32" else "portico")
    if not script.exists():
        pytest.skip("the portico command is not installed beside this Python")
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(script), *words, "--config", str(folder / "portico.yaml"), "--json"]
    environment = {**kept, "PORTICO_DATA_DIR": str(elsewhere / "data")}
    done = subprocess.run(
        command,
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout


def test_functions_of_ones_own_are_found_and_called(tmp_path: Path):
    folder = EXAMPLES / "own_tools"
    found = json.loads(portico(folder, tmp_path, "search", "what does the customer pay with tax"))
    assert found["tools"][0]["name"] == "billing.invoice_total"
    result = json.loads(portico(folder, tmp_path, "call", "billing.invoice_total", "net=100"))
    assert result["structuredContent"] == {"net": 100.0, "tax": 19.0, "total": 119.0}
