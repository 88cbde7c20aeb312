#!/bin/sh
# Planning with four threads under the thread sanitizer, on three graphs: `tools/thread_check.sh BUILD`.
set -eu
build=$1
# Solvers that are not instrumented (HiGHS, CP-SAT) would be reported falsely.
export TSAN_OPTIONS="halt_on_error=1 ignore_noninstrumented_modules=1"

"$build/remat" generate unet --depth 3 -o "$build/unet.json" >/dev/null
"$build/remat" generate gpt --depth 4 -o "$build/gpt.json" >/dev/null
"$build/remat" generate random_layered --nodes 100 -o "$build/layered.json" >/dev/null
plan() {
  graph=$1
  shift
  # 3: nothing found within the limit, which is as good here.
  "$build/remat" plan "$build/$graph.json" --threads 4 --time-limit 4s "$@" >"$build/thread_check.log" 2>&1 ||
    [ $? = 3 ] || {
    cat "$build/thread_check.log" >&2
    echo "threads: $graph $*: FAILED" >&2
    exit 1
  }
  echo "threads: $graph $*: clean"
}
# Within reach of all three: the floor of the smallest GPT is at three quarters.
for graph in unet gpt layered; do
  plan $graph --planner search --budget 85%
  plan $graph --planner search --budget 85% --order free
  plan $graph --planner search --objective peak
  plan $graph --planner auto --budget 85%
done
