#!/bin/sh
# Runs the C++ tests of a build folder: `tools/ctest.sh BUILD`. Prints ctest's closing line and why tests were
# skipped, and on failure what the failing tests said.
set -eu
build=$1
log=$build/ctest.log
echo "test: C++ ($build)"
if ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(getconf _NPROCESSORS_ONLN)" >"$log" 2>&1; then
  grep 'tests passed' "$log"
  grep -A1 ': Skipped$' "$build/Testing/Temporary/LastTest.log" | grep -v -e ': Skipped$' -e '^--$' |
    sed 's|^"[^"]*/\.\./shared/[^"]*"|its file of ../shared|' | sort | uniq -c |
    while read -r count reason; do echo "skipped: $count tests: $reason"; done
else
  grep -vE '^ *[0-9]+/[0-9]+ Test .* Passed|^ *Start ' "$log" >&2
  exit 1
fi
