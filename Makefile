# Every target does its own set-up; a machine needs Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
export VENV
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ALL := $(VENV)/.all
DEMO := $(VENV)/.demo
REPORT := $(VENV)/.report
CORE := $(VENV)/.core
PROJECTS := $(wildcard packages/*/pyproject.toml)
NATIVE := packages/weft/build_native.py $(wildcard packages/weft/src/weft/native/*.[ch] packages/weft/src/weft/node/memory/preload/*.[ch])
# What needs no service of its own, no engine, browser or PyTorch; most tests of the rest wait for real jobs.
FAST := packages/weft packages/weft-papers packages/weft-client tests/cli tests/data tests/golden tests/house tests/policies tests/property tests/twins
CORES := $(shell getconf _NPROCESSORS_ONLN)
# A test that hangs prints all stacks and fails.
PYTEST := $(BIN)/pytest -q --dist worksteal --timeout 900
WAITING := -n $(shell expr $(CORES) \* 3 / 2)
unexport PYTHONDONTWRITEBYTECODE  # tests start many processes; each would compile everything anew

.PHONY: help up compare test test-all test-slow test-drawn test-engines test-pure lint lint-all lint-js lint-js-here packages bench docs site house mutants pins clean

help:            ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(MAKEFILE_LIST) | column -t -s:

up: $(DEMO)      ## the service on this machine with real training jobs, live; KEEP=1 leaves its page running
	@$(BIN)/weft demo $(if $(KEEP),--keep)

compare: $(REPORT) ## compare four policies on a built-in workload, with a report
	@mkdir -p out
	$(BIN)/weft compare philly --jobs 400 --load 1.1 --report out/report.html
	@echo "open out/report.html in a browser; more: $(BIN)/weft --help"

test: lint       ## style, types and the tests that need no service, engine or browser
	@$(BIN)/python -m benchmarks.house
	@$(PYTEST) -n $(CORES) -m "not slow and not torch" $(FAST)

test-all: lint-all ## and all others that take seconds: services, engines, browsers, trainings
	@$(PYTEST) $(WAITING) -m "not slow"

test-slow: $(ALL) ## soaks, statistics, and many more random cases; hours
	$(PYTEST) $(WAITING) --timeout 0 --hypothesis-profile=thorough

test-drawn: $(ALL) ## properties once more, with cases that nobody has tried
	CI=true $(PYTEST) $(WAITING) -m "hypothesis and not slow" packages tests/property tests/twins

test-pure: $(ALL) ## policies, simulations and numbers with everything in Python, nothing compiled
	WEFT_PURE=1 $(PYTEST) $(WAITING) -m "not slow" packages/weft/tests packages/weft-papers tests/golden tests/policies tests/property tests/twins

test-engines: $(ALL) ## the contract of engines on throw-away clusters of this machine
	$(BIN)/pytest -q tests/engines tests/integration/test_local_engine.py tests/integration/test_fleet_engine.py

lint: $(READY)   ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory lint-js-here

# Types are the same whatever is installed: with what `make test` has, with all extras, and with none.
lint-all: $(ALL) $(CORE)
	$(BIN)/mypy --cache-dir .mypy_cache/all
	@test -d .mypy_cache/core || { mkdir .mypy_cache/core && cp -r .mypy_cache/all/3.* .mypy_cache/core; }  # most is the same
	$(BIN)/mypy --python-executable $(VENV)/core/bin/python --cache-dir .mypy_cache/core --exclude '/(tests|published)(/|\.py|_)' packages/*/src

$(CORE): $(ALL)
	@$(BIN)/python .ci/environment.py core && touch $@

PRETTIER := npx --yes prettier@3.9.10
ESLINT := npx --yes eslint@9.39.5
SCRIPTS := "packages/weft/src/weft/service/web/js/**/*.js" packages/weft/src/weft/report/page.js docs/reference/which-policy.js
lint-js:         ## style and mistakes of the web page's scripts; needs npx
	$(PRETTIER) --check $(SCRIPTS)
	$(ESLINT) --config .ci/eslint.config.mjs --max-warnings 0 $(SCRIPTS)

# `make test` refuses what CI would refuse, wherever npm can be reached.
lint-js-here:
	@if $(PRETTIER) --version >/dev/null 2>&1 && $(ESLINT) --version >/dev/null 2>&1; then \
	  $(MAKE) --no-print-directory lint-js; else echo "needs npx: apt-get install npm; the scripts of the page are not linted"; fi

packages:        ## build the wheel and the sdist and try them in an empty environment
	PYTHON=$(PYTHON) bash .ci/packages

bench: $(ALL)  ## speed and fidelity, ours beside baselines
	$(BIN)/python -m benchmarks

mutants: $(READY)   ## plant mistakes in a policy, one at a time: make mutants POLICY=themis
	$(BIN)/python -m benchmarks.mutants $(POLICY)

house: $(READY)  ## lines of each distribution, now and before
	@$(BIN)/python -m benchmarks.house

docs: $(READY)   ## make the reference pages from the code
	$(BIN)/python docs/make_reference.py

site: $(READY)   ## a searchable site of the documents in out/site, every link checked
	@$(BIN)/python docs/make_site.py out/site

# What `make up`, reports and tests need, all in one folder; a stamp says that it is there.
SET_UP = $(CHECK_PYTHON) && $(PYTHON) .ci/environment.py
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
  { echo "Weft needs Python 3.11 or newer, and $(PYTHON) is none: name another, as in \`make up PYTHON=python3.12\`"; exit 1; }
INPUTS := .ci/environment.py tests/constraints.txt $(PROJECTS) $(NATIVE)
$(DEMO): $(INPUTS)
	@$(SET_UP) up && touch $@

$(REPORT): $(INPUTS)
	@$(SET_UP) report && touch $@ $(DEMO)

$(READY): $(INPUTS)
	@$(SET_UP) test && touch $@

$(ALL): $(INPUTS)
	@$(SET_UP) all && touch $@ $(READY) $(DEMO) $(REPORT)

pins:            ## pin the newest versions of all packages that tests use
	$(PYTHON) .ci/environment.py pins

clean:           ## remove what was built
	rm -rf $(VENV) out .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
