"""The tests run the package of this checkout, or an installed one: never that of another checkout."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import remat
from hypothesis import settings

settings.register_profile("fixed", derandomize=True)  # no test depends on chance
settings.load_profile("fixed")
HERE = Path(__file__).resolve().parents[1]


def pytest_sessionstart() -> None:
    package = Path(remat.__file__).resolve().parent
    if package.parent != HERE and "site-packages" not in package.parts:
        pytest.exit(
            f"remat is imported from {package}, not from {HERE}: the environment's _editable_skbc_remat.py "
            "names another checkout; run tools/setup.sh",
            returncode=2,
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what is dear to make (`xdist_group`) come first. Of several processes (`--dist
    worksteal`) the first one begins with them, and what others take from it later is from the end.
    """
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture
def ctrl_c_works() -> Iterator[None]:
    """A shell starts background jobs with SIGINT ignored, and Python then leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# Before any test of this process adds to them.
_SHIPPED = [planner.name for planner in remat.planners()]


@pytest.fixture
def shipped_planners() -> list[str]:
    """Names of the planners that Remat comes with, whatever tests have registered."""
    return list(_SHIPPED)
