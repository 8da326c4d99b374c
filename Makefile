# Both `make demo` and `make test` set everything up on a fresh machine: Python 3.11 and its venv module are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip, not uv or poetry: see CONTRIBUTING.md.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.NOTPARALLEL:
.PHONY: demo serve test lint format bench clean help

help: ## List these targets.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit("rightlung needs Python 3.11 or newer, found " + sys.version.split()[0] + "; try: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: $(VENV)/.created pyproject.toml constraints.txt hatch_build.py $(wildcard src/rightlung/scoring/localisation/*.c)
	@echo 'installing into $(VENV) (a minute or two the first time)'
	$(PIP) --editable .
	@$(BIN)/python -c 'from rightlung.scoring.localisation.compiled import compiled; print("" if compiled() else "no C compiler was found: scoring works, but slower", end="")'
	touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt hatch_build.py $(wildcard src/rightlung/scoring/localisation/*.c)
	@echo 'installing into $(VENV) with what the tests need (a minute or two the first time)'
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.core

$(VENV)/.serve: $(VENV)/.core
	$(PIP) --editable '.[serve]'
	touch $@

serve: $(VENV)/.serve ## Open the reading room on http://127.0.0.1:8800.
	$(BIN)/rightlung serve

demo: $(VENV)/.core ## Run the demonstration; writes demo-output/.
	$(BIN)/rightlung demo --out demo-output

test: lint ## Check style and types, then run all tests, offline.
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.dev ## Check style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## Bring the code into form.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## Run the benchmarks beside what a user would use instead.
	$(BIN)/python benchmarks/localisation.py
	$(BIN)/python benchmarks/bootstrap.py
	$(BIN)/python benchmarks/detection.py
	$(BIN)/python benchmarks/phantom.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/labeller.py

clean: ## Remove the virtual environment and everything generated.
	rm -rf $(VENV) demo-output dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -prune -exec rm -rf {} +
	rm -f src/rightlung/scoring/localisation/_compiled.so
