"""The limits of workflows are written once, and told by whoever has to without entering the room."""

import subprocess
import sys

from portico.config import WorkflowConfig
from portico.meta_tools.tool_definitions import MAX_STEPS
from portico.workflows.limits import WorkflowLimits


def test_the_configuration_allows_by_itself_what_workflows_do():
    limits = WorkflowLimits()
    assert WorkflowConfig().model_dump() == {
        name: getattr(limits, name) for name in WorkflowConfig.model_fields
    }
    assert WorkflowConfig(steps=MAX_STEPS).steps == limits.steps


def test_telling_the_limits_enters_no_other_module_of_the_room():
    script = (
        "import sys, portico.meta_tools.tool_definitions\n"
        "print(*sorted(name for name in sys.modules if name.startswith('portico.workflows')))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.split() == ["portico.workflows", "portico.workflows.limits"]
