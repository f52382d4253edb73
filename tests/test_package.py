"""The installed package: everything for search by meaning, within its size, without a network."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import portico

ROOT = Path(__file__).resolve().parents[1]
MODEL = files("portico.search.dense") / "model"
LARGEST = 60_000_000
"""40 MB with the encoder, as promised at first, and 10 for the reader of arguments."""
ROOM_WITHOUT_NETWORK = ("unshare", "--user", "--map-root-user", "--net")


@pytest.mark.parametrize(
    "name", ["encoder.onnx", "outline.onnx", "vocabulary.txt", "MODEL_CARD.md"]
)
def test_the_model_and_its_card_are_in_the_package(name: str):
    assert (MODEL / name).is_file()
    assert len((MODEL / name).read_bytes()) > 1_000


@pytest.mark.parametrize("subject", ["data", "licen[cs]e", "limit", r"R@\d"])
def test_the_card_tells_what_the_model_was_made_of_how_good_it_is_and_where_it_ends(subject: str):
    card = (MODEL / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert re.search(subject, card, re.IGNORECASE)


def test_the_package_with_its_weights_is_as_small_as_was_promised():
    root = Path(portico.__file__).parent
    sizes = [
        path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert sum(sizes) <= LARGEST


def test_no_framework_and_no_hub_is_installed_with_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[^\w-]", line)[0].lower() for line in project["dependencies"]}
    assert "onnxruntime" in needed
    assert not needed & {
        "torch",
        "tensorflow",
        "transformers",
        "sentence-transformers",
        "huggingface-hub",
        "tokenizers",
    }


def test_search_by_meaning_works_where_there_is_no_network(tmp_path: Path):
    """Not guarded against but taken away: native libraries too have only an interface that is
    down."""
    if (
        shutil.which("unshare") is None
        or subprocess.run([*ROOM_WITHOUT_NETWORK, "true"], timeout=240).returncode
    ):
        pytest.skip("needs unshare(1), and the right to make a network of one's own")
    done = subprocess.run(
        [
            *ROOM_WITHOUT_NETWORK,
            sys.executable,
            "-m",
            "portico",
            "search",
            "convert miles to kilometres",
            "--json",
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PORTICO_DATA_DIR": str(tmp_path),
            "PORTICO_CONFIG": "",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["meaning"] == {"searched": True, "problem": "", "unencoded": 0}
    assert "units.convert_units" in [tool["name"] for tool in answer["tools"]]
