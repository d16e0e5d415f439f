# make up     a cluster to try things on, and a demo in it
# make test   everything CI runs: linters, types, layers, tests
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2

.PHONY: up test lint bench simulate docs clean tools lock

# Real containers where this machine can run them; what that takes is installed beside transom, by root and where there is apt.
up:
	@$(MAKE) --question .venv/.installed >/dev/null 2>&1 && exec .ci/tools up; \
	.ci/tools up & tools=$$!; $(MAKE) --no-print-directory .venv/.installed; code=$$?; wait $$tools; exit $$code
	@$(BIN)/transom status >/dev/null 2>&1 || $(BIN)/transom up --runtime auto
	@if command -v kubectl >/dev/null; then \
		kubectl --context transom get nodes --output wide; \
	else \
		$(BIN)/transom status; \
	fi
	@$(BIN)/transom demo || echo "the cluster works all the same; try again with: $(BIN)/transom demo"

test: .venv/.installed-dev tools lint
	$(BIN)/pytest -n $(JOBS) --dist worksteal -rs

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.installed
	@$(BIN)/transom up --name bench --no-nodes --kubeconfig .tools/bench.kubeconfig
	@$(BIN)/transom bench api --name bench; code=$$?; $(BIN)/transom delete --name bench; exit $$code

# Random faults on virtual time: make simulate SEEDS=1000
SEEDS ?= 100
simulate: .venv/.installed-dev
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

# The pages and lists that are made from the records of transom.windows and the tests that show them.
docs: .venv/.installed
	$(BIN)/python -m tests.windows.marks
	$(BIN)/python -m transom.windows.pages docs/windows

tools: .venv/.created
	@.ci/tools

clean:
	rm -rf .venv .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The versions that are in use now become the versions everybody uses.
lock: .venv/.installed-dev
	@{ head -1 requirements-dev.lock; \
	   $(BIN)/pip freeze --exclude-editable --exclude pip --exclude setuptools --exclude py-spy | sort -f; } > .lock
	@mv .lock requirements-dev.lock

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "transom needs Python 3.11 or later; say which with: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || \
		{ rm -rf .venv; echo "no venv module: install the package python3-venv first" >&2; exit 1; }
	@touch $@

.venv/.installed: .venv/.created pyproject.toml
	$(BIN)/pip install -q --disable-pip-version-check -e .
	@touch $@

.venv/.installed-dev: .venv/.created pyproject.toml requirements-dev.lock
	$(BIN)/pip install -q --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@ .venv/.installed
