# make demo     run the main job on real input        make test    the tests, interpreted and compiled
# make install  .venv with the program in it          make lint    ruff, mypy --strict
# make bench    the figures, beside redis-server      make fuzz     N= random commands from SEED= on, beside redis-server
# make sanitize parsers and decoders under AddressSanitizer     make test-asan  every test that stays in its process
# make fuzz-bytes  HOURS= of random bytes into all that reads bytes from outside, ONLY= rdb,dump or the like
# make stress   hostile clients, and a server at work that is killed now and then, for SECONDS=
# make simulate N= random histories from SEED= on, on a simulated disk, each crashed at every write
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
SOURCES := $(shell find src -name '*.py' -o -name '*.pxd') setup.py pyproject.toml README.md
PYTEST := $(PY) -m pytest -q -n 2 --dist loadfile
ASAN = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:suppressions=$(CURDIR)/tests/sanitizers.supp PYTHONMALLOC=malloc

install: $(VENV)/.installed

$(VENV)/.dependencies: requirements.txt scripts/system-packages
	scripts/system-packages
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

# Built in place of the last build, so that only changed modules are compiled again.
$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	@echo "Compiling: some minutes the first time"
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
	touch $@

demo: install
	$(VENV)/bin/headrace demo

test: interpreted compiled sanitize

interpreted: install            ## every index bounds-checked by the interpreter
	PYTHONPATH=src $(PYTEST) -m "not whole" tests

compiled: install               ## the same tests on what was installed, and whole processes besides
	HEADRACE_COMPILED=1 $(PYTEST) tests

build/sanitize: $(VENV)/.dependencies $(SOURCES)
	HEADRACE_BUILD=sanitize $(PY) setup.py -q build --build-lib $@
	touch $@

sanitize: build/sanitize        ## what reads bytes from outside, under AddressSanitizer and UBSan
	$(ASAN) HEADRACE_COMPILED=1 PYTHONPATH=build/sanitize \
	    $(PYTEST) -m "not whole" tests/structures tests/streams tests/arrow tests/resp tests/fuzz tests/persistence \
	    tests/spark/test_arrow_decoder.py tests/spark/test_encoder.py tests/spark/test_tally.py

test-asan: build/sanitize       ## every test that stays in its process, under AddressSanitizer and UBSan
	$(ASAN) HEADRACE_COMPILED=1 PYTHONPATH=build/sanitize $(PYTEST) -m "not whole" tests

SEED ?= 1
N ?= 200000

fuzz: install                   ## N random commands from SEED on, on the engine and on a real redis-server
	HEADRACE_COMPILED=1 HEADRACE_FUZZ_SEED=$(SEED) HEADRACE_FUZZ_N=$(N) \
	    $(PYTEST) tests/conformance/test_streams.py tests/conformance/test_groups_compared.py \
	    tests/conformance/test_keys_and_strings.py -k "random or any_order"

HOURS ?= 0.1
ONLY ?=

fuzz-bytes: install             ## random bytes from SEED on; what fails is left in build/found with what repeats it
	mkdir -p build/found
	$(PY) tests/fuzz/rounds.py --hours $(HOURS) --seed $(SEED) --times 8 --found build/found $(if $(ONLY),--only $(ONLY))

fuzz-corpus: install            ## the same, slowly, for inputs that reach new lines: these join the corpus
	PYTHONPATH=src $(PY) tests/fuzz/rounds.py --grow --seed $(SEED) $(if $(ONLY),--only $(ONLY))

simulate: N = 100000
simulate: install               ## N random histories from SEED on, crashed everywhere; a failing seed fails again
	HEADRACE_COMPILED=1 HEADRACE_SIMULATE_SEED=$(SEED) HEADRACE_SIMULATE_N=$(N) \
	    $(PY) -m pytest -q -x -n 2 --dist load tests/simulation/test_simulation.py -k histories

stress: SECONDS = 1200
stress: install                 ## tests/stress for long; what they saw is printed
	HEADRACE_COMPILED=1 HEADRACE_LONG=1 HEADRACE_STRESS_SECONDS=$(SECONDS) $(PY) -m pytest -q -s tests/stress

lint: install
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

BENCH ?=

bench: install                  ## every figure; BENCH="--quick", BENCH="--only XADD --rounds 9", REDIS_SERVER=program
	$(PY) -m benchmarks $(BENCH)
	$(if $(BENCH),,$(PY) -m benchmarks.library)
	$(if $(BENCH),,$(PY) -m benchmarks.spark)

bench-instructions: install     ## instructions per command by valgrind, beside those noted; needs no quiet machine
	$(PY) -m benchmarks.instructions $(BENCH)

bench-spark: install
	$(PY) -m benchmarks.spark

dist: install
	$(PY) -m build --no-isolation --outdir dist .

clean:
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache

.PHONY: install demo test interpreted compiled sanitize test-asan fuzz fuzz-bytes fuzz-corpus simulate stress lint bench bench-instructions bench-spark dist clean
