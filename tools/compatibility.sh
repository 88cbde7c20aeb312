#!/bin/sh
# Runs the PyTorch tests with other versions of PyTorch, one after the other: `tools/compatibility.sh VERSION...`,
# for instance `tools/compatibility.sh 2.10.0 2.15.0`. Writes a row for each into docs/compatibility.md. Needs
# `make build`. Most versions are CUDA builds: an environment takes 5 GB, in build-compat, and is removed after
# its run; KEEP=1 keeps it. TESTS="FILE..." runs those files alone, which the row then says.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || {
  sed -n '2,5s/^# //p' "$0" >&2
  exit 64
}
tests=${TESTS:-}
python=.venv/bin/python
"$python" -c 'import remat' || {
  echo "compatibility: the package is not built: run make build" >&2
  exit 1
}

make_environment() {
  [ -x "$environment/bin/python" ] || "$python" -m venv "$environment"
  grep -v '^torch=' requirements.txt >"$environment/requirements.txt"
  pip="$environment/bin/python -m pip install --disable-pip-version-check -qq"
  $pip "torch==$version" -r "$environment/requirements.txt"
  # The built package of this checkout: its extension does not depend on PyTorch.
  $pip --no-build-isolation --no-deps --config-settings=wheel.cmake=false --config-settings=wheel.py-api= \
    --config-settings=editable.mode=inplace --editable .
}

failed=0
for version in "$@"; do
  environment=build-compat/$version
  echo "compatibility: PyTorch $version: environment"
  make_environment
  echo "compatibility: PyTorch $version: ${tests:-all tests}"
  rm -f "build-compat/$version.xml"
  # shellcheck disable=SC2086  # a list of files
  OMP_NUM_THREADS=1 "$environment/bin/python" -m pytest -q -p no:cacheprovider \
    --junitxml="build-compat/$version.xml" ${tests:-python/tests/torch} >"build-compat/$version.log" 2>&1 || failed=1
  tail -n 1 "build-compat/$version.log"
  # shellcheck disable=SC2086
  "$environment/bin/python" tools/compatibility.py "build-compat/$version.xml" $tests || failed=1
  [ "${KEEP:-}" ] || rm -rf "$environment"
done
exit $failed
