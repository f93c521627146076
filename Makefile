# The door to nemesh. `make help` lists the targets. Nothing needs root, and nothing but Go is needed.

GO  ?= go
BIN := bin
FOCUS ?=
AGENT ?=
LINT := $(GO) tool -modfile=.ci/tools/golangci-lint/go.mod golangci-lint
ACTIONLINT := $(GO) tool -modfile=.ci/tools/actionlint/go.mod actionlint

PLUGINS := github.com/containernetworking/plugins/plugins

.PHONY: chaos detect test lint build docs fuzz bench kill9 soak help clean

chaos: build ## break the overlay as the reports did; FOCUS=flannel-636 runs some, AGENT=… another agent
	@$(BIN)/nemesh run $(if $(AGENT),--agent '$(AGENT)') $(if $(FOCUS),'$(FOCUS)')

detect: build ## see that each historic defect turns the scenarios made for it red
	@$(BIN)/nemesh detect

test: ## unit and sandbox tests and the two first scenarios, with the race detector
	$(GO) test -race $$($(GO) list ./... | grep -v /scenarios$$)
	$(GO) test -race -tags defects ./overlay/...
	$(GO) test -race ./scenarios -ginkgo.focus='flannel-636|terraform-kubernetes-installer-5'

# Each binary is built beside its place and moved there, so that two builds at once do not mix and one that is
# running is not touched. All are static: they start faster, and run in any image. grpcnotrace leaves out the
# tracing pages of gRPC, whose templates keep the linker from dropping what nobody calls: 4 MB of memory.
comma := ,
define built
	@CGO_ENABLED=0 $(GO) $(2) -o $(BIN)/.$(1).$$$$ $(3) && mv -f $(BIN)/.$(1).$$$$ $(BIN)/$(1)
endef

build: ## everything into bin/
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

lint: ## golangci-lint with every build tag, and actionlint
	$(LINT) run ./...
	$(LINT) run --build-tags defects ./...
	$(ACTIONLINT)

docs: ## draw docs/architecture.md and write depguard's rules again
	$(GO) test ./docs -update

fuzz: ## each fuzz target for FUZZTIME (default 10s)
	$(GO) test ./overlay/netconf -fuzz FuzzParse -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./overlay/lease -fuzz FuzzParseKey -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./overlay/lease -fuzz FuzzAttrs -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./overlay/cni -fuzz FuzzParseEnv -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzTrace -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzNft -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzDump -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzListing -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./reports/explain -fuzz FuzzRead -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./harness/follow -run XXX -fuzz FuzzDecode -fuzztime $(or $(FUZZTIME),10s)

bench: ## the figures: a cluster from nothing, etcd, the probe, the reconciler, a million trace lines
	$(GO) test ./harness/... ./overlay/... ./reports/... -run XXX -bench . -benchtime 5x

soak: build ## N full runs in a row (default 30) while a busy loop loads one processor; ends at the first red one
	@while :; do :; done & busy=$$!; trap 'kill $$busy' EXIT INT TERM; \
	for i in $$(seq $(or $(N),30)); do \
		echo "run $$i of $(or $(N),30)"; $(BIN)/nemesh run --reports $(BIN)/soak || exit; \
	done

kill9: build ## kill -9 the runner at N random moments (default 100) and look for what is left
	NEMESH_KILL9=$(or $(N),100) NEMESH_KILL9_COMMAND="$(BIN)/nemesh run --reports $(BIN)/kill9" $(GO) test ./harness/sandbox -run TestKill9LeavesNothing -v -count 1 -timeout 30m

help: ## this list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

clean: ## delete what was built and all reports
	rm -rf $(BIN) reports/runs reports/latest reports/bisect reports/detect reports/matrix
