"""Fails on a symbol of a library that is not of its API, and on a C function that is missing.

    exports.py LIBRARY HEADERS

LIBRARY is libremat.a or libremat.so, HEADERS the folder include/remat. Of the API are the functions of c.h,
and what is in the namespace remat under a name that a header has.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MOST_C_FUNCTIONS = 15


def exported(library: Path) -> set[str]:
    """Mangled names of what the library defines for others."""
    table = "--dynamic" if ".so" in library.name else "--extern-only"
    listed = subprocess.run(
        ["nm", table, "--defined-only", "--format=posix", str(library)],
        check=True,
        capture_output=True,
        text=True,
    )
    return {line.split()[0] for line in listed.stdout.splitlines() if line and not line.endswith(":")}


def demangled(symbols: list[str]) -> list[str]:
    filtered = subprocess.run(
        ["c++filt"], input="\n".join(symbols), check=True, capture_output=True, text=True
    )
    return filtered.stdout.splitlines()


def without_arguments(name: str) -> str:
    """remat::Rows<remat::Id<Tag>, int>::row(int) to remat::Rows::row."""
    name = re.sub(r"\[abi:\w+\]", "", name)
    name = re.sub(r"\boperator\W.*", "operator", name)
    depth, kept = 0, ""
    for character in name:
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif depth == 0:
            kept += character
    return kept.split("(")[0]


def is_of_api(name: str, words: set[str]) -> bool:
    name = re.sub(r"^(typeinfo|typeinfo name|vtable) for ", "", name)
    name = re.sub(r"^void (?=remat::)", "", name)  # of a template's instance the result is named too
    if not name.startswith("remat::"):
        return False
    return all(part.lstrip("~") in words for part in without_arguments(name).split("::")[1:])


def main() -> int:
    library, headers = Path(sys.argv[1]), Path(sys.argv[2])
    c_functions = set(re.findall(r"\b(remat_\w+)\(", (headers / "c.h").read_text()))
    words = {word for header in headers.glob("*.h") for word in re.findall(r"\w+", header.read_text())}
    symbols = sorted(exported(library))
    names = dict(zip(symbols, demangled(symbols), strict=True))
    faults = [f"{name} is exported and not of the API" for symbol, name in names.items()
              if symbol not in c_functions and not is_of_api(name, words)]  # fmt: skip
    faults += [f"{name} is not exported" for name in sorted(c_functions - set(symbols))]
    if len(c_functions) > MOST_C_FUNCTIONS:
        faults.append(f"c.h has {len(c_functions)} functions, more than {MOST_C_FUNCTIONS}")
    for fault in faults:
        print(f"{library.name}: {fault}")
    counts = f"{len(symbols)} symbols, {len(c_functions)} of them C functions, {len(faults)} faults"
    print(f"{library.name}: {counts}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
