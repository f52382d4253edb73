"""A few real packages from npm and PyPI, added from a registry and listed through Portico."""

import shutil

import pytest

from tests.registry.real_packages import IN_CI, PACKAGES, try_package


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("key", IN_CI)
def test_a_real_package_is_added_held_trusted_and_listed(key: str) -> None:
    package = next(one for one in PACKAGES if one.key == key)
    program = {"npm": "npx", "pypi": "uvx"}[package.kind]
    if shutil.which(program) is None:
        pytest.skip(f"SKIPPED LOUDLY: {program} is not installed here")
    assert try_package(package) == ""
