"""The types that the console's modules state in comments hold."""

import json
import subprocess
from pathlib import Path

import pytest

from portico.console.files import FOLDER
from tests.conformance.suite import CONSOLE_PACKAGES, SuiteMissing, find_console_package


@pytest.mark.node
def test_the_types_of_the_modules_hold(tmp_path: Path) -> None:
    try:
        node, compiler = find_console_package("typescript")
        folders = {name: str(find_console_package(name)[1]) for name in CONSOLE_PACKAGES}
    except SuiteMissing as missing:
        pytest.skip(f"the console's types are not checked: {missing}")
    paths = {name: [folder] for name, folder in folders.items()}
    paths["preact/hooks"] = [f"{folders['preact']}/hooks"]
    options = {
        "allowJs": True,
        "checkJs": True,
        "noEmit": True,
        "strict": True,
        "target": "es2022",
        "module": "esnext",
        "moduleResolution": "bundler",
        "lib": ["es2023", "dom", "dom.iterable"],
        "types": [],
        "skipLibCheck": True,
        "paths": paths,
    }
    project = tmp_path / "tsconfig.json"
    project.write_text(
        json.dumps({"compilerOptions": options, "include": [f"{FOLDER}/**/*.js"]}), "utf-8"
    )
    done = subprocess.run(
        [node, compiler / "bin" / "tsc", "-p", project],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
