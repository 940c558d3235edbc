# Two commands do it all on a fresh machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PREFLIGHT_VENV ?= .venv-preflight
PREFLIGHT_STAMP := $(PREFLIGHT_VENV)/.installed
# Half as many again as there are cores: tests wait more than they compute.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 2) * 3 // 2)')

.PHONY: setup setup-preflight demo test test-heavy check format bench pictures snapshots parity wheel clean

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

# libtpu's compiler, beside the console and never in its venv: some 640 MB, tried three times.
setup-preflight: $(PREFLIGHT_STAMP)

$(PREFLIGHT_STAMP): pyproject.toml constraints.txt
	test -x $(PREFLIGHT_VENV)/bin/python || $(PYTHON) -m venv $(PREFLIGHT_VENV)
	for pause in 10 30 -; do \
	    $(PREFLIGHT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt 'jax[tpu]' && break; \
	    [ $$pause != - ] || exit 1; \
	    echo "pip failed: once more in $$pause s" >&2; sleep $$pause; \
	done
	$(PREFLIGHT_VENV)/bin/python -c 'import jax, libtpu'
	touch $(PREFLIGHT_STAMP)

test-heavy: setup setup-preflight
	SLICETOWER_PREFLIGHT_PYTHON=$(abspath $(PREFLIGHT_VENV))/bin/python $(BIN)/python -m pytest -m heavy --timeout 900

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
	SLICETOWER_PICTURES=docs/pictures $(BIN)/python -m pytest tests/journeys -m journey -n 0 --timeout 900
	$(BIN)/python -m tests.journeys.recording docs/pictures

# Every screen at three sizes in two themes, as the tests compare them: look at what changed before it is kept.
snapshots: setup
	SLICETOWER_SNAPSHOTS=write $(BIN)/python -m pytest tests/tui/test_snapshots.py -n $(WORKERS)

# Where the console has each option of the command line: docs/parity.md out of tests/tui/parity.
parity: setup
	SLICETOWER_PARITY=write $(BIN)/python -m pytest tests/tui/test_parity.py -k page -n 0

wheel: setup
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) $(PREFLIGHT_VENV) build dist .pytest_cache .mypy_cache .ruff_cache
