"""The documentation site: `make docs` builds it from these pages into build/docs/html."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.util import logging

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

project = "Remat"
author = "Remat developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "breathe", "sphinx_copybutton"]
exclude_patterns = ["requirements.txt"]
# Every header opens the namespace `remat`.
suppress_warnings = ["duplicate_declaration.cpp"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
highlight_language = "none"
copybutton_prompt_text = "$ "

# Signatures and docstrings need no PyTorch: its names are stood in for.
autodoc_mock_imports = ["torch", "functorch"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_use_ivar = True

breathe_projects = {"remat": str(ROOT / "build" / "docs" / "doxygen" / "xml")}
breathe_default_project = "remat"
breathe_show_include = False

default_role = "code"
smartquotes_action = "D"  # dashes only
python_maximum_signature_line_length = 80
cpp_maximum_signature_line_length = 80

html_theme = "furo"
html_title = "Remat"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]


def toctree(caption: str, names: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", *names, "```", ""])


def from_readme() -> tuple[str, str, str]:
    """Of the README: its table of comparison, its table of pages, and that one as the menu of the site."""
    readme = (ROOT / "README.md").read_text()
    # Its links start from the repository, those of the front page from docs/.
    readme = re.sub(r"\]\((?!https?://|#)(docs/)?", lambda m: "](" if m[1] else "](../", readme)
    # Pages outside docs/ are not part of the site.
    readme = re.sub(r"\[[^]]+\]\(\.\./([\w/]+\.md)\)", r"`\1`", readme)
    compared, pages = (
        readme[found.start() :].split("\n\n")[0]
        for head in ("way", "to")
        for found in re.finditer(rf"^\| {head} \|", readme, re.M)
    )
    menu = ""
    for row in pages.splitlines()[2:]:
        what, links = row.strip("| ").split(" | ")
        menu += toctree(what.capitalize(), re.findall(r"\(([\w/]+)\.md\)", links))
    return compared, pages, menu


def complete_page(app: Any, docname: str, source: list[str]) -> None:
    """What a page has only in the site: the front page tables of the README, whose order is that of the menu;
    pages that are split a list of their parts.
    """
    if docname == "index":
        compared, pages, menu = from_readme()
        names = toctree("Names", ["api/python", "api/torch", "api/jax", "api/cpp"])
        source[0] += (
            f"\n{compared}\n\n[How this was measured, with every row](alternatives.md).\n\n## All pages\n\n{pages}\n{menu}{names}"
        )
    elif docname in ("planners/index", "results", "torch_results"):
        folder = "" if "/" in docname else f"{docname}/"
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n" + folder + "*\n```\n"


def check_reference(app: Any, env: Any) -> None:
    """Every public header and name has its place in docs/api."""
    import remat

    public = {
        "cpp": {header.name for header in ROOT.glob("include/remat/*.h")} - {"remat.h", "c.h", "export.h"},
        "python": {f"remat.{name}" for name in dir(remat) if not name.endswith("Error")},
        "torch": set(re.findall(r"(\w+) as \1", (ROOT / "python/remat/torch/__init__.py").read_text(), re.M)),
    }
    for page, names in public.items():
        text = (ROOT / f"docs/api/{page}.md").read_text()
        for name in sorted(names):
            if not re.search(rf":: (?:[\w.]+\.)?{re.escape(name)}$", text, re.M):
                logging.getLogger(__name__).warning("docs/api/%s.md lacks %s", page, name)


def setup(app: Any) -> None:
    app.connect("source-read", complete_page)
    app.connect("env-updated", check_reference)
