# `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export CARGO_INCREMENTAL ?= 0
HISTORIES ?= 100000
FIRST_SEED ?= 0
KILL_CYCLES ?= 2000
CALL_POINTS ?= 40
FLIPS ?= 20000
NODE_KILLS ?= 50
WORKER_KILLS ?= 200

.PHONY: help run test check tools fmt lint deny unit docs update-docs campaign campaign-rules campaign-kills campaign-calls campaign-damage campaign-fleet wire-on-postgres fixture

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 26

run: ## builds all and starts the server on 127.0.0.1:7070, jobs in ./longshore-data
	cargo build --quiet --workspace
	target/debug/longshore serve

test: tools fmt lint deny unit docs ## everything, installing what it needs
	@echo "all of it passed"

check: fmt lint deny ## in seconds: format, lints, dependencies, the rules' own tests
	cargo nextest run -p longshore-core

tools:
	@command -v cargo-nextest >/dev/null || cargo install cargo-nextest --locked
	@command -v cargo-deny >/dev/null || cargo install cargo-deny --locked
	@command -v curl >/dev/null || (apt-get update -qq && apt-get install -y -qq curl) >/dev/null || echo "curl is missing: install it, the tour of the README needs it"
	@command -v strace >/dev/null || (apt-get update -qq && apt-get install -y -qq strace) >/dev/null || echo "strace is missing: install it, the tests of failing disks need it"
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || test -n "$${LONGSHORE_PG_BIN:-}" || (apt-get update -qq && apt-get install -y -qq postgresql) >/dev/null || echo "PostgreSQL (14 or later) is missing: install the package postgresql, or set LONGSHORE_PG_BIN to its bin directory; the tests of the PostgreSQL store need it"
	@test -x /usr/sbin/pgbouncer -o -x /usr/bin/pgbouncer || (apt-get update -qq && apt-get install -y -qq pgbouncer) >/dev/null || echo "PgBouncer is missing: install the package pgbouncer, a test of the PostgreSQL store needs it"

fmt:
	cargo fmt --all --check

lint:
	cargo clippy --workspace --all-targets --quiet -- -D warnings

deny: tools
	cargo deny --log-level error check bans licenses sources

unit:
	cargo nextest run --workspace

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	cargo test --workspace --doc --quiet

update-docs: ## writes docs/requirements.md anew from the tests
	UPDATE_DOCS=1 cargo test --quiet -p longshore-testkit --test traceability

campaign: campaign-rules campaign-kills campaign-calls campaign-damage campaign-fleet ## the long proofs, hours if you let them

campaign-rules: ## engine against model on HISTORIES (100,000) random histories from FIRST_SEED (0)
	HISTORIES=$(HISTORIES) FIRST_SEED=$(FIRST_SEED) cargo test --release -p longshore-testkit --test differential -- --exact campaign --nocapture

campaign-kills: ## kills the embedded store KILL_CYCLES (2,000) times under load and looks for losses
	KILL_CYCLES=$(KILL_CYCLES) cargo test --release -p longshore-store-embedded --test crash -- --nocapture

campaign-calls: ## kills the embedded store at CALL_POINTS (40) places of each system call on each of its files
	CALL_POINTS=$(CALL_POINTS) cargo test --release -p longshore-store-embedded --test kill_at_syscall -- --nocapture

campaign-damage: ## cuts the log at every byte of its last 64 KiB and flips FLIPS (20,000) bits in each file
	TORN_FRAMES=16 FLIPS=$(FLIPS) cargo test --release -p longshore-store-embedded --test torn_wal --test corruption -- --nocapture --test-threads=1

wire-on-postgres: ## every scenario file and the tests of the wire over HTTP, with the jobs on PostgreSQL
	SCENARIO_STEP=1 cargo nextest run -p longshore-server --test wire_on_postgres --test scenarios_on_postgres --no-fail-fast

campaign-fleet: ## kills NODE_KILLS (50) nodes of three that work on one PostgreSQL, and WORKER_KILLS (200) workers
	NODE_KILLS=$(NODE_KILLS) WORKER_KILLS=$(WORKER_KILLS) LATE_PERCENT=0 cargo test --release -p longshore-store-postgres --test kill_nodes -- --nocapture

fixture: ## writes crates/store-embedded/fixtures for the present format; only before a release has written it
	cargo test --quiet -p longshore-store-embedded --test formats -- --ignored --exact write_the_fixture
