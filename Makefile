# `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export CARGO_INCREMENTAL ?= 0
HISTORIES ?= 100000
FIRST_SEED ?= 0
KILL_CYCLES ?= 2000
WEBHOOK_KILLS ?= 200
TICKS ?= 1000000
LISTENERS ?= 1000
CALL_POINTS ?= 40
FLIPS ?= 20000
POWER_CUTS ?= 10000
NODE_KILLS ?= 50
AMOUNT ?= 1000000
WORKER_KILLS ?= 200
SEEDS ?= 5
ROUNDS ?= 3
HARNESS ?= ../shared/bench/peers
PYTHON ?= python3
SDKS ?= rust python typescript

# Vite needs this version.
HAS_NODE = { command -v node && command -v npm && node -e 'const [a, b] = process.versions.node.split("."); \
	process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'; } >/dev/null

.PHONY: help run setup test test-sdk check tidy fmt lint unit docs update-docs audit test-python test-packaging fuzz-openapi update-python-lock \
	test-typescript setup-typescript programs ui test-ui screenshots scale-ui setup-ui \
	soak soak-model soak-kill soak-syscalls soak-corruption soak-power soak-cluster soak-webhooks soak-schedules soak-events \
	test-http-postgres bench-plots bench-peers regenerate-fixtures

help: ## lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 28

run: ## builds the server and starts it on 127.0.0.1:7070 with its data in ./longshore-data
	@if ! $(HAS_NODE); then echo "run: without Node.js 20.19 or later the dashboard is not built"; \
	else $(MAKE) --no-print-directory ui || echo "run: the dashboard could not be built; the server goes on without the newest one"; fi
	@echo "building the server; the first build compiles all dependencies and takes a few minutes"
	env -u CARGO_INCREMENTAL cargo build --profile quick --package longshore-cli
	@echo "starting target/quick/longshore on 127.0.0.1:7070 with its data in ./longshore-data; Ctrl-C stops it"
	"$${CARGO_TARGET_DIR:-target}/quick/longshore" serve

# The test runner only waits for tests: it is built without optimisation, debug information and its
# updater, to have it sooner.
setup: ## installs the tools and packages that the tests need
	@command -v cargo-nextest >/dev/null || { \
		echo "setup: building cargo-nextest, which runs the tests (some minutes, once)"; \
		CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug --no-default-features cargo-nextest; \
	}
	@missing=(); \
	command -v curl >/dev/null || missing+=(curl); \
	command -v strace >/dev/null || missing+=(strace); \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || test -n "$${LONGSHORE_PG_BIN:-}" || missing+=(postgresql); \
	test -x /usr/sbin/pgbouncer -o -x /usr/bin/pgbouncer || missing+=(pgbouncer); \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv); \
	if test $${#missing[@]} -gt 0; then \
		echo "setup: installing $${missing[*]}"; \
		(apt-get update -qq && apt-get install -y -qq "$${missing[@]}") >/dev/null \
			|| echo "setup: cannot install $${missing[*]} (install them by hand; for PostgreSQL 14 or later elsewhere set LONGSHORE_PG_BIN to its bin directory)"; \
	fi

# Steps of one line run side by side: tests wait more than they compute. Each step prints its output
# when it has ended, and one that fails fails the whole. The workers of the SDKs run alone: their cases
# have real leases of seconds. Clippy and rustdoc get what the tests leave of
# the processors. The dashboard comes before the compiler: the server with it in it is compiled once.
STEPS = $(MAKE) --no-print-directory
SIDE_BY_SIDE = $(STEPS) --jobs=4 --output-sync=recurse IDLE='nice -n 19'
# Cargo has its own limit of jobs: it cannot use that of make, and would warn.
CARGO := env -u MAKEFLAGS -u MFLAGS cargo

test: ## runs all tests and checks
	@$(STEPS) --jobs=1 setup setup-typescript setup-ui fmt tidy ui
	@echo "test: building all tests, installing packages (from nothing about ten minutes)"
	@$(SIDE_BY_SIDE) test-binaries packages
	@echo "test: running the tests in Rust, and clippy (some minutes)"
	@$(SIDE_BY_SIDE) unit-of-binaries lint
	@echo "test: running the tests of the dashboard, the SDKs and packaging, and rustdoc (some minutes)"
	@$(SIDE_BY_SIDE) --old-file=programs docs test-ui test-typescript test-python test-packaging
	@$(STEPS) --old-file=programs test-sdk
	@echo "all tests and checks passed"

# Node.js 20.19 or later: an older one, or none, is replaced by the package of the system.
setup-typescript:
	@$(HAS_NODE) || { \
		echo "setup: installing Node.js and npm"; \
		(apt-get update -qq && apt-get install -y -qq nodejs npm) >/dev/null || true; \
		$(HAS_NODE) || { echo "setup: cannot install Node.js 20.19 or later (install it by hand)"; exit 1; }; \
	}

TYPESCRIPT := clients/typescript
LONGSHORE_DEBUG = $${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/longshore

# Packages are installed again if the lock file has changed.
packages-typescript: setup-typescript
	@cd $(TYPESCRIPT); \
	if ! cmp -s package-lock.json node_modules/.installed-lock.json; then \
		npm ci --silent --no-audit --no-fund; \
		cp package-lock.json node_modules/.installed-lock.json; \
	fi

build-typescript: packages-typescript
	@cd $(TYPESCRIPT) && npm run --silent build && npm run --silent build:test

test-typescript: build-typescript programs ## builds and tests the TypeScript package against the real server
	cd $(TYPESCRIPT) && LONGSHORE_BIN="$${LONGSHORE_BIN:-$(LONGSHORE_DEBUG)}" npm run --silent test:built

test-sdk: build-typescript programs ## checks the workers of the SDKs against the server; SDKS="rust python" selects some
	$(PYTHON) sdk-conformance/run.py $(SDKS)

# The same command as that of the test runner: after `unit` nothing is left to compile. A build of
# single packages selects other features, and would compile every crate again.
programs:
	@$(CARGO) test --quiet --workspace --no-run

# `cargo build` embeds the files if they exist. Packages are installed if the lock file has changed,
# and files are built if a source is newer: a second call needs no network and takes no time.
ui: ## builds the dashboard into ui/dist; needs Node.js 20.19 or later
	@cd ui; \
	if ! cmp -s package-lock.json node_modules/.installed-lock.json; then \
		npm ci --silent --no-audit --no-fund; \
		cp package-lock.json node_modules/.installed-lock.json; \
	fi; \
	if ! test -f dist/index.html || test -n "$$(find src public scripts index.html package-lock.json package.json vite.config.ts -newer dist/index.html -print -quit)"; then \
		npm --silent run build; \
	fi

# Without Chromium only the tests in a browser are left out.
setup-ui: setup-typescript
	@command -v chromium >/dev/null || test -n "$${CHROMIUM:-}" || { \
		echo "setup: installing chromium"; \
		(apt-get update -qq && apt-get install -y -qq chromium fonts-inter fonts-jetbrains-mono) >/dev/null || true; \
	}

# The server that the tests start has the dashboard of this build in it.
test-ui: setup-ui ui programs ## checks the dashboard: types, size, logic, and every page in a real browser
	cd ui && npm --silent run check && npm --silent run unit
	@if command -v chromium >/dev/null || test -n "$${CHROMIUM:-}"; then \
		cd ui && LONGSHORE_BIN="$${LONGSHORE_BIN:-$(LONGSHORE_DEBUG)}" npm --silent run browser; \
	else \
		echo "test-ui: skipped: the tests in a browser need Chromium (install it, or set CHROMIUM to its program)"; \
	fi

screenshots: setup-ui ui programs ## takes the pictures of docs/dashboard.md again, into docs/images
	cd ui && LONGSHORE_BIN="$${LONGSHORE_BIN:-$(LONGSHORE_DEBUG)}" npm --silent run screenshots

scale-ui: setup-ui ui programs ## measures the dashboard on a store of AMOUNT (1,000,000) jobs
	cd ui && AMOUNT=$(AMOUNT) LONGSHORE_BIN="$${LONGSHORE_BIN:-$(LONGSHORE_DEBUG)}" npm --silent run scale

check: fmt tidy lint ## runs format, house rules, lints and the tests of the rules; for every commit
	cargo nextest run -p longshore-core

tidy: ## checks the house rules: words, type names, sizes, crate order, documented options
	cargo xtask tidy

fmt:
	cargo fmt --all --check

lint:
	$(IDLE) $(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

unit:
	cargo nextest run --workspace

# The steps of `make test`.
.PHONY: test-binaries unit-of-binaries packages packages-python packages-typescript packages-packaging build-typescript

# The list of test binaries lets the runner start without cargo, which clippy may occupy.
NEXTEST = "$(TARGET)/nextest"
test-binaries:
	@mkdir -p $(NEXTEST); \
	$(CARGO) nextest list --workspace --cargo-quiet --list-type binaries-only --message-format json >$(NEXTEST)/binaries.json; \
	$(CARGO) metadata --locked --format-version 1 >$(NEXTEST)/metadata.json

# Tests wait for disks, timers and processes: three for two processors.
unit-of-binaries:
	@$(CARGO) nextest run --binaries-metadata $(NEXTEST)/binaries.json --cargo-metadata $(NEXTEST)/metadata.json \
		--test-threads $$(( ($$(nproc) * 3 + 1) / 2 ))

# The virtual environments are made again if the pinned packages have changed.
packages: packages-typescript packages-python packages-packaging

TARGET = $$(realpath -m "$${CARGO_TARGET_DIR:-target}")

packages-python:
	@environment="$(TARGET)/python"; \
	if ! cmp -s clients/python/requirements-dev.txt "$$environment/requirements-dev.txt"; then \
		echo "test-python: installing the tools into $$environment"; \
		rm -rf "$$environment"; \
		$(PYTHON) -m venv "$$environment"; \
		"$$environment/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r clients/python/requirements-dev.txt; \
		"$$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e clients/python; \
		cp clients/python/requirements-dev.txt "$$environment/"; \
	fi

test-python: packages-python programs ## checks and tests the Python package against the real server
	@target="$(TARGET)"; \
	environment="$$target/python"; \
	cd clients/python; \
	"$$environment/bin/ruff" format --check --quiet . ../../examples/python; \
	"$$environment/bin/ruff" check --quiet . ../../examples/python; \
	"$$environment/bin/mypy" --no-error-summary; \
	LONGSHORE_BIN="$$target/debug/longshore" "$$environment/bin/python" -m pytest

packages-packaging:
	@environment="$(TARGET)/packaging"; \
	if ! cmp -s packaging/requirements.txt "$$environment/requirements.txt"; then \
		echo "test-packaging: installing the tools into $$environment"; \
		rm -rf "$$environment"; \
		$(PYTHON) -m venv "$$environment"; \
		"$$environment/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r packaging/requirements.txt; \
		cp packaging/requirements.txt "$$environment/"; \
	fi

# Tools that are missing (promtool, shellcheck, systemd-analyze, helm or Go) skip their checks, with a line.
test-packaging: packages-packaging programs ## checks packaging/, ops/ and the workflows, and runs the steps of the image
	@LONGSHORE_BIN="$${LONGSHORE_BIN:-$(TARGET)/debug/longshore}" "$(TARGET)/packaging/bin/python" -B packaging/check.py

# schemathesis needs Python 3.11 or later. STORE=postgres://… selects an empty database.
fuzz-openapi: programs ## compares the server with its OpenAPI description: generated requests from SEEDS (5) seeds
	@target="$$(realpath -m "$${CARGO_TARGET_DIR:-target}")"; \
	environment="$$target/fuzz-openapi"; \
	if ! cmp -s fuzz/openapi/requirements.txt "$$environment/requirements.txt"; then \
		echo "fuzz-openapi: installing the tools into $$environment"; \
		rm -rf "$$environment"; \
		$(PYTHON) -m venv "$$environment"; \
		"$$environment/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r fuzz/openapi/requirements.txt; \
		cp fuzz/openapi/requirements.txt "$$environment/"; \
	fi; \
	LONGSHORE_BIN="$${LONGSHORE_BIN:-$$target/debug/longshore}" "$$environment/bin/python" -B fuzz/openapi/run.py \
		--seeds $(SEEDS) $${STORE:+--store "$$STORE"}

update-python-lock: ## resolves the development packages of the Python package again
	@target="$$(realpath -m "$${CARGO_TARGET_DIR:-target}")"; \
	$(PYTHON) -m venv "$$target/python-lock"; \
	"$$target/python-lock/bin/pip" install --quiet --disable-pip-version-check uv; \
	cd clients/python; \
	"$$target/python-lock/bin/uv" pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.10 \
		--no-emit-index-url --no-header --no-annotate requirements-dev.in -o requirements-dev.txt

docs:
	RUSTDOCFLAGS="-D warnings" $(IDLE) $(CARGO) doc --workspace --no-deps --quiet
	$(IDLE) $(CARGO) test --workspace --doc --quiet

update-docs: ## regenerates docs/requirements.md, errors.md, settings.md and configuration.md
	UPDATE_DOCS=1 cargo test --quiet -p longshore-testkit --test traceability --test reference_pages
	UPDATE_DOCS=1 cargo test --quiet -p longshore-cli --bin longshore configuration_docs

audit: ## checks licences, sources and security advisories of the dependencies
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny --log-level error check bans licenses sources
	@if cargo deny --log-level off fetch db; then \
		cargo deny --log-level error check advisories; \
	else \
		echo "audit: the advisory database is not reachable: advisories were not checked"; \
	fi

soak: soak-model soak-kill soak-syscalls soak-corruption soak-power soak-cluster soak-webhooks soak-schedules soak-events ## runs all soak tests: hours

soak-model: ## compares engine and model on HISTORIES (100,000) random histories from FIRST_SEED (0)
	HISTORIES=$(HISTORIES) FIRST_SEED=$(FIRST_SEED) cargo test --release -p longshore-testkit --test differential -- --exact soak --nocapture

soak-kill: ## kills the embedded store KILL_CYCLES (2,000) times under load and looks for losses
	KILL_CYCLES=$(KILL_CYCLES) cargo test --release -p longshore-store-embedded --test crash -- --nocapture

soak-syscalls: ## kills the embedded store at CALL_POINTS (40) points of each system call on each file
	CALL_POINTS=$(CALL_POINTS) cargo test --release -p longshore-store-embedded --test kill_at_syscall -- --nocapture

soak-corruption: ## truncates the WAL at every byte of its last 64 KiB, flips FLIPS (20,000) bits in each file
	TORN_FRAMES=16 FLIPS=$(FLIPS) cargo test --release -p longshore-store-embedded --test torn_wal --test corruption -- --nocapture --test-threads=1

soak-power: ## simulates POWER_CUTS (10,000) power cuts of the embedded store from FIRST_SEED (0)
	POWER_CUTS=$(POWER_CUTS) FIRST_SEED=$(FIRST_SEED) cargo test --release -p longshore-store-embedded --test power_cut -- --nocapture

soak-cluster: ## kills NODE_KILLS (50) of three nodes on one PostgreSQL, and WORKER_KILLS (200) workers
	NODE_KILLS=$(NODE_KILLS) WORKER_KILLS=$(WORKER_KILLS) LATE_PERCENT=0 cargo test --release -p longshore-store-postgres --test kill_nodes -- --nocapture

soak-webhooks: ## kills a server WEBHOOK_KILLS (200) times while it delivers to a receiver that misbehaves
	WEBHOOK_KILLS=$(WEBHOOK_KILLS) cargo test --release -p longshore-cli --test cli -- webhook_soak --nocapture

soak-schedules: ## fires TICKS (1,000,000) ticks on two servers over clock changes and lost answers, and 50,000 on PostgreSQL
	TICKS=$(TICKS) cargo test --release -p longshore-server --lib -- schedules::tests::two_servers_on_one_store --nocapture
	TICKS=50000 cargo test --release -p longshore-server --lib -- schedules::tests::two_servers_on_postgres --nocapture

soak-events: ## LISTENERS (1,000) clients follow the events of a server under load; a tenth of them never reads
	ulimit -n 8192; LISTENERS=$(LISTENERS) cargo test --release -p longshore-server --test wire -- events::listeners_that_never_read --nocapture

bench-plots: ## measures the sweeps (15 minutes, on a machine that does nothing else) and draws bench/plots
	cargo build --release -p longshore-cli -p longshore-bench
	target/release/longshore-bench sweep batch-size latency-by-load payload queues parked-claims backlog archived costs
	target/release/longshore-bench plot

bench-peers: ## measures the goals beside the peers of HARNESS, ROUNDS (3) times in turn
	cargo build --release -p longshore-cli -p longshore-bench
	target/release/longshore-bench compare --harness $(HARNESS) --rounds $(ROUNDS) --goals

test-http-postgres: ## runs every scenario and the HTTP tests on PostgreSQL
	SCENARIO_STEP=1 cargo nextest run -p longshore-server --test wire_on_postgres --test scenarios_on_postgres --no-fail-fast

regenerate-fixtures: ## rewrites crates/store-embedded/fixtures; only before a release has written the format
	cargo test --quiet -p longshore-store-embedded --test formats -- --ignored --exact write_the_fixture
