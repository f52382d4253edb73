"""The official suite's scenarios for clients that sign in pass with Portico as the client."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.processes import REPOSITORY
from tests.conformance.suite import SuiteMissing, find_suite

pytestmark = [pytest.mark.slow, pytest.mark.node, pytest.mark.timeout(400)]

SCENARIOS = (
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
    "2025-03-26-oauth-metadata-backcompat",
    "2025-03-26-oauth-endpoint-fallback",
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "authorization-server-migration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
    "client-credentials-jwt",
    "client-credentials-basic",
    "enterprise-managed-authorization",
    "wif-jwt-bearer",
    "dpop",
    "dpop-nonce",
)
"""All of the suite."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_check_of_a_scenario_passes(scenario: str, tmp_path: Path) -> None:
    try:
        suite = find_suite()
    except SuiteMissing as missing:
        pytest.skip(str(missing))
    client = shlex.join([sys.executable, "-m", "tests.conformance.sign_in_client"])
    command = [
        *(str(suite.node), str(suite.script), "client", "--command", client),
        *("--scenario", f"auth/{scenario}", "--timeout", "240000", "-o", str(tmp_path)),
    ]
    path = f"{suite.node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    ran = subprocess.run(
        command,
        capture_output=True,
        cwd=REPOSITORY,
        env={**os.environ, "PATH": path},
        timeout=300,
        check=False,
    )
    (results,) = tmp_path.rglob("checks.json")
    checks = json.loads(results.read_text("utf-8"))
    lost = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    assert not lost, ran.stdout.decode()[-4_000:]
    assert any(check["status"] == "SUCCESS" for check in checks)
    # Where the peer lies, signing in fails, and the client says so.
    assert ran.returncode in (0, 1)
