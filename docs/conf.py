"""The documentation site: `make docs` builds it from these pages into build/docs/html."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

project = "Remat"
author = "the Remat authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "breathe", "sphinx_copybutton"]
exclude_patterns = ["requirements.txt"]
# Every header opens the namespace `remat`.
suppress_warnings = ["duplicate_declaration.cpp"]

myst_heading_anchors = 3
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
smartquotes = False
python_maximum_signature_line_length = 80
cpp_maximum_signature_line_length = 80

html_theme = "furo"
html_title = "Remat"
html_copy_source = False


def front_page(app: Any, docname: str, source: list[str]) -> None:
    """The README is the front page: its text goes before the contents, its links start from here."""
    if docname == "index":
        readme = (ROOT / "README.md").read_text()
        readme = re.sub(r"\]\((?!https?://|#)(?:docs/)?", lambda m: "](" if "docs" in m[0] else "](../", readme)
        source[0] = readme + "\n" + source[0]


def setup(app: Any) -> None:
    app.connect("source-read", front_page)
