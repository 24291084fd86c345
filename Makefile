# Everything starts from here. `make demo` and `make test` set up what they need in .venv; nothing else is required.

PYTHON ?= python3
VENV := .venv
FLOOR := .venv-floor
HOME_OF_MODELS := $(or $(RAGJAX_HOME),checkpoints)
SMOLLM2 := $(HOME_OF_MODELS)/smollm2-135m-instruct/ragjax.json
GEMMA3 := $(HOME_OF_MODELS)/gemma-3-270m/ragjax.json
MINILM := $(HOME_OF_MODELS)/all-minilm-l6-v2/ragjax.json
# Compiling, not running, takes the time: one process a core, each file in one of them, by name (the long ones lead).
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
PYTEST := JAX_PLATFORMS=cpu $(VENV)/bin/python -m pytest -rs $(WORKERS)

.PHONY: demo models test test-shared test-floor lint format

demo: $(SMOLLM2)
	JAX_PLATFORMS=cpu $(VENV)/bin/python -m experiments.sweep quickstart

models: $(SMOLLM2) $(GEMMA3) $(MINILM)

$(SMOLLM2) $(GEMMA3) $(MINILM): | $(VENV)/.installed
	JAX_PLATFORMS=cpu $(VENV)/bin/python -m experiments.models $(notdir $(@D))

test: $(VENV)/.installed-test models
	$(PYTEST)

# The tests that read the reference material; a skip is a failure here.
test-shared: $(VENV)/.installed-test models
	$(PYTEST) -m shared --fail-on-skip

# The oldest versions that pyproject.toml admits: those of Colab's TPU image.
test-floor: $(FLOOR)/.installed-test models
	JAX_PLATFORMS=cpu $(FLOOR)/bin/python -m pytest -rs $(WORKERS)

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(VENV)/.installed-test
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --editable ".[gguf]"
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/.installed
	$(VENV)/bin/python -m pip install --quiet --editable ".[test]"
	touch $@

$(FLOOR)/.installed-test: pyproject.toml tests/floor.txt
	$(PYTHON) -m venv $(FLOOR)
	$(FLOOR)/bin/python -m pip install --quiet --constraint tests/floor.txt --editable ".[test]"
	touch $@
