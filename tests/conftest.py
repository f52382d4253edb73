"""Settings and fixtures of all tests.

Tests run in parallel, on one worker more than there are processors; `pytest -n 0` runs them in one
process, and so do a single test (`path::name`) and `--pdb`.

Generated examples are the same in every run and have no deadline; `pytest
--hypothesis-profile=default` looks for new ones.
"""

import functools
import gc
import os
import ssl
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.gateways import ContextHolder


# As the program sets it; read when numpy is loaded. Threads of its products spin while they wait
# for each other, which on a busy machine takes thirty times the processor time of the product.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")
MAX_WORKERS = 8


LONG_FIRST = (
    "acceptance",
    "real_servers",
    "faults",
    "lifetime",
    "conformance",
    "fleet",
    "cli",
    "requirements",
    "interaction",
    "fuzz",
    "security",
)
"""Folders whose files take long: begun first, so that in the end no worker waits for another."""


def pytest_configure(config: pytest.Config) -> None:
    """Where no bytecode may be written beside the sources, keep it in pytest's cache folder.

    Otherwise each process that a test starts would compile all it imports.
    """
    cache = getattr(config, "cache", None)
    if os.environ.get("PYTHONDONTWRITEBYTECODE") and cache is not None:
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        os.environ["PYTHONPYCACHEPREFIX"] = str(cache.mkdir("bytecode"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the modules and the tests, which stay: it would walk
    through all of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take long first; within a folder all stays as it was."""

    def get_rank(item: pytest.Item) -> int:
        for rank, folder in enumerate(LONG_FIRST):
            if folder in item.path.parts:
                return rank
        return len(LONG_FIRST)

    items.sort(key=get_rank)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers; 0 means this process. Most tests wait for other processes."""
    if config.args and all("::" in argument for argument in config.args):
        return 0
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    return min((processors or 1) + 1, MAX_WORKERS)


@pytest.fixture(autouse=True, scope="session")
def trusted_certificates() -> Iterator[None]:
    """Let every HTTP client of a process share the certificates that it trusts: each would take
    40 ms of the processor to read them."""
    import httpcore2

    read = httpcore2.default_ssl_context

    @functools.cache
    def read_once(trusts_environment: bool, *_: str | None) -> ssl.SSLContext:
        return read(_trust_env=trusts_environment)

    def get_context(*, _trust_env: bool = True) -> ssl.SSLContext:
        named = (os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        return read_once(_trust_env, *named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", get_context)
        yield


@pytest_asyncio.fixture
async def contexts() -> AsyncGenerator["ContextHolder"]:
    """Keeps async contexts, such as `open_gateway`, open until the test ends."""
    # Imported here: most tests need no gateway, and every worker would import it.
    from tests.gateways import ContextHolder

    holder = ContextHolder()
    yield holder
    await holder.close()
