"""`tools/snippets.py`: pages that do not do what they show are found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "snippets.py"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="the tests run without the repository's tools")


@pytest.fixture
def page():
    """A page inside the repository, as the tool names pages by their place in it."""
    made = ROOT / "build" / f"snippets_{id(object())}.md"
    made.parent.mkdir(exist_ok=True)
    yield made
    made.unlink(missing_ok=True)


def run(page: Path, text: str) -> subprocess.CompletedProcess[str]:
    page.write_text(text)
    return subprocess.run([sys.executable, str(TOOL), str(page)], capture_output=True, text=True)


@pytest.mark.parametrize(
    "text",
    [
        "```sh\necho one\ntrue\n```\n```output\none\n```\n",
        "```python\nprint(6 * 7, 'is it')\n```\n```output\n4... is it\n```\n",
        "```console\n$ echo a; echo b\na\n...\n```\n",
        "```python\nx = 1\n```\n```python\nassert x == 1\n```\n",
    ],
)
def test_what_is_true_passes(page: Path, text: str) -> None:
    done = run(page, text)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```sh\nfalse\ntrue\n```\n", "exit code 1"),
        ("```sh\nfalse | true\n```\n", "exit code 1"),
        ("```sh\necho one\n```\n```output\ntwo\n```\n", "other output"),
        ("```python\nprint(1)\n```\n```output\n2\n```\n", "other output"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```output\n1\n```\n", "output of no block"),
        ("```console\n$ echo a\nb\n```\n", "other output"),
        ("```json\n{\n```\n", "Expecting"),
        ("```\nremat plan g.json\n```\n", "a command in a block without a language"),
        ("```bash\ntrue\n```\n", "unknown language"),
        ("<!-- snippet: sometimes -->\n```sh\ntrue\n```\n", "unknown directive"),
    ],
)
def test_what_is_false_fails_with_its_place(page: Path, text: str, reason: str) -> None:
    done = run(page, text)
    assert done.returncode == 1
    assert reason in done.stderr
    assert page.name in done.stderr


def test_a_skipped_block_is_printed_with_its_reason(page: Path) -> None:
    done = run(page, "<!-- snippet: skip it takes an hour -->\n```sh\nfalse\n```\n")
    assert done.returncode == 0
    assert f"{page.name}:2: skipped: it takes an hour" in done.stdout
