# The verbs. `make demo` and `make test` do all their set-up themselves, on a fresh machine too.

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin

.PHONY: demo test everyday slow soak lint types coverage mutants bench format

demo: $(VENV)/torch  ## the main job: four workers train, one is killed, the job carries on
	$(RUN)/python examples/demo.py

test: $(VENV)/dev lint types  ## everything CI runs but the slow tests
	$(RUN)/python -m pytest

everyday: $(VENV)/dev  ## the tests of under three minutes
	$(RUN)/python -m pytest

slow: $(VENV)/clients  ## the tests with torch and its clients, and long faults
	$(RUN)/python -m pytest -m "slow and not soak"

soak: $(VENV)/clients  ## proofs that run for hours
	$(RUN)/python -m pytest -m soak --timeout 14400

lint: $(VENV)/dev  ## style, and who may lean on whom
	$(RUN)/ruff format --check src tests examples benchmarks
	$(RUN)/ruff check src tests examples benchmarks
	$(RUN)/lint-imports

types: $(VENV)/dev
	$(RUN)/mypy

coverage: $(VENV)/dev  ## the core, branch by branch, from the tests of the core alone
	$(RUN)/python -m coverage run -m pytest tests/core tests/transcripts tests/simulation
	$(RUN)/python -m coverage report --fail-under=100

mutants: $(VENV)/mutants  ## every small change to the core is noticed by its tests, or listed with a reason
	$(RUN)/python tests/mutation.py

bench: $(VENV)/torch  ## the README's table, beside torchrun, on this machine
	$(RUN)/python -m benchmarks

format: $(VENV)/dev
	$(RUN)/ruff format src tests examples benchmarks
	$(RUN)/ruff check --fix src tests examples benchmarks

# What each verb stands on. torch by its exact version: the one that the tests and the recordings of torchrun know.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/torch: $(VENV)/bin/python pyproject.toml
	$(RUN)/pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
	$(RUN)/pip install --quiet --disable-pip-version-check --editable .
	$(COMPILE)
	touch $@

# An editable install is not compiled by pip, and where PYTHONDONTWRITEBYTECODE is set never would be: 50 ms a start.
COMPILE = $(RUN)/python -m compileall -q src

$(VENV)/dev: $(VENV)/bin/python pyproject.toml requirements-dev.txt
	$(RUN)/pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	$(RUN)/pip install --quiet --disable-pip-version-check --editable .
	$(COMPILE)
	touch $@

$(VENV)/mutants: $(VENV)/dev requirements-mutants.txt
	$(RUN)/pip install --quiet --disable-pip-version-check --requirement requirements-mutants.txt
	touch $@

$(VENV)/clients: $(VENV)/torch $(VENV)/dev tests/clients/requirements.txt
	$(RUN)/pip install --quiet --disable-pip-version-check --requirement tests/clients/requirements.txt
	touch $@
