# offsetlake: set-up, demo, tests and measurements. `make` lists the targets.

PYTHON ?= python3
BIN := .venv/bin
SETUP_DONE := .venv/.setup-done
ARGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(SETUP_DONE) ## Create .venv from requirements.lock, fill the jar cache and archive Java's classes
	@$(BIN)/offsetlake jars
	@$(BIN)/python -m streaming.demo.training

$(SETUP_DONE): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make setup: expected Python 3.11 or newer, found $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo
demo: setup ## Run a local broker, real consumer groups and the job (ARGS="--for 60s": for a limited time)
	@$(BIN)/offsetlake demo $(ARGS)

.PHONY: test
# Three workers for two cores: a worker often waits, as for processes that it starts (tests/conftest.py). Four took longer (720 s, not 622 s). ARGS="-n 0": a single process.
WORKERS := --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 1
# A test that a signal does not end, since a library waits for ever and holds the GIL, ends its worker and is named, with the stack of each thread.
STUCK := -o faulthandler_timeout=930 -o faulthandler_exit_on_timeout=true
KAFKA ?=
test: export PYTHONDONTWRITEBYTECODE :=# else each of hundreds of processes compiles our code again
test: setup ## Run all tests but those of test-... below, against a real broker (KAFKA=3.9.2 or 4.4.0), or some (ARGS=tests/state)
	@KAFKA=$(KAFKA) $(BIN)/pytest $(WORKERS) $(STUCK) $(ARGS)

.PHONY: test-more
test-more: export PYTHONDONTWRITEBYTECODE :=
test-more: setup ## Run the tests that are marked `more`: further cases and moments of features that `make test` tries
	@MORE=1 KAFKA=$(KAFKA) $(BIN)/pytest $(WORKERS) $(STUCK) -m more $(ARGS)

.PHONY: test-kill
KILLS ?= 30
test-kill: setup ## Kill the real job repeatedly under live traffic (KILLS=30 KILL_SEED=1)
	@KILLS=$(KILLS) $(BIN)/pytest -s tests/whole/test_kills.py $(ARGS)

.PHONY: test-grid
GRID ?=
test-grid: setup ## Test every fault at every moment, and print the grid (25 to 40 minutes; GRID=folder: resume)
	@folder=$(or $(GRID),$$(mktemp -d)); mkdir -p $$folder; \
	  GRID=$$folder KAFKA=$(KAFKA) $(BIN)/pytest --numprocesses 2 --dist load tests/whole/test_grid.py tests/whole/test_starved.py $(ARGS); status=$$?; \
	  PYTHONPATH=.:tests/support $(BIN)/python -m grid_table $$folder; exit $$status

.PHONY: test-memory
MEMORY ?=
test-memory: setup ## Run the job with the least [job] memory, or MEMORY=3GiB, in a cgroup of that limit (root; ten minutes)
	@MEMORY="$(MEMORY)" $(BIN)/pytest --numprocesses 0 -s tests/whole/test_least_memory.py $(ARGS)

.PHONY: test-lag
test-lag: setup ## Compare lag in seconds with records of known times, while job and broker restart
	@LAG=1 KAFKA=$(KAFKA) $(BIN)/pytest tests/whole/test_lag_is_true.py $(ARGS)

.PHONY: test-clients
test-clients: setup ## Test serve with clients of other languages; what they need is downloaded
	@CLIENTS=1 $(BIN)/pytest tests/serve/clients $(ARGS)

.PHONY: test-hostile
test-hostile: setup ## Ask serve's Kafka listener as an honest client while hostile ones do harm (HOSTILE_SECONDS=10)
	@HOSTILE=1 $(BIN)/pytest -s -p no:randomly tests/whole/test_hostile_clients.py $(ARGS)

.PHONY: test-sign-in
test-sign-in: setup ## Sign in with tokens that are renewed, refused and missing, also those of a real Keycloak, which is downloaded (170 MB)
	@SIGN_IN=1 KAFKA=$(KAFKA) $(BIN)/pytest -s tests/job/test_keycloak.py tests/job/test_sign_in.py tests/job/test_msk_sign_in.py $(ARGS)

.PHONY: test-cluster
test-cluster: setup ## Run the job on a Spark cluster of two workers and kill one; also with everything on S3, and kill the driver
	@CLUSTER=1 $(BIN)/pytest -s tests/whole/test_cluster.py $(ARGS)

.PHONY: test-s3
test-s3: setup ## Kill the job repeatedly with its tables, and its checkpoint, on a real S3 server that refuses and loses requests (S3_KILLS=10 S3_SEED=1)
	@S3=1 KAFKA=$(KAFKA) $(BIN)/pytest -s tests/whole/test_job_on_s3.py tests/whole/test_object_store.py $(ARGS)

.PHONY: dist
dist: setup ## Build wheel and sdist in dist/, and install both as users do, with each Python at hand (needs the network)
	@rm -rf dist
	@$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	@DIST=1 $(BIN)/pytest --numprocesses 0 -s tests/project/test_dist.py $(ARGS)

.PHONY: image
EXTRA ?=
image: setup ## Build the images of serve and of the job with buildah, and run them (EXTRA="msk-iam s3a"; needs the network)
	@EXTRA="$(EXTRA)" PYTHONPATH=.:tests/support $(BIN)/python -m images
	@IMAGE=1 EXTRA="$(EXTRA)" $(BIN)/pytest --numprocesses 0 -s tests/project/test_images.py $(ARGS)

.PHONY: test-deploy
test-deploy: setup ## Install the chart on an API server, and check it and compose.yaml; Go builds what is needed (20 minutes, the first time)
	@DEPLOY=1 $(BIN)/pytest --numprocesses 0 -s tests/project/test_chart.py tests/project/test_api_server.py tests/project/test_compose.py $(ARGS)

.PHONY: bench
bench: setup ## Measure throughput, latency, start-up, growth and memory (ARGS="--help" for sizes)
	@PYTHONPATH=.:tests/support $(BIN)/python -m tests.benchmarks $(ARGS)

.PHONY: soak
soak: setup ## Run the job while a million groups come and go (ARGS="--for 25m --groups 1000000"), or ask serve with 200 connections (ARGS="--clients --for 1h")
	@PYTHONPATH=.:tests/support $(BIN)/python -m tests.soak $(ARGS)

.PHONY: fuzz
FUZZ ?= decoders
fuzz: setup ## Fuzz the decoders until stopped, or requests (FUZZ=messages); requires atheris: pip install atheris
	@$(BIN)/python tests/fuzz/fuzz_$(FUZZ).py $(ARGS)

.PHONY: board
board: setup ## Write what follows from the metrics: Grafana's board, and tables of docs/metrics.md
	@PYTHONPATH=.:tests/support $(BIN)/python -m grafana_board
	@PYTHONPATH=.:tests/support $(BIN)/python -m metrics_page

.PHONY: site
site: setup ## Build the documentation as a site with search, in .site/html; links are checked
	@$(BIN)/uv venv --quiet --allow-existing .site/venv
	@$(BIN)/uv pip install --quiet --python .site/venv --require-hashes --requirement tests/support/site.lock
	@NO_MKDOCS_2_WARNING=1 .site/venv/bin/mkdocs build --strict --config-file conf/mkdocs.yml

.PHONY: lint
lint: setup ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy tests/support

.PHONY: coverage
coverage: setup ## Measure the lines that tests run in their own process, without Spark and brokers
	@$(BIN)/coverage run --source decoders,streaming --branch -m pytest -q -m "not spark and not broker" $(ARGS)
	@$(BIN)/coverage report --skip-covered --skip-empty --sort cover

.PHONY: audit
audit: setup ## Check what comes from others: known vulnerabilities, the lock, licences, files (needs the network)
	@PYTHONPATH=.:tests/support $(BIN)/python -m audit

.PHONY: lock
lock: $(SETUP_DONE) ## Update requirements.lock from pyproject.toml, conf/jars.sha256 from conf/ivy.xml
	@$(BIN)/uv pip compile --universal --generate-hashes --group dev --extra msk-iam --python-version 3.11 --no-header \
	  --quiet --output-file requirements.lock pyproject.toml
	@printf 'pip-audit>=2.10\ntwine>=6.1\n' | $(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --no-header \
	  --quiet --output-file tests/support/audit.lock -
	@echo 'mkdocs-material>=9.8' | $(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --no-header \
	  --quiet --output-file tests/support/site.lock -
	@PYTHONPATH=.:tests/support $(BIN)/python -m jar_digests

.PHONY: clean
clean: ## Remove .venv, dist and caches (not the jar cache, tables or checkpoints)
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
