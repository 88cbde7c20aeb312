"""What a distribution holds."""

import os
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_source_distribution_holds_every_module_and_no_tests(tmp_path, monkeypatch, capfd):
    build = pytest.importorskip("scikit_build_core.build", reason="scikit-build-core is not installed")
    monkeypatch.chdir(ROOT)
    name = build.build_sdist(os.fspath(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        held = {Path(*Path(member).parts[1:]) for member in archive.getnames()}
    modules = {path.relative_to(ROOT) for path in (ROOT / "python" / "remat").rglob("*.py")}
    assert modules
    assert modules <= held
    assert not [path for path in held if path.parts[0] in ("tests", "bench")]
