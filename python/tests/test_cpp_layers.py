"""C++ files include in the order of docs/architecture.md and in no circle, and planners know no baseline."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

import circles

ROOT = Path(__file__).parents[2]
SHELLS = ("cli", "python/bindings")
# The folders that may name planners as C++ functions. All others find them in the registry, by name.
PLANNERS = ("planners", "baselines", "registry")
# The memory rule as the graph has it (docs/model.md). It is read by what reads, writes, makes and copies
# graphs, by the simulator, and by shells, which show a graph to users. All others ask src/model.
RULE = re.compile(r"\.(?:workspace|generator_state)\b|\.over(?:\[|\.)")
RULE_ROOMS = ("include", "graph", "io", "generate", "c", "model", *SHELLS)
RULE_FILES = {
    "src/plan/simulate.cc",
    "src/exact/unrolled.cc",  # graphs of plans, some thousand a second
    "src/baselines/hiremate/planner_solver.cc",  # graphs of groups
}
# Text by path from the root of the repository.
Sources = Mapping[str, str]


def sources() -> dict[str, str]:
    found = [
        path
        for folder in ("src", "include", *SHELLS)
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".h", ".cc")
    ]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}


def layers(page: str) -> list[str]:
    """The folders of src from the bottom up, as the list of the page has them."""
    listed = page.partition("## The core, from the bottom up")[2].partition("\n`cli/`")[0]
    return re.findall(r"\*\*(\w+)\*\*", listed)


def order() -> list[str]:
    return layers((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


def code(text: str) -> str:
    """Without comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def included(name: str, files: Sources) -> list[str]:
    """The paths of our files that a file includes."""
    found: list[str] = []
    for written in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', code(files[name]), re.MULTILINE):
        beside = posixpath.normpath(f"{posixpath.dirname(name)}/{written}")
        paths = [path for path in (beside, f"src/{written}", f"include/{written}") if path in files]
        found += paths[:1]
    return found


def room(path: str) -> str:
    """The folder of src, "include", or the shell that a file belongs to."""
    shell = next((each for each in SHELLS if path.startswith(f"{each}/")), None)
    return shell or (path.split("/")[1] if path.startswith("src/") else "include")


def misplaced(files: Sources, order: list[str]) -> list[str]:
    """Includes against the order; of public headers and of shells, those of what is not public."""
    found = []
    for name in files:
        own = room(name)
        for path in included(name, files):
            to = room(path)
            if to in ("include", own):
                continue
            is_public_only = own == "include" or own in SHELLS
            is_upward = is_public_only or to in SHELLS or order.index(to) > order.index(own)
            if is_upward or (to in PLANNERS and own not in PLANNERS):
                found.append(f"{name} -> {path}")
    return found


def circle(files: Sources) -> list[str]:
    """The files of a circle of includes, or []."""
    return circles.circle({name: included(name, files) for name in files})


def baselines(files: Sources) -> set[str]:
    """The names under which baselines are registered."""
    names: set[str] = set()
    for name, text in files.items():
        if room(name) == "baselines":
            names.update(re.findall(r'PlannerInfo info\(\) \{[^"]*"(\w+)"', text))
    return names


def calls_by_name(files: Sources) -> list[str]:
    """Names of baselines in files of planners, which could only be there to run them."""
    known = baselines(files)
    return [
        f'{name}: "{text}"'
        for name in files
        if room(name) == "planners"
        for text in re.findall(r'"(\w+)"', code(files[name]))
        if text in known
    ]


def reads_the_rule(files: Sources) -> list[str]:
    """Files that read the rule of the memory model and need not."""
    return [
        name
        for name, text in files.items()
        if room(name) not in RULE_ROOMS and name not in RULE_FILES and RULE.search(code(text))
    ]


def test_the_page_lists_every_folder() -> None:
    folders = {path.name for path in (ROOT / "src").iterdir() if path.is_dir()}
    assert sorted(order()) == sorted(folders)


def test_files_include_what_is_below_them_only() -> None:
    assert misplaced(sources(), order()) == []


def test_includes_go_in_no_circle() -> None:
    assert circle(sources()) == []


def test_planners_call_no_baseline_by_name() -> None:
    folders = {path.name for path in (ROOT / "src" / "baselines").iterdir()}
    # `checkmate` has two of them.
    assert {name.removesuffix("_lp").removesuffix("_milp") for name in baselines(sources())} == folders
    assert calls_by_name(sources()) == []


def test_the_rule_of_memory_is_read_in_one_place() -> None:
    files = sources()
    assert reads_the_rule(files) == []
    assert all(RULE.search(code(files[name])) for name in RULE_FILES)
    # What the simulator says must not rest on what it is compared with.
    for judge in ("src/plan/simulate.cc", "src/plan/validate.cc"):
        assert [path for path in included(judge, files) if room(path) == "model"] == []


def test_what_these_tests_look_for_is_found() -> None:
    files = {
        "include/remat/graph.h": '#include "base/sorted.h"',
        "src/base/sorted.h": '#include "remat/graph.h"  // #include "plan/plan.h"',
        "src/plan/plan.h": '#include <vector>\n#include "base/sorted.h"',
        "src/planners/auto/auto.cc": '#include "baselines/chen/chen.h"\nrun("chen");  // "dtr"',
        "src/baselines/chen/chen.h": "",
        "src/baselines/chen/chen.cc": 'PlannerInfo info() {\n  return {"chen",',
        "src/sweep/sweep.cc": '#include "planners/auto/auto.h"\n#include "plan/plan.h"',
        "src/planners/auto/auto.h": "",
        "src/model/step.h": "graph.workspace[op]",
        "src/polish/polish.cc": "for (const Over& pair : graph.over[op])  // graph.workspace[op]",
        "cli/plan.cc": '#include "plan/plan.h"\n#include "common.h"\n#include "remat/graph.h"',
        "cli/common.h": "",
        "python/bindings/plan.cc": '#include "../../cli/common.h"\n#include "base/sorted.h"',
    }
    page = (
        "## The core, from the bottom up\n- **base**: a\n- **plan**: b\n- **planners**: c. **baselines**: d\n"
    )
    page += "- **sweep**: e\n- **model**, **polish**: f\n\n`cli/` is **thin**"
    assert layers(page) == ["base", "plan", "planners", "baselines", "sweep", "model", "polish"]
    assert reads_the_rule(files) == ["src/polish/polish.cc"]
    assert misplaced(files, layers(page)) == [
        "include/remat/graph.h -> src/base/sorted.h",
        "src/planners/auto/auto.cc -> src/baselines/chen/chen.h",
        "src/sweep/sweep.cc -> src/planners/auto/auto.h",
        "cli/plan.cc -> src/plan/plan.h",
        "python/bindings/plan.cc -> cli/common.h",
        "python/bindings/plan.cc -> src/base/sorted.h",
    ]
    assert circle(files) == ["src/base/sorted.h", "include/remat/graph.h"]
    assert calls_by_name(files) == ['src/planners/auto/auto.cc: "chen"']
