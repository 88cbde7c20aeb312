"""The table of docs/compatibility.md: rows from reports of pytest."""

from __future__ import annotations

import importlib.util
import platform
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "compatibility.py"
if not TOOL.exists():
    pytest.skip("there is no tools/compatibility.py beside an installed package", allow_module_level=True)
spec = importlib.util.spec_from_file_location("compatibility", TOOL)
assert spec is not None
assert spec.loader is not None
compatibility = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compatibility)

REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"/><testcase name="c"><failure message="no"/></testcase>
<testcase name="d"><error message="no fixture"/></testcase>
<testcase name="e"><skipped message="x | y is missing"/></testcase>
<testcase name="f"><skipped message="x | y is missing"/></testcase>
</testsuite></testsuites>"""


def test_a_row_counts_tests_and_says_why_some_were_skipped() -> None:
    root = ElementTree.fromstring(REPORT)
    python = platform.python_version()
    row = compatibility.row(root, "2.11.0+cpu", [])
    assert row == f"| 2.11.0+cpu | {python} | all | 6 | 2 | 2 | 2: x / y is missing |"
    row = compatibility.row(root, "2.11.0+cpu", ["python/tests/torch/test_a.py", "test_b.py"])
    assert f"| {python} | test_a, test_b | 6 |" in row


def test_a_row_takes_the_place_of_the_one_for_its_release() -> None:
    head = f"a\n\n{compatibility.HEADER}\n|---|\n| 2.9.1 | 1 |\n"
    page = f"{head}| 2.10.0+cu128 | 2 |\n\nend\n"
    page = compatibility.with_row(page, "| 2.12.1 | 3 |")
    page = compatibility.with_row(page, "| 2.10.0+cpu | 4 |")
    assert page == f"{head}| 2.10.0+cpu | 4 |\n| 2.12.1 | 3 |\n\nend\n"


def test_the_page_has_the_table() -> None:
    page = compatibility.PAGE.read_text(encoding="utf-8")
    assert "| 9.9.9 | 1 |" in compatibility.with_row(page, "| 9.9.9 | 1 |").splitlines()
