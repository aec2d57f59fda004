# Two commands matter: `make demo` and `make test`. Both set up what they need and can be run twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check setup fast clean

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@echo "== setting up $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@echo "== compiling the hot loops once (kept in the user cache)"
	@$(BIN)/python -m cotenant.sim.warm
	@touch $(STAMP)

demo: setup
	@echo "== comparing eight policies on a generated workload"
	@mkdir -p out
	$(BIN)/cotenant compare philly-like:jobs=2000,seed=1,load=0.95 --cluster 16x8 \
	    --policies fifo,backfill,easy,sjf,srtf,srsf,las,tiresias-l --html out/demo.html

check: setup
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

fast: setup
	$(BIN)/pytest -n 2

test: check
	$(BIN)/pytest -n 2

clean:
	rm -rf $(VENV) out build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
