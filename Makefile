# make up     a cluster to try things on, and a demo in it
# make test   everything CI runs: linters, types, layers, tests
PYTHON ?= python3
BIN := .venv/bin
# Twice as many as two cores: tests that wait, for a cluster or a program, leave them idle half of the time.
JOBS ?= 4
PIP := $(BIN)/pip install -q --disable-pip-version-check

.PHONY: up test compiled-tests lint bench simulate jepsen hostile matrix docs site screenshots clean tools lock audit sbom dist man

# Real containers if this machine can run them. As root, and if there is apt, the programs for them are installed as well.
up:
	@$(MAKE) --question .venv/.installed >/dev/null 2>&1 && exec .ci/tools up; \
	.ci/tools up & tools=$$!; $(MAKE) --no-print-directory .venv/.installed; code=$$?; wait $$tools; exit $$code
	@$(BIN)/transom status >/dev/null 2>&1 || $(BIN)/transom up --runtime auto
	@if command -v kubectl >/dev/null; then \
		kubectl --context transom get nodes --output wide; \
	else \
		$(BIN)/transom status; \
	fi
	@$(BIN)/transom demo || echo "the demo did not start, but the cluster runs; try again with: $(BIN)/transom demo"

# Tests that fail run once more, alone: the machine may have been busy. Compiled modules are kept regardless of the
# environment: tests start hundreds of processes, and each would otherwise compile everything it imports (1 to 2 s).
test: export PYTHONDONTWRITEBYTECODE =
test: export PYTHONPYCACHEPREFIX = $(CURDIR)/.tools/pycache
test: .venv/.installed-dev
	@$(MAKE) --no-print-directory --output-sync -j3 tools lint compiled-tests
	$(BIN)/pytest -n $(JOBS) --dist worksteal --cache-clear -rs || { [ $$? = 1 ] && $(BIN)/python -m tools.failed_again; }

# pytest rewrites the assertions of a thousand files before it compiles them: once here, while mypy has the other core, and not
# in each worker. What cannot be collected is reported by the run itself.
compiled-tests: .venv/.installed-dev
	@$(BIN)/pytest --collect-only -p no:cacheprovider >/dev/null 2>&1 || true

lint: .venv/.installed-dev audit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/lint-imports

# Known vulnerabilities of the pinned packages, if the database is reachable.
audit: .venv/.installed-dev
	@$(BIN)/python -m tools.audit

bench: .venv/.installed
	@$(BIN)/transom up --name bench --no-nodes --kubeconfig .tools/bench.kubeconfig
	@$(BIN)/transom bench api --name bench; code=$$?; $(BIN)/transom delete --name bench; exit $$code

# Random faults on virtual time: make simulate SEEDS=1000
SEEDS ?= 100
simulate: .venv/.installed-dev
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

# Faults in three API servers and three etcd members, with a check of what clients saw: make jepsen SEEDS=100
jepsen: .venv/.installed-dev
	$(BIN)/python -m tests.jepsen --seeds $(SEEDS)

# Every row of the authorization matrix; `make test` runs a quarter of them
matrix: .venv/.installed-dev
	TRANSOM_FULL_MATRIX=1 $(BIN)/pytest tests/apiserver/authorization

# Attacks on a server with many objects: make hostile ROUNDS=100 PODS=50000 SEED=7
ROUNDS ?= 10
hostile: .venv/.installed-dev
	TRANSOM_LOOP_MARGIN=1 ROUNDS=$(ROUNDS) $(BIN)/pytest tests/hostile -rs

# The pages and lists that are generated from the records of transom.windows, and the picture of the architecture.
docs: .venv/.installed-dev
	$(BIN)/python -m tools.architecture_diagram
	$(BIN)/python -m tests.windows.marks
	$(BIN)/python -m transom.windows.pages docs/windows

# The documentation site, into site/. Warnings, such as a broken link, are errors. The search needs a web server.
site: .venv/.installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "built site/; to read it: python3 -m http.server --bind 127.0.0.1 --directory site"

# The pictures of the documentation: pages of the console in Chromium, and a terminal session.
screenshots: .venv/.installed-dev
	TRANSOM_SCREENSHOTS=docs/images $(BIN)/pytest tests/web/pages/test_in_chromium.py
	$(BIN)/python -m tools.terminal_svg docs/images/terminal.svg

tools: .venv/.created
	@.ci/tools

clean:
	rm -rf .venv .tools site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The lock files, with the hashes of all files of each version: requirements.lock for run time, -fast for the extra `fast`, -dev for
# development, -build for the build, -docs for the site. Versions are kept where possible; to upgrade: make lock UPGRADE=PACKAGE,
# or UPGRADE=all.
COMPILE := $(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --custom-compile-command "make lock" \
	$(if $(filter all,$(UPGRADE)),--upgrade,$(addprefix --upgrade-package ,$(UPGRADE)))
lock: .venv/.created
	@$(BIN)/python -c "import uv" 2>/dev/null || $(PIP) uv
	@$(COMPILE) pyproject.toml --extra dev --output-file requirements-dev.lock
	@$(COMPILE) pyproject.toml --constraint requirements-dev.lock --output-file requirements.lock
	@$(COMPILE) pyproject.toml --extra docs --constraint requirements-dev.lock --output-file requirements-docs.lock
	@$(COMPILE) pyproject.toml --extra fast --constraint requirements-dev.lock --output-file .tools/all-fast.lock
	@$(BIN)/python -m tools.locked .tools/all-fast.lock requirements.lock > requirements-fast.lock
	@$(BIN)/python -m tools.build_requirements | $(COMPILE) - --constraint requirements-dev.lock --output-file requirements-build.lock

# The software bill of materials, CycloneDX in JSON.
sbom: .venv/.installed
	@$(BIN)/python -m tools.sbom > sbom.cdx.json
	@echo sbom.cdx.json

# Man pages and shell completions, in build/share.
man: .venv/.installed
	@$(BIN)/python -m tools.manual

# Wheel and sdist in dist/, with man pages, completions, the software bill of materials and checksums. The build is reproducible.
dist: .venv/.installed
	@$(BIN)/python -m tools.dist dist

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "transom needs Python 3.11 or later; set it with: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || \
		{ rm -rf .venv; echo "no venv module: install the package python3-venv first" >&2; exit 1; }
	@touch $@

# Only files with the hashes of the lock files are installed; nothing is resolved, and nothing else is fetched to build with.
.venv/.installed: .venv/.created pyproject.toml requirements.lock requirements-fast.lock requirements-build.lock
	@$(BIN)/pip uninstall -q -y transom 2>/dev/null  # the name of older checkouts
	$(PIP) --no-deps --require-hashes -r requirements-build.lock -r requirements.lock -r requirements-fast.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/.installed-dev: .venv/.created pyproject.toml requirements-dev.lock requirements-build.lock
	@$(BIN)/pip uninstall -q -y transom 2>/dev/null  # the name of older checkouts
	$(PIP) --no-deps --require-hashes -r requirements-build.lock -r requirements-dev.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@ .venv/.installed

.venv/.installed-docs: .venv/.created pyproject.toml requirements-docs.lock
	$(PIP) --no-deps --require-hashes -r requirements-docs.lock
	@touch $@
