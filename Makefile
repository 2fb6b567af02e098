# `make demo` runs the main job, `make test` the tests.  Every target installs what it needs into .venv, and no more.
# Needs Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test test-extras coverage test-flower test-browser faults faults-quick faults-day lint bench fuzz docs publish-docs notebooks compare-runs mutants wheel release clean

# What a target installs: an extra of pyproject.toml, noted by a file in the environment.
$(VENV)/.has-demo: EXTRAS := data,plot
$(VENV)/.has-test: EXTRAS := test
$(VENV)/.has-extras: EXTRAS := test-extras
$(VENV)/.has-flower: EXTRAS := test,flower-ray
$(VENV)/.has-browser: EXTRAS := test,browser,docs
$(VENV)/.has-lint: EXTRAS := lint
$(VENV)/.has-docs: EXTRAS := docs,test
$(VENV)/.has-everything: EXTRAS := dev

$(VENV)/.has-%: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[$(EXTRAS)]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("fedcef needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# Everything that any target needs, for those who work on it.
setup: $(VENV)/.has-everything

demo: $(VENV)/.has-demo
	rm -rf runs/demo
	$(BIN)/fedcef compare demo --out runs/demo

# One torch thread per test process: results do not depend on it, and processes do not fight for cores.
test: $(VENV)/.has-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "not flower"

# What that leaves out for want of a package: Parquet, HDF5, Hugging Face's data sets, tokenizers and adapters, trackers.
test-extras: $(VENV)/.has-extras
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m extras

# The tests of `make test` with the share of lines that they reach, those run by processes that they start included.
coverage: $(VENV)/.has-test
	$(PIP) coverage
	rm -f .coverage .coverage.*
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest -q -n auto -m "not flower"
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered

# Real Flower processes: the simulation engine, and a SuperLink with four SuperNodes, TLS and keys, on loopback.
test-flower: $(VENV)/.has-flower
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m flower tests/flower

# The report and the docs' site in a headless Chromium, which must be on the path; with npm also accessibility, by axe.
test-browser: $(VENV)/.has-browser
	-test -d node_modules/axe-core || npm install --silent --no-save --no-package-lock axe-core
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/browser

# More than 300 faults in a running deployment, kill -9 among them; about half an hour.
faults: $(VENV)/.has-test
	OMP_NUM_THREADS=1 $(BIN)/python -m faults.run

# Ten thousand faults in one process, and five deliberate bugs that they must catch; some minutes.
faults-quick: $(VENV)/.has-test
	OMP_NUM_THREADS=1 $(BIN)/python -m faults.mutants

# A day in the life of a deployment, with TLS and keys.
faults-day: $(VENV)/.has-test
	OMP_NUM_THREADS=1 $(BIN)/python -m faults.day

lint: $(VENV)/.has-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.has-demo
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/wire.py

fuzz: $(VENV)/.has-test
	OMP_NUM_THREADS=1 $(BIN)/python fuzz/fuzz_wire.py
	OMP_NUM_THREADS=1 $(BIN)/python fuzz/fuzz_time.py

# The site, and the tests of what makes its pages.
docs: $(VENV)/.has-docs
	$(BIN)/python tools/import_graph.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/docs

# One version of the site among others, on the branch gh-pages; the workflow calls it.
publish-docs: $(VENV)/.has-docs
	$(PIP) mike
	tools/docs/publish.sh $(BIN)

notebooks: $(VENV)/.has-docs
	$(BIN)/python tools/docs/execute_notebooks.py

# Every record and model of this tree beside those of another checkout: make compare-runs BEFORE=../old/src
compare-runs: $(VENV)/.has-test
	$(BIN)/python tools/compare_runs.py --before $(BEFORE)

# Small faults put into the central modules, one at a time: the tests must notice every one.
mutants: $(VENV)/.has-test
	$(BIN)/python tools/mutants.py
	$(BIN)/python tools/write_mutants.py

# Wheel and sdist, and the tests that make sense for an installed package.
wheel:
	PYTHON=$(PYTHON) tools/check_wheel.sh

# What a release is made of, in dist/: built, checked, tried with every supported Python that is here, with a bill of
# materials and checksums.
release:
	PYTHON=$(PYTHON) tools/check_wheel.sh release dist

clean:
	rm -rf $(VENV) runs site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
