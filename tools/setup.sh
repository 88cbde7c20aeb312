#!/bin/sh
# Makes .venv and the C++ libraries that a build needs: `tools/setup.sh [PYTHON [build]]`, with `build` only what
# compiling needs. Run again, it only adds what is missing. Needs Python 3.10 or newer and a C++20 compiler; never
# asks for more rights than it has.
set -eu
cd "$(dirname "$0")/.."
python=${1:-python3}

say() { printf 'setup: %s\n' "$1"; }
fail() {
  printf 'setup: %s\n' "$1" >&2
  exit 1
}
. tools/apt.sh

check_python() {
  command -v "$python" >/dev/null || fail "there is no $python: install Python 3.10 or newer, or pass PYTHON=..."
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$("$python" --version) is too old: Python 3.10 or newer is needed, pass PYTHON=..."
}

check_compiler() {
  printf '#include <compare>\n#include <span>\nint main() { return 0 <=> 0 == 0 ? 0 : 1; }\n' |
    ${CXX:-c++} -std=c++20 -x c++ -fsyntax-only - 2>/dev/null ||
    fail "${CXX:-c++} is no C++20 compiler: install g++ 11 or clang 14 or newer, or set CXX"
}

make_venv() {
  [ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1 && return
  say "virtual environment .venv"
  rm -rf .venv
  "$python" -m venv .venv >/dev/null 2>&1 && return
  rm -rf .venv
  package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if can_apt && { apt_install "$package" || apt_install python3-venv; } && "$python" -m venv .venv; then return; fi
  rm -rf .venv
  fail "$python cannot make a virtual environment (no ensurepip): install $package, or pass PYTHON=..."
}

has_header() { printf '#include <%s>\n' "$1" | ${CXX:-c++} -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; }
install_libraries() {
  packages=
  has_header nlohmann/json.hpp || packages="$packages nlohmann-json3-dev"
  has_header CLI/CLI.hpp || packages="$packages libcli11-dev"
  has_header gtest/gtest.h || packages="$packages libgtest-dev"
  has_header benchmark/benchmark.h || packages="$packages libbenchmark-dev"
  [ -n "$packages" ] || return 0
  if can_apt; then
    say "C++ libraries:$packages"
    # shellcheck disable=SC2086  # a list of words
    apt_install $packages && return
  fi
  say "not installed, CMake will fetch what it needs:$packages"
}

# For the tests of the page of reports; they are skipped, with the reason, where there is none.
install_browser() {
  if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || ! can_apt; then return 0; fi
  say "chromium, for the tests of the page"
  apt_install chromium || say "chromium was not installed: the tests of the page will be skipped"
}

# For the checks of its sources, which are skipped, with a message, where these are not there.
install_page_tools() {
  if { command -v esbuild && command -v tsc; } >/dev/null || ! can_apt; then return 0; fi
  say "esbuild and tsc, for the checks of the page"
  apt_install esbuild node-typescript || say "not installed: the checks of the page will be skipped"
}

# Python compiles a module when it is first imported: most of what is installed never is.
pip_install() { .venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile "$@"; }

check_python
check_compiler
make_venv
if [ "${2:-}" = build ]; then say "what the build needs"; fi
sed -n '/^# Build$/,/^# Run and test$/p' requirements.txt >.venv/build.txt
pip_install -r .venv/build.txt
install_libraries
[ "${2:-}" = build ] && exit
say "Python packages of requirements.txt (PyTorch among them: a few minutes the first time)"
pip_install -r requirements.txt
say "package remat, from this folder"
pip_install --no-build-isolation --no-deps \
  --config-settings=wheel.cmake=false --config-settings=wheel.py-api= --config-settings=editable.mode=inplace --editable .
install_browser
install_page_tools
