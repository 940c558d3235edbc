# Two commands do it all on a fresh machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= auto

.PHONY: setup demo test test-heavy check format bench pictures wheel clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "slicetower needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": set PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/slicetower demo

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

test-heavy: setup
	$(BIN)/python -m pytest -m heavy --timeout 900

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m tests.benchmarks

pictures: setup
	SLICETOWER_PICTURES=docs/pictures $(BIN)/python -m pytest tests/journeys -n 0

wheel: setup
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
