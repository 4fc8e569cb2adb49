# Two commands matter: `make demo` and `make test`. Both build .venv first.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
ONCE ?=
TESTS ?= tests
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help venv demo up test check lock format

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' \
	  | while IFS='|' read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

venv: ## build .venv from the hash-checked lock (all others do it first)
	@$(PYTHON) deploy/bootstrap.py

demo: venv ## the whole stack and one real job, watched; ONCE=1 stops it all afterwards
	@$(BIN)/coatcheck demo --stop-with-parent $(if $(ONCE),--once)

up: venv ## the whole local stack, in the foreground; Ctrl-C stops it
	@$(BIN)/coatcheck up --stop-with-parent

test: check ## everything CI runs: checks, then all tests on real parts
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS)

check: venv ## lint, types, architecture (a minute or two)
	@echo 'format and lint' && $(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@echo 'types' && $(BIN)/mypy
	@echo 'imports' && $(BIN)/lint-imports --no-logo
	@echo 'house rules and statements' && $(BIN)/pytest tests/rules tests/store/test_statements.py

format: venv ## rewrite the sources in the house format
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix --quiet .

lock: venv ## resolve pyproject.toml anew into requirements.lock
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
	  --quiet --output-file requirements.lock
