#!/bin/sh
# Builds the documentation site, `make docs`: pages of docs/, docstrings of the package, comments of the public
# headers. Warnings are errors. Nothing is fetched but doxygen, once, where it is missing and apt-get may be used.
set -eu
cd "$(dirname "$0")/.."
. tools/apt.sh

if ! command -v doxygen >/dev/null; then
  if ! can_apt || ! apt_install doxygen; then
    echo "docs: there is no doxygen: install it (apt-get install doxygen, brew install doxygen)" >&2
    exit 1
  fi
fi
echo "docs: headers"
mkdir -p build/docs
doxygen docs/Doxyfile
echo "docs: pages"
.venv/bin/python -m sphinx -q -E -a -W --keep-going -b html -d build/docs/doctrees docs build/docs/html
echo "docs: build/docs/html/index.html"
