#!/bin/sh
# Random input for the readers and the command line under sanitizers: `tools/fuzz.sh [INPUTS [SEED]]`.
# With a clang that has libFuzzer (Debian: clang-14 libclang-rt-14-dev) its coverage leads the way and what it
# learned is kept in build-fuzz/corpus; any other compiler gets the project's own mutator.
set -eu
cd "$(dirname "$0")/.."
inputs=${1:-1000000}
seed=${2:-1}

has_libfuzzer() {
  command -v "$1" >/dev/null &&
    printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n' |
    "$1" -fsanitize=fuzzer -x c++ - -o /dev/null 2>/dev/null
}
compiler=
for one in ${CXX:-} clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14; do
  if has_libfuzzer "$one"; then
    compiler=$one
    break
  fi
done
[ -n "$compiler" ] && echo "fuzz: libFuzzer of $compiler" || echo "fuzz: no libFuzzer found, the project's own mutator"

cmake --preset fuzz -DPython_EXECUTABLE="$PWD/.venv/bin/python" ${compiler:+-DCMAKE_CXX_COMPILER="$compiler"} >/dev/null
ninja -C build-fuzz --quiet remat_fuzz
mkdir -p build-fuzz/findings
fuzz() { # KIND RUNS
  mkdir -p "build-fuzz/corpus/$1"
  build-fuzz/tests/fuzz/remat_fuzz -runs="$2" -seed="$seed" -dict="$PWD/tests/fuzz/dictionary" -timeout=20 \
    -rss_limit_mb=4096 -max_len=4096 -artifact_prefix="$PWD/build-fuzz/findings/" \
    "$PWD/build-fuzz/corpus/$1" "$PWD/tests/fuzz/corpus/$1" >"build-fuzz/$1.log" 2>&1 || {
    tail -60 "build-fuzz/$1.log"
    echo "fuzz: a finding in $1; its input is in build-fuzz/findings" >&2
    exit 1
  }
  echo "fuzz: $2 $1, no finding"
}
# A command line plans, and takes a hundred times as long as a file.
commands=$((inputs / 100))
fuzz files $((inputs - commands))
fuzz commands "$commands"
