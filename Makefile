# `make demo` and `make test` need only Python 3.11 or newer. They make a virtual environment, install the locked versions, and run the
# quickstart from synthesis to figures, or the tests. TorchInductor also needs a C++ compiler; without one, its records say so.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CORES ?= 2
# What is not checked in benchmarks: programs that seldom run must still call the functions that there are, with their arguments.
LOOSE := arg-type assignment dict-item import-not-found misc no-any-return operator union-attr unused-ignore var-annotated
# Processes that run tests: one more than there are cores, since tests also wait for servers, kills and limits of time.
TESTERS = $$($(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')

.PHONY: demo test slow slurm ffcv gpu check docs lock clean

demo: $(INSTALLED)
	$(BIN)/syno run quickstart --cores $(CORES)
	@$(BIN)/syno top quickstart

test: $(INSTALLED)
	$(BIN)/python -m pytest -m "not slow and not slurm and not gpu" --dist worksteal -n $(TESTERS)

slow: $(INSTALLED)
	$(BIN)/python -m pytest -m "slow and not slurm and not gpu" --dist worksteal -n $(TESTERS)

# These tests start a real Slurm on this host (tests/slurm/cluster.py). They need root and Slurm's packages.
slurm: $(INSTALLED)
	$(BIN)/python -m pytest -m slurm -n 0 -rs

# On a machine with a GPU, for 10 minutes: tests, speeds of training, latencies; into docs/measured, or below OUT. Nothing is
# installed: PYTHON needs PyTorch for CUDA with Triton, NumPy and pydantic. Run again, it adds the rows for which no time was left.
gpu:
	@PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) benchmarks/gpu.py \
	    $(if $(OUT),--output "$(OUT)") $(if $(MINUTES),--minutes $(MINUTES)) $(GPU_OPTIONS)

# FFCV is built from its source, which needs system packages: docs/data.md.
ffcv: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable ".[dev,imagenet]"
	$(BIN)/python -m pytest -n auto -rs tests/data/imagenet

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy
	$(BIN)/mypy benchmarks $(addprefix --disable-error-code=,$(LOOSE))
	$(BIN)/lint-imports

# The documentation as a site, from docs/ and from the docstrings, without a network. SYNO_ARTIFACT adds the published operators.
docs: $(INSTALLED)
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs/site -d build/doctrees . build/site
	@echo "The documentation: file://$(CURDIR)/build/site/index.html"

$(INSTALLED): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Syno needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable ".[dev]"
	touch $@

# Write the versions that pip installs now to the lock. The lock is a list of constraints without CUDA packages: the ordinary build of
# torch installs its CUDA packages itself.
lock:
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --editable ".[dev]"
	$(VENV)-lock/bin/python -m pip freeze --exclude-editable | grep -v '^nvidia-\|^triton\|^cuda-' | sed 's/+cpu$$//' > requirements.lock.new
	mv requirements.lock.new requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) build/site build/doctrees .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
