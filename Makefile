# Targets for building and running nemesh; `make help` lists them. They need Go, and no root.

GO  ?= go
BIN := bin
FOCUS ?=
AGENT ?=
LINT := $(GO) tool -modfile=.ci/tools/golangci-lint/go.mod golangci-lint
ACTIONLINT := $(GO) tool -modfile=.ci/tools/actionlint/go.mod actionlint

PLUGINS := github.com/containernetworking/plugins/plugins

.PHONY: chaos detect test lint build docs fuzz bench kill9 soak help clean

chaos: build ## run every scenario; FOCUS=flannel-636 runs those that match, AGENT=… tests another agent
	@$(BIN)/nemesh run $(if $(AGENT),--agent '$(AGENT)') $(if $(FOCUS),'$(FOCUS)')

detect: build ## check that each historic defect makes its scenarios fail
	@$(BIN)/nemesh detect

test: ## run unit and sandbox tests and the two first scenarios, with the race detector
	$(GO) test -race $$($(GO) list ./... | grep -v /scenarios$$)
	$(GO) test -race -tags defects ./overlay/...
	$(GO) test -race ./scenarios -ginkgo.focus='flannel-636|terraform-kubernetes-installer-5'

# Each binary is built under another name and then renamed, so that two builds at once do not mix and a running binary
# is not touched. All are static: they start faster, and run in any image. grpcnotrace leaves out gRPC's tracing pages.
# Their templates would keep the linker from dropping unused code, which costs 4 MB of memory.
comma := ,
define built
	@CGO_ENABLED=0 $(GO) $(2) -o $(BIN)/.$(1).$$$$ $(3) && mv -f $(BIN)/.$(1).$$$$ $(BIN)/$(1)
endef

build: ## build everything into bin/
	@mkdir -p $(BIN)
	@test -x $(BIN)/nemesh || echo "building nemesh, the overlay, the CNI plugins and the scenarios into $(BIN)/; the first time takes minutes"
	$(call built,nemesh,build,./harness/cmd/nemesh)
	$(call built,overlayd,build -tags grpcnotrace,./overlay/cmd/overlayd)
	$(call built,overlay-cni,build,./overlay/cmd/overlay-cni)
	$(call built,overlayd-defects,build -tags grpcnotrace$(comma)defects,./overlay/cmd/overlayd)
	$(call built,overlay-cni-defects,build -tags defects,./overlay/cmd/overlay-cni)
	$(call built,bridge,build,$(PLUGINS)/main/bridge)
	$(call built,host-local,build,$(PLUGINS)/ipam/host-local)
	$(call built,ginkgo,build,github.com/onsi/ginkgo/v2/ginkgo)
	$(call built,scenarios.test,test -c,./scenarios)

lint: ## run golangci-lint with every build tag, and actionlint
	$(LINT) run ./...
	$(LINT) run --build-tags defects ./...
	$(ACTIONLINT)

docs: ## draw docs/architecture.md and depguard's rules from the imports and floors
	$(GO) test ./docs -update

fuzz: ## run each fuzz target for FUZZTIME (default 10s)
	$(GO) test ./overlay/netconf -fuzz FuzzParse -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./overlay/lease -fuzz FuzzParseKey -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./overlay/lease -fuzz FuzzAttrs -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./overlay/cni -fuzz FuzzParseEnv -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzTrace -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzNft -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzDump -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzListing -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzRead -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./harness/flannelkeys -fuzz FuzzParse -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./harness/follow -run XXX -fuzz FuzzDecode -fuzztime $(or $(FUZZTIME),10s)

bench: ## measure: a cluster from nothing, etcd, the probe, the reconciler, a million trace lines
	$(GO) test ./harness/... ./overlay/... ./reports/... -run XXX -bench . -benchtime 5x

soak: build ## run everything N times (default 30) with one processor busy; stop at the first failure
	@while :; do :; done & busy=$$!; trap 'kill $$busy' EXIT INT TERM; \
	for i in $$(seq $(or $(N),30)); do \
		echo "run $$i of $(or $(N),30)"; $(BIN)/nemesh run --reports $(BIN)/soak || exit; \
	done

kill9: build ## kill -9 the runner at N random moments (default 100) and check that nothing is left
	NEMESH_KILL9=$(or $(N),100) NEMESH_KILL9_COMMAND="$(BIN)/nemesh run --reports $(BIN)/kill9" $(GO) test ./harness/sandbox -run TestKill9LeavesNothing -v -count 1 -timeout 30m

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

clean: ## delete what was built and all reports
	rm -rf $(BIN) reports/runs reports/latest reports/bisect reports/detect reports/matrix
