# `make demo` runs the main job, `make test` the tests; both set themselves up.  Needs Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: setup demo test test-flower test-browser faults lint bench fuzz docs notebooks wheel clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("fedcef needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

demo: setup
	rm -rf runs/demo
	$(BIN)/fedcef compare demo --out runs/demo

# One torch thread per test process: results do not depend on it, and processes do not fight for cores.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "not flower"

# Real Flower processes: the simulation engine, and a SuperLink with four SuperNodes, TLS and keys, on loopback.
test-flower: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m flower tests/flower

# The report page in a headless Chromium, which must be on the path.
test-browser: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/browser

# More than 200 faults in a running deployment, kill -9 among them; about 20 minutes.
faults: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m faults.run

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/wire.py

fuzz: setup
	OMP_NUM_THREADS=1 $(BIN)/python fuzz/fuzz_wire.py

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

notebooks: setup
	$(BIN)/python tools/docs/execute_notebooks.py

# Wheel and sdist, and the tests that make sense for an installed package.
wheel:
	PYTHON=$(PYTHON) tools/check_wheel.sh

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
