# make demo    trains a GPT within a byte budget and compares it with eager PyTorch
# make demo-jax  the same with a small GPT of flax, within half of what the plain JAX step takes
# make test    the tests, C++ and Python
# make test-long  the tests that take long, and when they ran last (docs/testing.md)
# make build   the command line at build/remat, and the Python package
# make check   the fast checks: formats, lints, types, and every snippet of the documentation
# make format  puts C++ and Python sources into shape
# make page    the page of reports, page/report.html, from its sources; needs esbuild, tsc and biome
# make docs    the documentation site at build/docs/html, from docs/ and the docstrings
# make check-docs  both at once, which takes less time
# make wheels  wheels for this machine's Pythons in dist/, each tried where there is no compiler
# make bench   micro benchmarks
# make sanitize  the C++ tests under the address and undefined-behaviour sanitizers
# make sanitize-threads  planning with four threads under the thread sanitizer
# make fuzz    a million random inputs for the readers and the command line (FUZZ_INPUTS=N for another number)
# make differential  random tiny graphs against exact answers (GRAPHS=N SEED=S)
# make coverage  which lines of src and of the package the tests run
# make clean   removes what was built; `make distclean` the virtual environment too
# All but the last two set up what they need in .venv first.
PYTHON ?= python3
# The environment is called by its path, and programs it calls find each other.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# One line a phase; a terminal sees ninja count. Ninja uses all cores, whatever make's -j is.
NINJA := MAKEFLAGS= ninja $(if $(MAKE_TERMOUT),,--quiet)

.DELETE_ON_ERROR:
.PHONY: demo demo-jax test test-cpp test-python test-long build build-package build-all check format page docs check-docs wheels bench \
        sanitize sanitize-threads fuzz differential coverage clean distclean
# Targets share folders: one at a time, but for the two of `make -j2` below.
ifeq ($(MAKELEVEL),0)
.NOTPARALLEL:
endif

# The first time, Python packages are fetched while C++ is compiled.
build:
	@$(MAKE) -s --no-print-directory -j2 .venv/ready build-package
	@.venv/bin/python -m remat.torch.native || echo "native: not built, steps in eager mode go through Python"

demo: build
	@.venv/bin/python examples/train_gpt.py --page build/demo.html

demo-jax: build
	@.venv/bin/python examples/train_jax_gpt.py

build-package: build/build.ninja
	@echo "build: command line and Python package"
	@$(NINJA) -C build remat_cli _core_stub

build-all: build/build.ninja
	@echo "build: everything"
	@$(NINJA) -C build

test: test-cpp test-python

test-cpp:
	@$(MAKE) -s --no-print-directory -j2 .venv/ready build-all
	@tools/ctest.sh build

test-python: build
	@echo "test: Python"
	@.venv/bin/python -m pytest -q -n auto --maxprocesses 4 --dist worksteal -m "not long" python/tests
	@grep -h '^The last `make test-long`' docs/testing.md

test-long: build build-all
	@$(NINJA) -C build remat_differential
	@build/tests/remat_differential --graphs 1000
	@.venv/bin/python tools/test_long.py build

check: build
	@.venv/bin/python tools/check.py

format: .venv/ready
	@.venv/bin/python tools/check.py --fix format

page: .venv/ready
	@.venv/bin/python tools/page.py

docs: build .venv/docs-ready
	@tools/docs.sh

check-docs: build .venv/docs-ready
	@.venv/bin/python tools/check.py --docs

wheels: .venv/ready
	@.venv/bin/python tools/wheels.py $(PYTHONS)

bench: build-bench/build.ninja
	@echo "build: micro benchmarks"
	@$(NINJA) -C build-bench
	@build-bench/bench/micro/remat_micro

sanitize: build-sanitize/build.ninja
	@echo "build: with sanitizers"
	@$(NINJA) -C build-sanitize
	@tools/ctest.sh build-sanitize

sanitize-threads: build-thread/build.ninja
	@echo "build: with the thread sanitizer"
	@$(NINJA) -C build-thread remat_cli
	@tools/thread_check.sh build-thread

FUZZ_INPUTS ?= 1000000
fuzz: .venv/ready
	@tools/fuzz.sh $(FUZZ_INPUTS)

GRAPHS ?= 10000
SEED ?= 1
differential: build/build.ninja
	@$(NINJA) -C build remat_differential
	@build/tests/remat_differential --graphs $(GRAPHS) --seed $(SEED)

coverage: build
	@.venv/bin/python tools/coverage.py

clean:
	@rm -rf build build-bench build-sanitize build-thread build-fuzz build-coverage build-wheels dist python/remat/_core* python/remat/bin python/remat/libhighs.so \
	  python/remat/torch/eager/_passing*

distclean: clean
	@rm -rf .venv

.venv/build-ready: requirements.txt pyproject.toml tools/setup.sh
	@tools/setup.sh "$(PYTHON)" build
	@touch $@

.venv/ready: .venv/build-ready
	@tools/setup.sh "$(PYTHON)"
	@touch $@

.venv/docs-ready: docs/requirements.txt .venv/ready
	@echo "docs: Python packages of $<"
	@.venv/bin/python -m pip install -qq --disable-pip-version-check -r $<
	@touch $@

build/build.ninja: PRESET = release
build-bench/build.ninja: PRESET = bench
build-sanitize/build.ninja: PRESET = sanitize
build-thread/build.ninja: PRESET = thread-sanitize
build/build.ninja build-bench/build.ninja build-sanitize/build.ninja build-thread/build.ninja: .venv/build-ready CMakePresets.json
	@echo "configure: $(@D)"
	@cmake --preset $(PRESET) -DPython_EXECUTABLE="$(CURDIR)/.venv/bin/python" >/dev/null
	@touch $@
