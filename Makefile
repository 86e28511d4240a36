# `make help` lists the targets. The default target is install.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
SOURCES := $(shell find src build_support -name '*.py' -o -name '*.pxd') setup.py pyproject.toml MANIFEST.in README.md
# Files are started in the order of tests/conftest.py: the slow ones first.
# Spark gives a Python worker ten seconds to start, which no setting changes: a busy machine may need more.
PYTEST := $(PY) -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder \
	--reruns 2 --only-rerun "Python worker failed to connect back"
ASAN = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:suppressions=$(CURDIR)/tests/sanitizers.supp PYTHONMALLOC=malloc

# Of these packages, the tests of units run compiled with sanitizers, so not a third time without.
SANITIZED := $(addprefix tests/,structures streams arrow resp fuzz persistence)

# Without its cache, Python compiles all of PySpark and of the tests again in each process.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := install

help:                           ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed     ## make .venv with the program, the tools and all that the tests need

# What compiling needs. The rest is downloaded and unpacked while the compiler runs.
$(VENV)/.compiler: requirements.txt scripts/system-packages
	PYTHON=$(PYTHON) scripts/system-packages
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(shell grep -iE '^(cython|setuptools)==' requirements.txt)
	touch $@

$(VENV)/.dependencies: $(VENV)/.compiler
	$(PIP) --no-compile -r requirements.txt  # 30 s less; Python compiles what is imported
	touch $@

build/.compiled: $(VENV)/.compiler $(SOURCES)
	mkdir -p build
	$(PY) setup.py -q build >build/compile.log 2>&1 || { cat build/compile.log; exit 1; }
	touch $@

# Built in place of the last build, so that only changed modules are compiled again.
$(VENV)/.installed: $(VENV)/.compiler $(SOURCES)
	@echo "Compiling: some minutes the first time"
	$(MAKE) --no-print-directory -j 2 $(VENV)/.dependencies build/.compiled
	$(PIP) --no-deps --no-build-isolation --force-reinstall .
	$(PY) -P -m headrace.pipeline.shared_classes_writer
	touch $@

# Packages of npm with which tests/clients talks to servers; without npm or a registry those tests are skipped.
build/clients/.installed: tests/clients/package-lock.json tests/clients/.npmrc
	mkdir -p $(@D)
	cp tests/clients/package.json tests/clients/package-lock.json tests/clients/.npmrc $(@D)
	if ! command -v npm >/dev/null; then echo "npm is missing: its clients are not tested" >&2; \
	elif (cd $(@D) && npm ci --loglevel=error); then touch $@; \
	else echo "npm cannot install: its clients are not tested" >&2; rm -rf $(@D)/node_modules; fi

demo: install                   ## run the demo: real flights through a stream, Spark, Parquet and a chart
	$(VENV)/bin/headrace demo

test: install build/clients/.installed ## run each test once: data structures and commands interpreted, the rest as installed
	PYTHONPATH=src $(PYTEST) -m "unit and not slow" tests
	HEADRACE_COMPILED=1 $(PYTEST) -m "not unit and not slow" tests

test-all: test                  ## run all tests: also slow ones, compiled units, AddressSanitizer
	$(MAKE) -j 2 compiled-rest sanitize-aside  # the slow tests wait much of the time
	$(MAKE) soak-short

test-extras: install            ## install each extra, and the lowest versions, and try them; needs the index
	$(PY) scripts/test-extras

compiled-rest: install
	HEADRACE_COMPILED=1 $(PYTEST) -m "slow or unit" $(addprefix --ignore=,$(SANITIZED)) tests

quick: install                  ## run the tests of data structures and the protocol: a minute
	PYTHONPATH=src $(PYTEST) -m "not whole and not compiled and not slow" \
	    tests/test_tidy.py tests/structures tests/resp tests/streams tests/keyspace tests/engine

build/sanitize: $(VENV)/.dependencies $(SOURCES)
	HEADRACE_BUILD=sanitize $(PY) setup.py -q build --build-lib $@
	touch $@

sanitize: build/sanitize        ## run the tests of parsers and decoders under AddressSanitizer and UBSan
	$(ASAN) HEADRACE_COMPILED=1 PYTHONPATH=build/sanitize \
	    $(PYTEST) -m "not whole" $(SANITIZED) \
	    tests/spark/test_arrow_decoder.py tests/spark/test_encoder.py tests/spark/test_reply_counter.py \
	    tests/pipeline/test_json_scanner.py

# With low priority, and its output in a file: what runs beside it shows its progress.
sanitize-aside: $(VENV)/.dependencies
	mkdir -p build
	nice $(MAKE) --no-print-directory sanitize >build/sanitize.log 2>&1 || { cat build/sanitize.log; exit 1; }
	@echo "under AddressSanitizer and UBSan:"
	@tail -n 1 build/sanitize.log

test-asan: build/sanitize       ## run every in-process test under AddressSanitizer and UBSan
	$(ASAN) HEADRACE_COMPILED=1 PYTHONPATH=build/sanitize $(PYTEST) -m "not whole" tests

SEED ?= 1
N ?= 200000

fuzz: install                   ## compare N random commands from SEED on with a redis-server
	HEADRACE_COMPILED=1 HEADRACE_FUZZ_SEED=$(SEED) HEADRACE_FUZZ_N=$(N) \
	    $(PYTEST) tests/conformance/test_streams.py tests/conformance/test_groups_compared.py \
	    tests/conformance/test_keys_and_strings.py -k "random or any_order"

random: install                 ## run the property tests with new examples: `make test` repeats the same ones
	HEADRACE_RANDOM=1 PYTHONPATH=src $(PYTEST) -m "not whole and not compiled and not slow" $$(grep -rl 'import.*given' tests --include='*.py')

HOURS ?= 0.1
ONLY ?=

fuzz-bytes: install             ## feed random bytes to parsers for HOURS; ONLY=rdb; failures in build/found
	mkdir -p build/found
	$(PY) tests/fuzz/rounds.py --hours $(HOURS) --seed $(SEED) --times 8 --found build/found $(if $(ONLY),--only $(ONLY))

fuzz-corpus: install            ## add inputs that reach new lines to the corpus (slow; ONLY= as above)
	PYTHONPATH=src $(PY) tests/fuzz/rounds.py --grow --seed $(SEED) $(if $(ONLY),--only $(ONLY))

simulate: N = 100000
simulate: install               ## crash N random histories from SEED on at every write of a simulated disk
	HEADRACE_COMPILED=1 HEADRACE_SIMULATE_SEED=$(SEED) HEADRACE_SIMULATE_N=$(N) \
	    $(PY) -m pytest -q -x -n 2 --dist load tests/simulation/test_simulation.py -m slow -k histories

stress: SECONDS = 1200
stress: install                 ## run tests/stress for SECONDS: hostile clients, and servers that are killed
	HEADRACE_COMPILED=1 HEADRACE_LONG=1 HEADRACE_STRESS_SECONDS=$(SECONDS) $(PY) -m pytest -q -s tests/stress

soak: SECONDS = 600
soak: install                   ## run a mixed load beside redis-server for SECONDS: nothing may grow; build/soak.png
	$(PY) -m benchmarks.soak --seconds $(SECONDS)

soak-short: install
	$(PY) -m benchmarks.soak --seconds 60

lint: install                   ## run ruff and mypy --strict
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

BENCH ?=

bench: install                  ## measure beside redis-server; BENCH="--only XADD --rounds 9", BENCH=--quick
	$(PY) -m benchmarks $(BENCH)
	$(if $(BENCH),,$(PY) -m benchmarks.turns)
	$(if $(BENCH),,$(PY) -m benchmarks.library)
	$(if $(BENCH),,$(PY) -m benchmarks.spark)

bench-instructions: install     ## count instructions by valgrind, compared with the stored counts
	$(PY) -m benchmarks.instructions $(BENCH)

bench-turns: install            ## measure the longest turns of the event loop that hostile requests cause
	$(PY) -m benchmarks.turns $(BENCH)

bench-spark: install            ## measure the Spark source and sink only
	$(PY) -m benchmarks.spark

dist: install                   ## build dist/: the source distribution, and a wheel for this Python on any Linux
	rm -rf build/dist dist
	$(PY) -m build --no-isolation --sdist --wheel --outdir build/dist .
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) -m auditwheel repair --strip --wheel-dir dist build/dist/*.whl
	mv build/dist/*.tar.gz dist
	$(PY) scripts/check_wheel.py dist/*.whl

clean:                          ## remove build output and caches
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache

.PHONY: help install demo test test-all compiled-rest quick sanitize sanitize-aside test-asan fuzz random fuzz-bytes fuzz-corpus simulate stress soak soak-short lint bench bench-instructions bench-turns bench-spark dist clean
