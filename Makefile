# Every target does its own set-up; a machine needs Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
REPORT := $(VENV)/.report
NATIVE := build_native.py $(wildcard src/weft/native/*.[ch])
# Many tests wait for real jobs: half as many workers again as there are cores.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)
unexport PYTHONDONTWRITEBYTECODE  # tests start many processes; each would compile everything anew

.PHONY: help up compare test test-all test-engines test-pure lint lint-js lint-js-here packages bench docs mutants clean

help:            ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(MAKEFILE_LIST) | column -t -s:

up: $(DEMO)      ## the service on this machine with real training jobs, live; KEEP=1 leaves its page running
	@$(BIN)/weft demo $(if $(KEEP),--keep)

compare: $(REPORT) ## compare four policies on a built-in workload, with a report
	@mkdir -p out
	$(BIN)/weft compare philly --jobs 400 --load 1.1 --report out/report.html
	@echo "open out/report.html in a browser; more: $(BIN)/weft --help"

test: $(READY)   ## lint, types and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory lint-js-here
	@$(BIN)/pytest -q -rs -n $(WORKERS) --dist worksteal -m "not slow" || $(AGAIN)

# What failed is run once more by itself: a test that passes then depended on the machine's load
# or on its neighbours. That does not stop a delivery, and is a fault to be mended.
AGAIN = { code=$$?; [ $$code -eq 1 ] || exit $$code; echo "Once more, one at a time:"; \
  $(BIN)/pytest -q -x --last-failed --last-failed-no-failures none && \
  echo "PASSED THE SECOND TIME: the tests named above depend on something that they should not."; }

test-all: $(READY) ## every test, the slow ones too
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal --hypothesis-profile=thorough

test-pure: $(READY) ## policies, simulations and numbers with everything in Python, nothing compiled
	WEFT_PURE=1 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not slow" tests/unit tests/golden tests/papers tests/property

test-engines: $(READY) ## the contract of engines on throw-away clusters of this machine
	$(BIN)/pytest -q -rs tests/engines tests/integration/test_local_engine.py tests/integration/test_fleet_engine.py

lint: $(READY)   ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory lint-js-here

PRETTIER := npx --yes prettier@3.9.10
ESLINT := npx --yes eslint@9.39.5
SCRIPTS := "src/weft/service/web/js/**/*.js" src/weft/report/page.js docs/reference/which-policy.js
lint-js:         ## style and mistakes of the web page's scripts; needs npx
	$(PRETTIER) --check $(SCRIPTS)
	$(ESLINT) --config .ci/eslint.config.mjs --max-warnings 0 $(SCRIPTS)

# `make test` refuses what CI would refuse, wherever npm can be reached.
lint-js-here:
	@if $(PRETTIER) --version >/dev/null 2>&1 && $(ESLINT) --version >/dev/null 2>&1; then \
	  $(MAKE) --no-print-directory lint-js; else echo "no npm: the scripts of the page are not linted"; fi

packages:        ## build the wheel and the sdist and try them in an empty environment
	PYTHON=$(PYTHON) bash .ci/packages

bench: $(READY)  ## speed and fidelity, ours beside baselines
	$(BIN)/python -m benchmarks

mutants: $(READY)   ## plant mistakes in a policy, one at a time: make mutants POLICY=themis
	$(BIN)/python -m benchmarks.mutants $(POLICY)

docs: $(READY)   ## make the reference pages from the code
	$(BIN)/python docs/make_reference.py

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("Weft needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@echo "making an environment for Python in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# What running Weft needs and no more: not the tools of its developers, and nothing compiled that is never imported.
# Without a GPU PyTorch's own build for CPUs will do, which is much smaller; if its index does not answer, any build.
INSTALL = $(BIN)/python -m pip install --no-compile --constraint tests/constraints.txt
CPU_INDEX := https://download.pytorch.org/whl/cpu
$(DEMO): pyproject.toml tests/constraints.txt $(NATIVE) | $(BIN)/python
	@echo "installing Weft, its service and PyTorch, which is the largest part"
	@test "$$(uname -s)" != Linux || command -v nvidia-smi >/dev/null || \
	  $(INSTALL) --timeout 10 --retries 0 torch --index-url $(CPU_INDEX) || echo "not from $(CPU_INDEX)"
	@$(INSTALL) --editable '.[serve,train]'
	@touch $@

$(REPORT): $(DEMO)
	@$(INSTALL) --quiet --editable '.[report]'
	@touch $@

$(READY): pyproject.toml tests/constraints.txt $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint tests/constraints.txt
	@touch $@ $(DEMO) $(REPORT)

clean:           ## remove what was built
	rm -rf $(VENV) out .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
