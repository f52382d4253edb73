"""Which tests stand for which finding of the security review of 0.1.0."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FINDINGS: dict[int, tuple[str, ...]] = {
    1: ("schema_explanations", "schema_cost", "nearest_names", "hostile_patterns"),
    2: ("path_weight",),
    3: ("shared_state",),
    4: ("elicitation_origin",),
    5: ("changed_definitions", "rug_pulls"),
    6: ("credential_origins",),
    7: ("resource_scope",),
    8: ("secret_masking",),
    9: ("fair_scripts",),
    10: ("large_result_fairness",),
    11: ("session_shares",),
    12: ("unread_answers",),
    13: ("written_files",),
    14: ("approvals", "rules", "every_path_asks_the_rules"),
    15: ("python_jail",),
    16: ("configuration_files",),
    17: ("inherited_descriptors",),
    18: ("audit_completeness",),
    19: ("large_definitions", "schema_explanations"),
    20: ("wrong_tokens",),
    21: ("foreign_origins", "client_meta", "foreign_links", "script_calls", "locked_dependencies"),
}
"""Modules of this folder by the number of the finding, without `test_`."""


@pytest.mark.parametrize("number", range(1, 22))
def test_a_finding_has_tests(number: int) -> None:
    for name in FINDINGS[number]:
        tree = ast.parse((HERE / f"test_{name}.py").read_text("utf-8"))
        tests = [
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        assert any(test.startswith("test_") for test in tests), name
