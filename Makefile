# The few commands that people type. Each only calls cargo; `cargo xtask --help` has the rest.

.PHONY: run stop test check unit e2e bench fmt setup

run: ## Build what is missing, start SPACE, run a program in a sandbox
	@cargo xtask run

stop: ## Stop what `make run` left up
	@cargo xtask run --stop

test: ## Everything that CI runs
	@cargo xtask test

check: ## Format, lints, documentation, dependencies
	@cargo xtask check

unit: ## Tests that need no microVM
	@cargo xtask unit

e2e: ## Tests on real microVMs
	@cargo xtask e2e

bench: ## SPACE against raw Firecracker
	@cargo xtask bench

fmt: ## Format the code
	@cargo fmt --all

setup: ## Install what all of this needs
	@cargo xtask setup
