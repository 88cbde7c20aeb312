#!/bin/sh
# Builds the command line for 64-bit Arm on another machine, with Debian's cross compiler, into build-arm64/:
# `tools/arm64.sh [CMAKE_OPTION ...]`. docs/install.md says how it runs there. On an Arm machine it is not needed.
set -eu
cd "$(dirname "$0")/.."
. tools/apt.sh

fail() {
  printf 'arm64: %s\n' "$1" >&2
  exit 1
}
[ -x .venv/bin/python ] || fail "there is no .venv: run 'make build' or tools/setup.sh first"
if ! command -v aarch64-linux-gnu-g++ >/dev/null; then
  can_apt && apt_install g++-aarch64-linux-gnu || fail "there is no aarch64-linux-gnu-g++: install g++-aarch64-linux-gnu"
fi
highs=$(grep -o 'highsbox==[0-9.]*' requirements.txt)
.venv/bin/python -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
  --platform manylinux2014_aarch64 -d build-arm64/highs "$highs"
.venv/bin/python -m zipfile -e build-arm64/highs/highsbox-*.whl build-arm64/highs
# HiGHS needs zlib when it runs; it does not come with the cross compiler.
.venv/bin/cmake -S . -B build-arm64 -G Ninja -DCMAKE_MAKE_PROGRAM="$PWD/.venv/bin/ninja" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
  -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined -DREMAT_TESTS=OFF -DREMAT_SHARED=OFF -DREMAT_INSTALL=OFF \
  -DREMAT_HIGHS_ROOT="$(echo "$PWD"/build-arm64/highs/*.data/purelib/highsbox/highs_dist)" "$@" >/dev/null
.venv/bin/cmake --build build-arm64 --target remat_cli
echo "arm64: build-arm64/remat"
