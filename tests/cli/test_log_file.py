"""The log of a gateway without a terminal: whatever is written ends up there, within bounds."""

import subprocess
import sys
from pathlib import Path

WRITE = """
import os, sys
from pathlib import Path
from portico.cli.logs import LogFile
log = LogFile(Path(sys.argv[1]), 1000)
for number in range(6):
    log.open()
    print(f"file {number} " + "x" * 1000)
    os.system("echo a child")
"""


def test_full_files_are_kept_beside_a_new_one_up_to_three(tmp_path: Path) -> None:
    path = tmp_path / "new" / "gateway.log"
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(path)], capture_output=True, timeout=240, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert sorted(one.name for one in path.parent.iterdir()) == [
        "gateway.log",
        "gateway.log.1",
        "gateway.log.2",
        "gateway.log.3",
    ]
    assert "file 5" in path.read_text()
    assert "a child" in path.read_text()
    assert "file 2" in path.with_name("gateway.log.3").read_text()
    assert path.stat().st_mode & 0o077 == 0 or sys.platform == "win32"
