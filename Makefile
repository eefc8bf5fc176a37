# refit. `make help` explains the targets.
SHELL := /bin/bash
GO ?= go
export CGO_ENABLED ?= 0
VERSION ?= 0.1.0
LDFLAGS := -s -w -X github.com/refit-dev/refit/internal/componentversion.refit=$(VERSION)
# Without gRPC's debug pages: their text/template makes the linker keep every exported method of the agent.
TAGS := grpcnotrace
# CLI are the programs for a person's computer; the others run on Linux.
CLI := ./cmd/refit ./cmd/refit-render
# BIN is where programs go; release builds them for other systems elsewhere.
BIN ?= bin
TOOL := $(GO) tool -modfile=tools/go.mod
# A lab and the tests need these Debian packages; nothing else is installed by hand.
# The tests show ignition-validate what they make, deploy with ostree and build with buildah; strace cuts its power.
# conmon, skopeo, pkg-config and libseccomp-dev build and run CRI-O. HAProxy stands before API servers.
# Prometheus and its promtool check alerts, dashboard and metrics; Alertmanager takes notifications.
# MkDocs builds the documentation as web pages.
# The labels of files are compared with matchpathcon and a real policy: neither package switches SELinux on (selinux-basics would).
# The tests of file systems make their media with dosfstools, mtools, exfatprogs, exfat-fuse, xorriso, genisoimage and e2fsprogs.
DEBIAN := ignition runc iptables nftables libseccomp2 iproute2 mount e2fsprogs xfsprogs util-linux systemd dbus procps gcc libc6-dev docker-registry haproxy ostree strace buildah uidmap conmon skopeo pkg-config libseccomp-dev dosfstools mtools exfatprogs exfat-fuse xorriso genisoimage prometheus prometheus-alertmanager mkdocs selinux-utils selinux-policy-default

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build refit, refit-render, refit-controller, refit-agent and refit-lab, static, into bin/
	$(GO) build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)" -o $(BIN)/ ./cmd/...
	@ln -sf refit $(BIN)/kubectl-refit

.PHONY: build-cli
build-cli: ## Build refit and refit-render alone, also for other systems: GOOS=darwin GOARCH=arm64 BIN=bin/mac make build-cli
	$(GO) build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)" -o $(BIN)/ $(CLI)

.PHONY: build-providers
build-providers: ## Build refit-providers, which asks clouds about boot images, into bin/; a module of its own, so that no other program has the clouds' libraries
	$(GO) -C providers build -trimpath -ldflags "-s -w" -o $(abspath $(BIN))/ ./cmd/...

.PHONY: build-failpoint
build-failpoint: ## Build the same with failpoints into bin/failpoint/, for end-to-end tests that kill an agent at a named line; never released
	$(GO) build -trimpath -tags $(TAGS),failpoint -ldflags "$(LDFLAGS)" -o bin/failpoint/ ./cmd/...

.PHONY: image
image: build ## Make refit's own container image as an OCI layout in bin/image
	bin/refit self-image --output bin/image

.PHONY: release-deps
release-deps: ## Install the emulator with which a release starts its arm64 programs
	@if ! command -v qemu-aarch64-static >/dev/null; then \
	  if [ "$$(id -u)" != 0 ]; then echo "missing package: qemu-user-static; as root run: make release-deps"; exit 1; fi; \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends qemu-user-static; fi

.PHONY: release
release: release-deps ## Build and pack a release into dist/: VERSION=1.2.3 KEY=refit.key make release
	rm -rf bin/release
	for arch in amd64 arm64; do GOOS=linux GOARCH=$$arch $(MAKE) build build-providers BIN=bin/release/linux-$$arch || exit 1; done
	for to in darwin-amd64 darwin-arm64 windows-amd64; do GOOS=$${to%-*} GOARCH=$${to#*-} $(MAKE) build-cli BIN=bin/release/$$to || exit 1; done
	REFIT_RELEASE_BINARIES=$(CURDIR)/bin/release $(GO) test -count 1 -run TestArm64Runs ./build/release
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run ./build/release --version $(VERSION) --binaries bin/release --output dist $(if $(KEY),--key $(KEY))

.PHONY: docs
docs: ## Build the documentation as web pages into dist/docs/VERSION, and list the versions in dist/docs; search works from the directory, without a server
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run ./build/release site --version $(VERSION) --output dist/docs/$(VERSION)

.PHONY: release-check
release-check: release ## Build the release again, from a fresh clone with an empty build cache, and compare all bytes; some twenty minutes
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; git clone -q . "$$tmp/refit" && \
	GOCACHE="$$tmp/cache" $(MAKE) -C "$$tmp/refit" release VERSION=$(VERSION) && \
	diff dist/SHA256SUMS "$$tmp/refit/dist/SHA256SUMS" && echo "release-check: both builds are equal"

.PHONY: demo
demo: deps build ## A real cluster moves one minor version from one stick (root; first run builds Kubernetes)
	bin/refit-lab demo --result bin/demo.json

.PHONY: check
check: ## The inner loop: format, vet, and the tests that need neither a lab nor an API server
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not gofmt-ed:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) test -short ./...

.PHONY: test
test: deps build ## Unit, golden, property, API server and lab tests; prints the twenty slowest (root for the lab)
	@$(TOOL) gotestsum --format standard-quiet --jsonfile bin/tests.json --raw-command -- ./test/run.sh; code=$$?; \
	echo "the slowest tests:"; $(TOOL) gotestsum tool slowest --num 20 --threshold 1s --jsonfile bin/tests.json; exit $$code

.PHONY: test-race
test-race: deps ## The tests of the packages in which goroutines run once more, with the race detector; CI does so too
	@$(TOOL) gotestsum --format standard-quiet --jsonfile bin/race-tests.json --raw-command -- ./test/run.sh race; code=$$?; \
	if compgen -G "bin/race.*" >/dev/null; then echo "data races:"; cat bin/race.* | head -300; fi; exit $$code

.PHONY: e2e-deps
e2e-deps: deps ## Install what only the long tests need: Chromium and axe-core, which look at the status page
	@if ! dpkg-query -W -f '$${Status}' chromium 2>/dev/null | grep -q "ok installed"; then apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium; fi
	mkdir -p bin/npm && cp tools/page/package.json tools/page/package-lock.json bin/npm/ && npm ci --prefix bin/npm --ignore-scripts --no-audit --no-fund

.PHONY: e2e
e2e: deps e2e-deps build build-failpoint ## The long tables (kills, faults) on real nodes; results go to test/e2e/results
	REFIT_E2E=1 $(GO) test -timeout 5h -count 1 -v ./test/e2e/...
	REFIT_E2E=1 $(GO) test -count 1 -v -run TestStandbyTakesOver ./internal/controller
	REFIT_E2E=1 $(GO) test -count 1 -v -run TestThousandManagers ./internal/controller/bootimages
	REFIT_E2E=1 $(GO) test -count 1 -v -run TestRealRegistries ./internal/controller/imagetracks

.PHONY: test-capi
test-capi: deps build ## Cluster API's own controllers call refit's extension; the hosts are simulated (root; first run builds Cluster API)
	REFIT_CAPI=1 $(GO) test -timeout 30m -count 1 -v ./test/capi/...

# GRUB's tools, QEMU, and what makes the tree of an OS; GRUB's modules come from a newer Debian, into the cache alone.
BOOT_DEBIAN := qemu-system-x86 qemu-utils seabios mmdebstrap grub-common fdisk

.PHONY: test-boot-deps
test-boot-deps: deps ## Install what only the machines that boot need: QEMU, GRUB's tools, mmdebstrap
	@missing=""; for p in $(BOOT_DEBIAN); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" != 0 ]; then echo "missing packages:$$missing; as root run: make test-boot-deps"; exit 1; fi; \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing; fi

.PHONY: test-boot
test-boot: test-boot-deps ## Real machines boot OS images and come back from bad ones: GRUB, kernel, systemd, libostree in QEMU (root; some twenty minutes, more at the first run)
	REFIT_BOOT=1 CGO_ENABLED=0 $(GO) test -timeout 3h -count 1 -v -ldflags '-s -w' ./test/boot

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (60s); findings are kept in testdata/fuzz
	FUZZTIME=$(or $(FUZZTIME),60s) ./test/fuzz.sh

.PHONY: mutate
mutate: ## What the tests of the pure packages do not notice: every mutant of the safety predicates, then a random sample
	mkdir -p test/mutate/results
	nice $(GO) run ./test/mutate -predicates -result test/mutate/results/predicates.txt
	nice $(GO) run ./test/mutate -sample $(or $(SAMPLE),600) -seed $(or $(SEED),1) -result test/mutate/results/sample.txt

.PHONY: bench
bench: deps build ## Benchmarks against peers and limits; results go to bench/results
	mkdir -p bench/results
	set -o pipefail; $(GO) test -run '^$$' -bench . -benchtime 5x ./bench/... | tee bin/bench.txt
	REFIT_BENCH_RESULTS=$(CURDIR)/bench/results $(GO) test -count 1 -run 'TestSize$$|TestReceipts$$' ./bench
	{ echo "commit $$(git describe --always --abbrev=40 --dirty)"; cat bin/bench.txt; } > bench/results/bench.txt

.PHONY: bench-site
bench-site: deps build ## Eight hosts share a stick, thirty images go into a containerd, an agent idles, a control plane is replaced in both ways; some twenty-five minutes, as root, best alone on the machine
	mkdir -p bench/results
	REFIT_BENCH_RESULTS=$(CURDIR)/bench/results $(GO) test -count 1 -run 'TestSpread|TestLoad|TestCreate|TestMedia|TestIdle|TestDelta$$|TestControlPlane' -v -timeout 60m ./bench
	REFIT_BENCH_RESULTS=$(CURDIR)/bench/results $(GO) test -count 1 -run 'TestSpread|TestLoad|TestCreate|TestDelta$$|TestControlPlane' -v -timeout 60m ./bench
.PHONY: simulate
simulate: build ## Thirty thousand simulated nodes through a real API server, some 30 minutes (root); result in bench/results
	mkdir -p bench/results
	bin/refit-lab simulate --nodes 30000 --budget 1500 --huge-pages --result bench/results/simulate-30000.json

.PHONY: generate
generate: ## Generate deepcopy code and CRDs from api/, access rules from internal/controller, the reference of kinds and commands, the chart from config/
	$(TOOL) controller-gen object paths=./api/...
	$(TOOL) controller-gen crd paths=./api/... output:crd:dir=config/crd
	$(TOOL) controller-gen rbac:roleName=refit-controller paths=./internal/controller output:rbac:dir=config/rbac
	$(GO) test ./config -run TestChart -update
	$(GO) test ./test/docs -run 'Page$$' -update

.PHONY: verify
verify: ## Formatting, vet, builds for other systems, lint, import rules, retired words, stale generated files and docs
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not gofmt-ed:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	for os in windows darwin; do GOOS=$$os $(GO) build -trimpath -tags $(TAGS) $(CLI) || exit 1; done
	$(TOOL) golangci-lint run ./...
	$(GO) mod tidy -diff
	$(GO) -C providers vet ./...
	$(GO) -C providers mod tidy -diff
	$(GO) -C test/distribution mod tidy -diff
	cd providers && $(GO) tool -modfile=../tools/go.mod golangci-lint run ./...
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(TOOL) controller-gen crd paths=./api/... output:crd:dir="$$tmp/crd" && \
	$(TOOL) controller-gen object paths=./api/... output:object:dir="$$tmp/object" && \
	$(TOOL) controller-gen rbac:roleName=refit-controller paths=./internal/controller output:rbac:dir="$$tmp/rbac" && \
	diff config/rbac/role.yaml "$$tmp/rbac/role.yaml" && diff -r config/crd "$$tmp/crd" && diff api/v1alpha1/zz_generated.deepcopy.go "$$tmp/object/zz_generated.deepcopy.go" || \
	{ echo "generated files are stale: run make generate"; exit 1; }
	$(GO) test -run 'TestImports|TestPackageSize|TestNoAliases|TestProse' ./test/structure/...
	$(GO) test ./test/docs
	@echo "verify: ok"

.PHONY: deps
deps: ## Install the Debian packages that the lab and the tests need (only what is missing); no service of theirs runs or is enabled
	@missing=""; for p in $(DEBIAN); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" != 0 ]; then echo "missing packages:$$missing; as root run: make deps"; exit 1; fi; \
	  services=""; for s in docker-registry haproxy prometheus prometheus-alertmanager; do case "$$missing" in *$$s*) services="$$services $$s"; systemctl mask $$s 2>/dev/null || true;; esac; done; \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; code=$$?; \
	  for s in $$services; do systemctl unmask $$s 2>/dev/null; systemctl disable $$s 2>/dev/null || true; done; \
	  exit $$code; fi

.PHONY: clean
clean: ## Remove bin/ (the cache of Kubernetes components stays: refit/lab below the user cache directory)
	rm -rf bin
