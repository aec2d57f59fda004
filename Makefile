# Two commands matter: `make demo` and `make test`. Both set up what they need and can be run twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH ?= torch==2.13.0
TORCH_STAMP := $(VENV)/.$(TORCH)

.PHONY: demo test check fast setup components frameworks clean

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@echo "== setting up $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $(STAMP)

# Compiling the hot loops takes three to five minutes, once per version; the result is kept in the user's cache.
.PHONY: kernels
kernels: setup
	@echo "== compiling the hot loops (once per version)"
	@$(BIN)/python -m cotenant.sim.warm

demo: setup kernels
	@echo "== comparing eight policies on a generated workload"
	@mkdir -p out
	$(BIN)/cotenant compare gavel-like:jobs=600,load=0.95,seed=1,models=h200 --profile h200 --cluster 4x8:h200 \
	    --policies fifo,backfill,easy,sjf,srsf,las,tiresias-l,sjf-bsbf --baseline easy --html out/demo.html
	@echo "== running twelve real jobs on four virtual GPUs"
	$(BIN)/python -m bench.demo

check: setup
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

# PyTorch, Lightning and Hugging Face for the tests of their examples. pip, because it also looks where a machine keeps
# a CPU build; what PyTorch needs is there before it, so that nothing more comes with that build.
frameworks: $(TORCH_STAMP)

$(TORCH_STAMP): $(STAMP) requirements-torch.txt
	@echo "== installing $(TORCH), lightning, transformers"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements-torch.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check "$(TORCH)"
	@touch $@

# Real components for tests marked slow. Installed by name where a package manager is at hand.
components: frameworks
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-notebook.txt
	@missing=""; \
	command -v chromium >/dev/null || missing="$$missing chromium fonts-dejavu-core"; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	if [ -n "$$missing" ] && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "== installing$$missing"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	elif [ -n "$$missing" ]; then echo "== missing:$$missing (their tests will say so)"; fi

fast: setup
	$(BIN)/pytest -n 2

test: check components kernels
	$(BIN)/pytest -n 2 -m "slow or not slow"

clean:
	rm -rf $(VENV) out build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
