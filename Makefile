# The README's commands. Everything is installed into .venv, by these files alone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test golden others test-heavy test-kernels lint types format mutants bench docs audit wheel-test clean

demo: $(VENV)/.core
	$(BIN)/scopeval demo

# The golden numbers first: they compile what the other tests then only load. Mypy and tests that
# compile little run beside them. One worker more than cores: tests wait for servers, browsers and disks
FIRST := tests/test_golden.py tests/logs
test: lint
	$(MAKE) --no-print-directory -j 2 golden others
	$(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal --durations=30 \
		$(addprefix --ignore ,$(FIRST))

golden: $(VENV)/.dev
	$(BIN)/python -m pytest tests/test_golden.py

others: types
	$(BIN)/python -m pytest $(filter-out tests/test_golden.py,$(FIRST))

# What takes long, and guards what changes seldom: benchmarks, worlds of the laboratory whose results
# are stored, notebooks, Ray, kills at random; and new random examples of all tests by hypothesis
test-heavy: $(VENV)/.heavy
	$(BIN)/python -m pytest -n auto --dist worksteal -m heavy
	$(BIN)/python -m pytest -n auto --dist worksteal -m "hypothesis and not heavy" --hypothesis-profile search

# What other processors round otherwise: golden numbers, decisions, sums in two orders, linear algebra.
# (Solver, simulator and intervals use no BLAS; how often intervals cover is counted by `make test` only.)
NUMERIC := tests/test_golden.py tests/exact/test_exact.py tests/exact/test_known.py tests/exact/test_assessment.py \
	tests/behavior/test_ties.py tests/behavior/test_decision.py tests/behavior/test_designer.py \
	tests/behavior/test_episode_budget.py tests/behavior/test_frontier.py tests/estimation/test_estimators.py \
	tests/estimation/test_sequences.py tests/safety/test_cost_control.py tests/context/test_control.py \
	tests/comparison/test_joint_design.py tests/comparison/test_analysis.py tests/evaluation/test_stages.py \
	tests/campaign/test_campaign_stages.py

test-kernels: $(VENV)/.dev
	$(BIN)/python tools/other_kernel.py -m pytest -q -n auto --dist worksteal $(NUMERIC) \
		-k "not intervals_cover and not sequences_cover and not rarely_wrong"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# wrong edits of critical code that the tests must notice; not part of `make test`
mutants: $(VENV)/.dev
	$(BIN)/python tools/mutants.py

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

# Known vulnerabilities of the versions in constraints.txt; asks pypi.org
audit: $(VENV)/bin/python
	$(PIP) pip-audit
	$(BIN)/pip-audit --no-deps --disable-pip -r constraints.txt

# The wheel in clean environments, for each Python from 3.11 to 3.14 on this machine; with the network
wheel-test: $(VENV)/bin/python
	$(BIN)/python tools/wheel_test.py $(if $(VERSIONS),--versions $(VERSIONS))

clean:
	rm -rf $(VENV) dist build site results .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# --no-compile: the demonstration imports few of the 9,000 files that pip would compile
$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --no-compile -e .
	touch $@

# The tests import 3,700 of the 18,000 files, which Python then compiles
$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --no-compile -e '.[dev,minari,sb3,docs,serve,postgres]'
	touch $@ $(VENV)/.core

$(VENV)/.heavy: $(VENV)/.dev
	$(PIP) -e '.[box2d,energyplus,mujoco,ray]'
	touch $@

$(VENV)/.bench: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[bench,serve]'
	touch $@ $(VENV)/.core

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[docs]'
	touch $@ $(VENV)/.core
