# mkp2pimg: every target works from a fresh clone with Go, git and a Debian mirror.
OUT     ?= out
MACHINE ?= all
GO      ?= go
FLAGS   ?=
space   := $(subst ,, )

GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK   := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: image
image: bin/mkp2pimg ## build the image with the defaults into $(OUT)
	bin/mkp2pimg build --out $(OUT) $(FLAGS)

.PHONY: test
test: ## run every test that needs no GPU, no network and no image
	$(GO) vet ./...
	$(GO) test ./...

.PHONY: smoke
smoke: bin/mkp2pimg ## boot the image in $(OUT) under QEMU on every described machine
	bin/mkp2pimg smoke $(OUT) --machine $(MACHINE) $(FLAGS)

GPU_MACHINES := driver-2x4090,epyc-4x4090,switched-8x3090,desktop-2x5090,sockets-2x4090,guest-2x4090

.PHONY: machines-test
machines-test: bin/mkp2pimg ## boot the image in $(OUT) on every machine with emulated GPUs, once for each value of each knob
	bin/mkp2pimg smoke $(OUT) --machine $(GPU_MACHINES) --knobs --jobs 0 --deadline 20m --times $(FLAGS)

.PHONY: media-test
media-test: ## boot each medium in $(OUT) under QEMU; CERT is the certificate that the UKI was signed for
	MKP2PIMG_IMAGE=$(abspath $(OUT)) MKP2PIMG_CERT=$(abspath $(CERT)) $(GO) test -timeout 60m -count 1 -v -p 1 \
		-run '^(TestBoot|TestPowerCut|TestMedia.*)$$' ./images/disk ./images/mediatest

.PHONY: farm-test
farm-test: bin/mkp2pimg ## a lab in a network namespace: nodes under QEMU boot OUT, which was built with --format pxe
	MKP2PIMG_IMAGE=$(abspath $(OUT)) MKP2PIMG_PROGRAM=$(abspath bin/mkp2pimg) $(GO) test -timeout 40m -count 1 -v ./internal/farm/farmtest

.PHONY: farm-load
farm-load: ## kill the farm's server under the load of 1,000 nodes: what it acknowledged must be there; requests/s, latency, memory
	MKP2PIMG_LOAD=1 $(GO) test -timeout 60m -count 1 -run TestKill9 -v ./internal/farm/intake

.PHONY: browser-test
browser-test: ## the farm's pages in Chromium; pictures of them into the folder SCREENSHOTS, if given
	MKP2PIMG_SCREENSHOTS=$(abspath $(SCREENSHOTS)) $(GO) test -timeout 20m -count 1 -v -run Browser ./internal/farm/page

.PHONY: redfish-test
redfish-test: ## start a machine through the Redfish emulator at URL (sushy-tools, Redfish-Mockup-Server)
	MKP2PIMG_REDFISH=$(URL) $(GO) test -count 1 -v -run Emulator ./internal/farm/power

.PHONY: tinkerbell-test
tinkerbell-test: ## hold the examples for Tinkerbell to its resource definitions in the folder CRDS
	MKP2PIMG_TINKERBELL_CRDS=$(abspath $(CRDS)) $(GO) test -count 1 -v -run Schemas ./examples

.PHONY: gpu-test
gpu-test: ## run libcuda and the kernels on the GPUs of this machine; skipped, with the reason, where there are none
	$(GO) test ./internal/cuda/libcuda -run GPU -v -count 1

FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## run each fuzz target in turn, FUZZTIME each
	@set -e; for at in $$(grep -rEo '^func Fuzz[A-Za-z0-9]+' --include='*_test.go' . | sed 's|/[^/]*:func |:|' | sort); do \
		echo "== $$at"; \
		$(GO) test "$${at%:*}" -run '^$$' -fuzz "^$${at#*:}$$" -fuzztime $(FUZZTIME); \
	done

.PHONY: reproduce
reproduce: ## build once more, cold, in another directory and as another user; compare with $(OUT)
	hack/reproduce $(OUT) $(FLAGS)

.PHONY: bench
bench: image ## measure the sizes and boot times of README's table
	bin/mkp2pimg smoke $(OUT) --machine pair --repeat 5 --times

.PHONY: test-network
test-network: ## tests that ask the real Debian mirror
	MKP2PIMG_NETWORK=1 $(GO) test -run 'Network' ./internal/...

.PHONY: patch-matrix
patch-matrix: ## release by edit over TREES: folders of source trees, or bare git clones with tags; several with colons
	MKP2PIMG_TREES=$(subst $(space),:,$(abspath $(subst :,$(space),$(TREES)))) $(GO) test -timeout 60m -count 1 -run TestMatrix -v ./kmod/patch

.PHONY: catalog-matrix
catalog-matrix: ## load options and GPU names of the catalog against the source trees in TREES
	MKP2PIMG_TREES=$(abspath $(TREES)) $(GO) test -timeout 60m -count 1 \
		-run 'OffersAreThoseOfTheSource|GPUsAreThoseOfTheDriver' -v ./kmod/catalog

# What the targets below compile with: the toolchain that a build left in the
# cache, and the headers in it.
TOOLCHAIN ?= $(patsubst %/,%,$(lastword $(wildcard $(HOME)/.cache/mkp2pimg/unpacked/toolchain-*/)))
KERNELS   ?= 6.12 6.1
KERNEL    ?= $(notdir $(lastword $(wildcard $(TOOLCHAIN)/lib/modules/*)))

.PHONY: compile-matrix
compile-matrix: ## compile what the edits touch in each source tree of the folder TREES, as it is and edited
	MKP2PIMG_TREES=$(abspath $(TREES)) MKP2PIMG_TOOLCHAIN=$(TOOLCHAIN) \
		$(GO) test -timeout 60m -count 1 -run TestCompileMatrix -v ./kmod/build

.PHONY: objects
objects: ## nv-kernel.o of each source tree in TREES, as it is and edited, into the folder OBJECTS
	MKP2PIMG_TREES=$(abspath $(TREES)) MKP2PIMG_TOOLCHAIN=$(TOOLCHAIN) MKP2PIMG_OBJECTS=$(abspath $(OBJECTS)) \
		$(GO) test -timeout 180m -count 1 -run TestObjects -v ./kmod/build

.PHONY: compare-objects
compare-objects: ## what differs, function by function, in the pairs that "make objects" left in the folder OBJECTS
	MKP2PIMG_TREES=$(abspath $(TREES)) MKP2PIMG_OBJECTS=$(abspath $(OBJECTS)) \
		$(GO) test -timeout 30m -count 1 -run TestObjects -v ./kmod/objdiff

.PHONY: bench-build
bench-build: ## build time of the needed modules against the own "make modules" of the source tree TREE
	MKP2PIMG_BENCH=1 MKP2PIMG_SOURCE=$(abspath $(TREE)) MKP2PIMG_TOOLCHAIN=$(TOOLCHAIN) MKP2PIMG_KERNEL=$(KERNEL) \
		$(GO) test -timeout 120m -count 1 -run TestBuildRatio -v ./kmod/build

.PHONY: driver-matrix
driver-matrix: bin/mkp2pimg ## image and boots of each source tree in TREES for each of KERNELS, into $(OUT)
	MKP2PIMG_PROGRAM=$(abspath bin/mkp2pimg) MKP2PIMG_TREES=$(abspath $(TREES)) MKP2PIMG_OUT=$(abspath $(OUT)) \
		MKP2PIMG_KERNELS="$(KERNELS)" $(GO) test -timeout 600m -count 1 -run TestDriverMatrix -v ./cmd/mkp2pimg

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, golangci-lint
	test -z "$$(gofmt -l .)"
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(GOLANGCI_LINT) run ./...

.PHONY: bin/mkp2pimg
bin/mkp2pimg: ## the program, with the measuring program that "mkp2pimg bench" runs inside
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags='-s -w' -o cmd/mkp2pimg/payload/p2pbw ./initramfs/p2pbw
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -o $@ ./cmd/mkp2pimg

.PHONY: clean
clean: ## remove bin and out
	rm -rf bin out

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9\/-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
