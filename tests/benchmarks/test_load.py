"""The load benchmark, small: it floods a real gateway, and every call has a right answer or advice."""

import json
import subprocess
import sys
from pathlib import Path

RUN_S = 90.0


def test_a_flood_is_shed_with_advice_and_nobody_gets_a_wrong_answer(tmp_path: Path) -> None:
    found = tmp_path / "load.json"
    command = [sys.executable, "-m", "benchmarks.load", "--quick", "--no-peers", "--json", str(found)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert ended.returncode == 0, ended.stderr
    (table,) = json.loads(found.read_text())["tables"]
    before, flood, _, later = table["rows"]
    assert flood["shed %"] > 0, "four times what it bears is more than it begins"
    assert flood["calls"] > before["calls"]
    assert later["shed %"] < flood["shed %"]
    assert [row["wrong"] for row in table["rows"]] == [0, 0, 0, 0]
    assert flood["advice s"] > 0
