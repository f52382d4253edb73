"""The limits of workflows are written once, and told by whoever has to without entering the room."""

import subprocess
import sys

from portico.config import Workflow
from portico.disclosure.metatools import MAX_STEPS
from portico.execution.workflow.limits import Limits


def test_the_configuration_allows_by_itself_what_workflows_do():
    limits = Limits()
    assert Workflow().model_dump() == {name: getattr(limits, name) for name in Workflow.model_fields}
    assert Workflow(steps=MAX_STEPS).steps == limits.steps


def test_telling_the_limits_enters_no_other_module_of_the_room():
    script = (
        "import sys, portico.disclosure.metatools\n"
        "print(*sorted(name for name in sys.modules if name.startswith('portico.execution.workflow')))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == ["portico.execution.workflow", "portico.execution.workflow.limits"]
