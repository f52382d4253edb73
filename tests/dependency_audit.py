"""Ask the public databases of vulnerabilities about every locked dependency.

`python -m tests.dependency_audit PIP_AUDIT`: exit status 1 where a locked version has a known
vulnerability. Where no
database answers within the time limit it says so, and the status is 0: a build does not depend on
another's service.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements/dev.lock", "requirements/audit.lock")
SERVICES = ("pypi", "osv")
LIMIT_S = 120.0
"""For one database; pip-audit asks it about one package after the other."""
SOCKET_S = 15


def audit(program: str, options: Sequence[str] = (), limit_s: float = LIMIT_S) -> int:
    """Run pip-audit against each database until one has answered about at least one dependency."""
    for service in SERVICES:
        found, trouble = _ask(program, service, options, limit_s)
        skipped = [one["name"] for one in found if "skip_reason" in one]
        if not found or len(skipped) == len(found):
            # A registry that knows no vulnerabilities "skips" each package, and pip-audit calls
            # that a success.
            print(f"NOT AUDITED by {service}: {trouble or 'it knows none of the dependencies'}")
            continue
        if skipped:
            print(f"NOT AUDITED by {service}, unknown there: {', '.join(skipped)}")
        vulnerable = [one for one in found if one.get("vulns")]
        for one in vulnerable:
            for known in one["vulns"]:
                fixed = ", ".join(known.get("fix_versions") or ()) or "no version yet"
                print(
                    f"VULNERABLE: {one['name']} {one['version']}: {known['id']}, fixed in {fixed}"
                )
        print(
            f"{len(found) - len(skipped)} dependencies audited by {service}, "
            f"{len(vulnerable)} vulnerable"
        )
        return 1 if vulnerable else 0
    print(
        "NOT AUDITED: no database of vulnerabilities could be reached. The "
        "dependencies may have known vulnerabilities."
    )
    return 0


def _ask(
    program: str, service: str, options: Sequence[str], limit_s: float
) -> tuple[list[dict[str, Any]], str]:
    """Each dependency as pip-audit reports it, or none and why."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        command = [program, "--vulnerability-service", service, "--disable-pip", "--require-hashes"]
        command += [
            "--progress-spinner",
            "off",
            "--timeout",
            str(SOCKET_S),
            "--format",
            "json",
            "--output",
            str(answer),
        ]
        for lock in LOCKS:
            command += ["--requirement", lock]
        try:
            ended = subprocess.run(
                [*command, *options],
                cwd=ROOT,
                timeout=limit_s,
                capture_output=True,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [], f"no answer within {limit_s:g} s"
        except OSError as error:
            return [], f"{program}: {error.strerror}"
        if not answer.is_file():
            said = ended.stderr.strip().splitlines()
            return [], said[-1] if said else f"pip-audit ended with {ended.returncode}"
        return json.loads(answer.read_bytes())["dependencies"], ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the pip-audit to run")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="seconds for one database")
    parser.add_argument(
        "options",
        nargs="*",
        help="further options of pip-audit, after --, such as --ignore-vuln ID",
    )
    given = parser.parse_args()
    return audit(given.program, given.options, given.limit_s)


if __name__ == "__main__":
    sys.exit(main())
