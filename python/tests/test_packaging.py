"""What a distribution holds and says of itself."""

import email.message
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from email import policy
from email.parser import BytesParser
from pathlib import Path

import pytest
import remat

ROOT = Path(__file__).parents[2]


@pytest.fixture
def build(monkeypatch):
    module = pytest.importorskip("scikit_build_core.build", reason="scikit-build-core is not installed")
    monkeypatch.chdir(ROOT)
    return module


@pytest.fixture
def metadata(build, tmp_path, capfd) -> email.message.EmailMessage:
    """What a wheel would say of itself."""
    pytest.importorskip("hatch_fancy_pypi_readme", reason="hatch-fancy-pypi-readme is not installed")
    folder = tmp_path / build.prepare_metadata_for_build_wheel(os.fspath(tmp_path))
    assert "WARNING" not in capfd.readouterr().err
    return BytesParser(policy=policy.default).parsebytes((folder / "METADATA").read_bytes())


def first(pattern: str, file: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert found, f"{file}: no {pattern}"
    return found[1]


def test_a_source_distribution_holds_every_module_the_licences_and_no_tests(build, tmp_path, capfd):
    name = build.build_sdist(os.fspath(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        held = {Path(*Path(member).parts[1:]) for member in archive.getnames()}
    modules = {path.relative_to(ROOT) for path in (ROOT / "python" / "remat").rglob("*.py")}
    assert modules
    assert modules <= held
    assert {Path("LICENSE"), Path("licenses/HiGHS.txt")} <= held
    assert not [path for path in held if path.parts[0] in ("tests", "bench")]


def test_a_wheel_names_its_licence_and_those_of_what_it_ships(metadata):
    assert metadata["License-Expression"].startswith("Apache-2.0")
    files = {f"licenses/{path.name}" for path in (ROOT / "licenses").iterdir()}
    assert set(metadata.get_all("License-File")) == {"LICENSE", *files}
    table = (ROOT / "licenses" / "THIRD_PARTY.md").read_text()
    for path in (ROOT / "licenses").glob("*.txt"):
        assert f"`{path.name}`" in table


def test_the_long_description_links_to_nothing_that_only_a_checkout_has(metadata):
    text = metadata.get_content()
    assert text.lstrip().startswith("# Remat")
    assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", text)


def test_all_places_name_the_same_version(metadata):
    assert metadata["Version"] == remat.__version__
    assert first(r"^project\(remat VERSION (\S+)", "CMakeLists.txt") == remat.__version__
    assert first(r"^version: (\S+)", "CITATION.cff") == remat.__version__
    assert first(r"^## \[([\d.]+)\]", "CHANGELOG.md") == remat.__version__


def test_wheels_are_tried_under_the_stable_abi_that_they_are_built_for():
    stable = first(r'^wheel\.py-api = "cp3(\d+)"', "pyproject.toml")
    assert first(r"^STABLE = (\d+)", "tools/wheels.py") == stable


def test_the_umbrella_header_includes_every_other_one():
    folder = ROOT / "include" / "remat"
    included = re.findall(r'#include "remat/(.*)"', (folder / "remat.h").read_text())
    assert included == sorted(path.name for path in folder.glob("*.h") if path.name not in ("c.h", "remat.h"))


@pytest.mark.parametrize(
    "preset",
    json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"],
    ids=lambda preset: preset["name"],
)
def test_every_preset_configures(preset, tmp_path):
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if cmake is None:
        pytest.skip("CMake is not installed")
    command = [cmake, "--preset", preset["name"], "-B", tmp_path, f"-DPython_EXECUTABLE={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
