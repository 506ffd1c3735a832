# make: what can be done. Everything works with plain go commands too.
GO ?= go
LINT ?= golangci-lint
FUZZTIME ?= 30s
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help build test race lint fuzz bench ci image

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/raiderfleet
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/raiderfleet ./cmd/raiderfleet

test: ## run the tests
	$(GO) test ./...

race: ## run the tests with the race detector
	$(GO) test -race -timeout 8m ./...

lint: ## format, vet and lint; LINT=path of golangci-lint v2.15.0
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "not formatted: gofmt -w ."; exit 1; }
	$(GO) vet ./...
	$(LINT) run ./...
	.ci/lint-bites $(LINT)

fuzz: ## run every fuzz test for FUZZTIME (30s)
	@set -e; for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; \
	  done; \
	done

bench: ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

ci: ## all that must hold before a change goes in
	.ci/run

image: ## build the container image raiderfleet:local
	docker build -f deploy/Dockerfile --build-arg VERSION=$(VERSION) -t raiderfleet:local .
