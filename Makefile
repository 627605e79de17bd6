# paddock's build. `make` sets everything up and runs a first program,
# `make check` tests all of it. Everything that is slow to make is kept outside
# of the checkout, in $(PADDOCK_CACHE), by the digest of what it is made from.

SHELL := /bin/bash
export PADDOCK_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/paddock-build
export CGO_ENABLED ?= 0
# A program with the race detector sleeps for a second before it ends, to hear of
# races until then; tests start thousands of them.
export GORACE ?= atexit_sleep_ms=20


VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X paddock/internal/cli.version=$(VERSION)
GO_FILES := $(shell git ls-files -co --exclude-standard '*.go' go.mod go.sum)

# How far make is, where it makes all: recipes are steps by these names.
NATIVE_STEPS = $(if $(filter 1,$(NATIVE)),engine worker)
STEPS = $(if $(filter-out all,$(MAKECMDGOALS)),,interpreters skills console $(NATIVE_STEPS) binary preparation program)
BEGAN := $(shell date +%s)
export BEGAN
STEP = @STEPS='$(STEPS)' bash tools/step.sh

.PHONY: all
all: guests skills bin/paddock first-run ## set up, build, and run a first program
	@took=$$(($$(date +%s) - $(BEGAN))); if [ "$$(date -r bin/paddock +%s)" -ge $(BEGAN) ]; then \
		echo "paddock: all is built, after $$took s: bin/paddock"; else echo "paddock: nothing had to be built, seen after $$took s: bin/paddock"; fi

.PHONY: help
help: ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

## Guests ---------------------------------------------------------------------

GUEST_INPUTS := $(shell git ls-files -co --exclude-standard guest | grep -v '^guest/dist/')

.PHONY: guests
guests: guest/dist/stamp ## build the interpreters that run inside (minutes, once)

guest/dist/stamp: $(GUEST_INPUTS)
	$(STEP) interpreters bash guest/build/guests.sh guest/dist

.PHONY: guests-verify
guests-verify: ## build the guests again from nothing and compare
	@bash guest/build/verify.sh guest/dist

## Skills ---------------------------------------------------------------------

SKILL_FILES := $(shell git ls-files -co --exclude-standard skills | grep -v '^skills/dist/')

.PHONY: skills
skills: skills/dist/digests ## pack what the ready skills need of other people's

# A Python of the guests' compiles it, so they come first.
skills/dist/stamp: $(wildcard skills/build/*) | guest/dist/stamp
	$(STEP) skills bash skills/build/packages.sh skills/dist

# paddock does not compute what can be written down before.
skills/dist/digests: $(SKILL_FILES) skills/dist/stamp $(wildcard internal/skill/builtin.go internal/skill/folder.go)
	@go run ./skills/build/digests $@

## Console --------------------------------------------------------------------

CONSOLE_FILES := $(shell git ls-files -co --exclude-standard console | grep -v '^console/dist/')

.PHONY: console
console: console/dist/stamp ## build the pages that paddock serve shows in a browser

console/dist/stamp: $(CONSOLE_FILES)
	$(STEP) console bash console/build.sh console/dist

## Native engine --------------------------------------------------------------

# The guests translated ahead of time, in a worker that the binary carries.
# NATIVE=0 leaves it out; elsewhere than on Linux it is not known.
PLATFORM := $(shell go env GOOS)-$(shell go env GOARCH)
NATIVE ?= $(if $(filter linux-amd64 linux-arm64,$(PLATFORM)),1,0)
ENGINE := internal/sandbox/wasm/native/lib/libguests.a
CARRIED := internal/sandbox/wasm/nativeworker/dist
WORKER := $(CARRIED)/$(PLATFORM)/worker.sha256
PROGRAM_FILES := $(filter-out %_test.go examples/% packaging/% tests/% tools/%,$(GO_FILES))
EMBEDDED_FILES := $(shell find internal cmd -type f ! -name '*.go' ! -path '*/testdata/*' ! -path '*/dist/*' ! -path '*/__pycache__/*')

$(ENGINE): guest/dist/stamp $(wildcard guest/build/native.sh guest/build/native/* guest/build/native/profile/* internal/sandbox/wasm/native/guest.h)
	$(STEP) engine bash guest/build/native.sh $(@D)

# A change of the guests or of what translates them needs it; so does a change of the
# training programs, which nothing asks for.
.PHONY: profile
profile: guest/dist/stamp ## train the native engine again: what its guests use, for the compiler
	@bash guest/build/native.sh -profile

$(WORKER): $(ENGINE) $(PROGRAM_FILES) $(wildcard internal/sandbox/wasm/native/guest.*) bin/native-$(NATIVE)
	$(STEP) worker bash guest/build/worker.sh $(@D)

# What was chosen last.
bin/native-$(NATIVE):
	@mkdir -p bin && rm -f bin/native-* $(CARRIED)/*/worker.* && touch $@

## Binary ---------------------------------------------------------------------

bin/paddock: $(PROGRAM_FILES) $(EMBEDDED_FILES) $(SKILL_FILES) console/dist/stamp guest/dist/stamp skills/dist/digests bin/native-$(NATIVE) $(if $(filter 1,$(NATIVE)),$(WORKER))
	$(STEP) binary go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/paddock

.PHONY: prepare
prepare: bin/paddock ## compile the guests for this machine, so that no program waits for it
	$(STEP) preparation bin/paddock prepare

.PHONY: first-run
first-run: prepare
	$(STEP) program bin/paddock run examples/hello.py

## Packages -------------------------------------------------------------------

# v1.2.3 is the release 1.2.3; what has no tag comes before every release.
RELEASE := $(or $(patsubst v%,%,$(filter v%,$(VERSION))),0.0.0-g$(VERSION))
RELEASED := linux-amd64 linux-arm64 darwin-arm64 darwin-amd64 windows-amd64
ELSEWHERE := $(addprefix dist/bin/,$(filter-out $(PLATFORM),$(RELEASED)))

# Other systems' binaries have no native engine: that of Linux is built where it runs.
$(ELSEWHERE): dist/bin/%: $(PROGRAM_FILES) $(EMBEDDED_FILES) $(SKILL_FILES) console/dist/stamp guest/dist/stamp skills/dist/digests
	@echo "paddock: building for $*"
	@mkdir -p $(@D) && CGO_ENABLED=0 GOOS=$(firstword $(subst -, ,$*)) GOARCH=$(lastword $(subst -, ,$*)) go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/paddock

.PHONY: release
# Every packed file's time.
release: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
release: bin/paddock $(ELSEWHERE) ## archives, packages, an image, MCP bundles and checksums, in dist/release
	@echo "paddock: packing dist/release"
	@rm -rf dist/release && cd packaging/release && go run . -out ../../dist/release -source ../.. -version $(RELEASE) \
		$(foreach t,$(RELEASED),$(t)=../../$(if $(filter $(PLATFORM),$(t)),bin/paddock,dist/bin/$(t)))

.PHONY: release-check
release-check: release ## install and use what make release made, each package from its file
	@cd packaging/release && go vet ./... && go test ./...
	@PADDOCK_BIN=$(CURDIR)/bin/paddock PADDOCK_DIST=$(CURDIR)/dist/release go test -count=1 -v ./tests/install

## Tests ----------------------------------------------------------------------

.PHONY: check
check: lint bin/paddock prepare cross suites images engines browser test ## everything that CI checks

# The linters are programs of a module of their own: what they depend on is no concern
# of what paddock depends on.
LINTER := bin/tools/golangci-lint
$(LINTER): tools/go.mod tools/go.sum
	@cd tools && go build -o ../bin/tools/ tool

.PHONY: lint
lint: $(LINTER) guest/dist/stamp ## what CI checks of the code without running it
	@echo "paddock: formatting, linters, known vulnerabilities"
	@out=$$(gofmt -l $(filter %.go,$(GO_FILES))); [ -z "$$out" ] || { echo "not formatted (gofmt -w):"; echo "$$out"; exit 1; }
	@$(LINTER) run ./...
	@bash .ci/vulnerabilities bin/tools/govulncheck

.PHONY: stats
stats: ## the largest types and files, by methods and lines
	@cd tools && go run ./stats ..

.PHONY: cross
cross: ## build for the other systems
	@echo "paddock: building for macOS, Windows and arm64"
	@for t in darwin/arm64 windows/amd64 linux/arm64; do GOOS=$${t%/*} GOARCH=$${t#*/} go build -o /dev/null ./... || exit 1; done

.PHONY: suites
suites: ## the official test suites of JavaScript and MCP, MCP's clients and E2B's SDKs, for the tests
	@bash tests/conformance/fetch.sh >/dev/null
	@bash tests/mcp/install.sh >/dev/null
	@bash tests/mcp/install.sh clients >/dev/null
	@bash tests/e2b/install.sh >/dev/null

.PHONY: images
images: ## real images for the tests of Linux sandboxes, from Debian's packages
ifeq ($(shell uname -s)-$(shell id -u),Linux-0)
	@echo "paddock: the images of the tests"
	@bash tests/image/build.sh >/dev/null
endif

.PHONY: conformance
conformance: bin/paddock prepare suites ## MCP's official suite against paddock
	@echo "paddock: MCP's conformance suite, with its fixtures and without"
	@PADDOCK_BIN=$(CURDIR)/bin/paddock go test -count=1 -run Conformance -v ./internal/mcpserver ./tests/mcp

.PHONY: engines
engines: ## what takes any WebAssembly module through the native engine, for the tests
ifeq ($(NATIVE),1)
	@bash tests/engines/tools.sh >/dev/null
endif

.PHONY: browser
browser: ## Chromium, in which the tests open previews
ifeq ($(shell uname -s)-$(shell id -u),Linux-0)
	@bash tests/browser/install.sh >/dev/null
endif

# What works in processes of its own, most of it the paddock that was built: the race
# detector would watch the tests' side alone, and cost the others their time.
DRIVES := ./internal/picture $(addprefix ./tests/,browser crash docs e2b engines examples hostile image install linux mcp network/joined network/linux network/packages network/preview network/secrets principals service tools)
# With one compiler for all of C, what is built for the race detector is built once.
RACE := $(if $(filter 1,$(NATIVE)),CC=clang-19) CGO_ENABLED=1 go test -race -vet=off -timeout 25m
PLAIN := go test -vet=off -timeout 25m
# What compares times of large inputs takes the race detector ten minutes.
GROWS := $(sort $(dir $(shell grep -rl --include='*_test.go' paddock/internal/growth internal)))

.PHONY: test
test: guest/dist/stamp console/dist/stamp skills/dist/digests $(if $(filter 1,$(NATIVE)),$(WORKER)) ## tests with the race detector, real guests included
	@echo "paddock: tests"
	@set -o pipefail; driven=$$(go list $(DRIVES)) && all=$$(go list ./... | grep -vxF "$$driven") && PADDOCK_BIN=$(CURDIR)/bin/paddock $(RACE) -skip 'OwnTests$$|Square' $$all
	@echo "paddock: how work grows with its input"
	@$(PLAIN) -run Square $(addprefix ./,$(GROWS))
	@echo "paddock: tests of the paddock that was built"
	@CGO_ENABLED=0 PADDOCK_BIN=$(CURDIR)/bin/paddock $(PLAIN) $(DRIVES)
	@echo "paddock: what packs releases"
	@cd packaging/release && $(PLAIN) ./...
	@echo "paddock: CPython's own tests and test262, in the guests"
	@$(PLAIN) -run 'OwnTests$$' ./internal/sandbox/wasm
ifeq ($(NATIVE),1)
	@echo "paddock: the backend on the other engine"
	@$(PLAIN) -skip 'OwnTests$$' ./internal/sandbox/wasm -args -engine wazero
	@$(MAKE) --no-print-directory native
endif

# What is built with the tag: nothing else differs by it.
TAGGED := ./cmd/paddock-worker ./internal/sandbox/wasm/native ./internal/sandbox/wasm/worker ./internal/sandbox/wasm/confine

.PHONY: native
native: $(ENGINE) $(LINTER) ## the backend's tests with the native engine inside the test, and the race detector
	@echo "paddock: the native engine, with the race detector"
	@CC=clang-19 CGO_ENABLED=1 $(LINTER) run --build-tags native $(TAGGED)
	@$(RACE) -tags native -skip 'OwnTests$$|TestTheBackendKeepsTheContract/.*/limits/.*fuel|TestTheHostHashesWhatIsLong' ./internal/sandbox/wasm ./internal/sandbox/wasm/worker ./internal/sandbox/wasm/confine
	@echo "paddock: the native engine on processors without FSGSBASE"
	@CC=clang-19 CGO_ENABLED=1 $(PLAIN) -tags native,nofsgsbase -run 'TestTheBackendKeepsTheContract/.*/(run|state)' ./internal/sandbox/wasm

.PHONY: model
model: ## sessions at random against the simple model: all rounds, without the race detector
	@CGO_ENABLED=0 go test -count=1 -timeout 1h ./tests/model -args -model.rounds 50

.PHONY: hostile
hostile: bin/paddock prepare ## all attacks on the server at once, beside an honest client that may not notice
	@CGO_ENABLED=0 PADDOCK_BIN=$(CURDIR)/bin/paddock go test -count=1 -v -run OneHostile ./tests/hostile -args -strict

.PHONY: soak
soak: bin/paddock prepare ## an hour of four hostile owners and an honest one
	@CGO_ENABLED=0 PADDOCK_BIN=$(CURDIR)/bin/paddock go test -count=1 -v -timeout 2h -run ForLong ./tests/hostile -args -soak 1h

.PHONY: strangers
strangers: bin/paddock prepare suites ## packages, MCP servers and clients of others, each used once; writes docs/compatibility.md
	@CGO_ENABLED=0 PADDOCK_BIN=$(CURDIR)/bin/paddock go test -count=1 -timeout 2h -run 'OfStrangers$$' ./tests/network/packages -args -strangers $(CURDIR)/docs/compatibility.md
	@CGO_ENABLED=0 PADDOCK_BIN=$(CURDIR)/bin/paddock go test -count=1 -timeout 2h -run 'OfStrangers$$' ./tests/tools -args -strangers $(CURDIR)/docs/compatibility.md
	@CGO_ENABLED=0 PADDOCK_BIN=$(CURDIR)/bin/paddock go test -count=1 -timeout 10m -run 'WhatLibrariesForAgentsShow|OpenAIsStrictMode' ./tests/mcp

.PHONY: bench
bench: bin/paddock prepare ## one table of measurements, each with its baseline
	@PADDOCK_BIN=$(CURDIR)/bin/paddock bash tests/bench/bench.sh

.PHONY: clean
clean: ## remove what was built here; the cache stays
	rm -rf bin dist guest/dist/*.zip guest/dist/*.json guest/dist/stamp skills/dist/documents skills/dist/digests skills/dist/stamp $(filter-out %/README.md,$(wildcard console/dist/*)) $(CARRIED)/*/worker.* internal/sandbox/wasm/native/lib
