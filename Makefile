# rsswarden: `make help` lists the targets.
SHELL       := /bin/bash
PREFIX      ?= /usr/local
DESTDIR     ?=
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Without the tag the cli package links a Markdown parser, 0.4 ms at each start.
GOFLAGS_BUILD = -trimpath -tags urfave_cli_no_docs -ldflags '-s -w -X main.version=$(VERSION)'

.PHONY: help build install plugin release demo test hunt gpu check reference bench endurance fuzz clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

# LMDB's C falls through some cases of its switches: no news to who builds this.
export CGO_CFLAGS := -O2 -g -Wno-implicit-fallthrough

build: ## bin/rsswarden, bin/rsswardend
	@.ci/setup build
	go build $(GOFLAGS_BUILD) -o bin/rsswarden ./cmd/rsswarden
	go build $(GOFLAGS_BUILD) -o bin/rsswardend ./cmd/rsswardend

install: build ## PREFIX=/usr/local: programs, manual pages, completions
	install -D -m 755 bin/rsswarden $(DESTDIR)$(PREFIX)/bin/rsswarden
	install -D -m 755 bin/rsswardend $(DESTDIR)$(PREFIX)/bin/rsswardend
	ln -sf rsswarden $(DESTDIR)$(PREFIX)/bin/rsswarden-task
	@cd $(DESTDIR)$(PREFIX) && mkdir -p share/man/man1 share/man/man8 share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d
	@cd $(DESTDIR)$(PREFIX) && bin/rsswarden man >share/man/man1/rsswarden.1 && bin/rsswardend man >share/man/man8/rsswardend.8
	@cd $(DESTDIR)$(PREFIX) && bin/rsswarden completion bash >share/bash-completion/completions/rsswarden
	@cd $(DESTDIR)$(PREFIX) && bin/rsswarden completion zsh >share/zsh/site-functions/_rsswarden
	@cd $(DESTDIR)$(PREFIX) && bin/rsswarden completion fish >share/fish/vendor_completions.d/rsswarden.fish

# For the Slurm whose headers are in SLURM_INCLUDE; docs/site.md has the rest.
SLURM_INCLUDE ?= /usr/include
PLUGIN        ?= bin/rsswarden_spank.so
plugin: ## bin/rsswarden_spank.so, the SPANK plugin of a site, for the Slurm of this machine
	@mkdir -p $(dir $(PLUGIN))
	$(CC) -shared -fPIC -O2 -Wall -Wextra -Werror -I$(SLURM_INCLUDE) -o $(PLUGIN) slurm/plugin/rsswarden_spank.c

# RELEASE_ARCH=amd64 builds for one alone.
RELEASE_ARCH ?= amd64 arm64
release: ## dist/: static programs for amd64 and arm64 as archive, .deb, .rpm and wheel; source of the plugin; SHA256SUMS
	@.ci/setup release
	@examples/packages/release.sh dist '$(VERSION)' $(RELEASE_ARCH)

demo: ## a job that its limit kills, bare and under rsswarden; no Slurm, no Python
	@.ci/setup build
	@bash examples/demo/demo.sh

test: ## every test, with a real Slurm and a real PyTorch where they can be had
	@.ci/setup test
	@.ci/test

# RSSWARDEN_HUNT_BIN=DIR tries the programs of an older release, for example, RSSWARDEN_PARK=0 the
# holder that is not parked.
hunt: ## as root: bare beside wrapped, system calls that fail, attacks by another user; ten minutes
	@.ci/setup test
	@cd cmd/rsswarden/hunt && RSSWARDEN_HUNT=1 go test -count=1 -timeout 30m

# Elsewhere than here: python3 examples/train/gpu.py --rsswarden FILE, with a static FILE.
gpu: ## on a machine with a GPU and a torch with CUDA: trainings bare beside wrapped, with checksums
	@.ci/setup release
	@examples/packages/release.sh dist '$(VERSION)' amd64 >/dev/null
	@tar -xzf dist/rsswarden-*-linux-amd64.tar.gz -C dist --strip-components=2 --wildcards '*/bin/rsswarden'
	@python3 examples/train/gpu.py --rsswarden dist/rsswarden || [ $$? = 77 ]

check: ## gofmt, vet, staticcheck, import directions, the structure's figures, what twelve runs say
	@.ci/setup build
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	go vet ./...
	go vet -tags endurance ./...
	go run $(STATICCHECK) ./...
	go test -count=1 -run '^Test(Goroutines|Layers|ProgramsStarted|ReadsAreBounded|Recovers|Scenes|Shape)$$' ./supervisor
	! command -v mypy >/dev/null || mypy --cache-dir /dev/null --ignore-missing-imports supervisor/loader/hook/_rsswarden

reference: ## docs/reference and examples/rsswarden.toml, from the code; a test fails where they are not
	@.ci/setup build
	go test -count=1 -run '^TestReference$$' ./cmd/rsswarden ./cmd/rsswardend ./supervisor/event ./supervisor/metrics -update

# BENCH='Trees|Start' measures less; what there is stands in bench/bench_test.go.
bench: ## ours beside the peers', in one run, with the ratios; all runs in bench.txt
	@.ci/setup test
	@.ci/setup bench
	set -o pipefail; go test -run '^$$' -bench '$(or $(BENCH),.)' -benchtime 1x -timeout 0 ./bench | tee bench.txt
	go tool benchstat -col /who bench.txt

# The counts take more than three hours and a half on two cores, of which one is an hour of
# jobs that must raise no alert. The loader's tests and those in guests are those of `make
# test`, every case on every torch and kernel, with greater counts. They run on what Debian sid has today, in a
# root of its own: TestReleases fails where that torch is not known yet, TestTrial says
# whether it may be recycled, TestMatrix what comes of it.
endurance: ## the long counts: 20 of 20, 500 recycles, 50 kills of the watcher, an hour without an alert, forecasts of 44 runs
	@.ci/setup test
	@.ci/setup release
	@set -o pipefail; today=$$(mktemp -d /var/tmp/rsswarden-sid.XXXXXX); trap 'rm -rf "$$today"' EXIT; { \
	if [ -z "$$RSSWARDEN_SID" ] && RSSWARDEN_SID=$$today/root .ci/root sid; then export RSSWARDEN_SID=$$today/root; fi; \
	RSSWARDEN_ENDURANCE=1 go test -tags endurance -count=1 -p 1 -timeout 240m -v \
		-run 'Endurance|SharesItsPages|JobSurvivesItsWatcher|2411|SlurmSid|Ranks|Fingerprint|^TestPools|ManyTasks|PluginSid|Checkpoint|MemAdvice|DoctorSlurm|Ptrace|SmallTensors|NextRung|DoctorTries|OneStory' ./cmd/rsswarden/e2e/run ./cmd/rsswarden/e2e/torch ./cmd/rsswarden/e2e/slurm ./cmd/rsswarden/e2e/site && \
	go test -tags endurance -count=1 -p 1 -timeout 30m -v -run Endurance ./examples ./examples/packages ./supervisor && \
	go test -tags endurance -count=1 -timeout 150m -v -run Endurance ./rss/rsstest && \
	RSSWARDEN_ENDURANCE=1 go test -count=1 -timeout 240m -v \
		./supervisor/loader ./cmd/rsswarden/e2e/cgroup2 ./examples/train ./examples/integrations && \
	RSSWARDEN_ENDURANCE=1 go test -count=1 -timeout 30m -v -run SaveRate ./supervisor && \
	RSSWARDEN_ENDURANCE=1 go test -count=1 -timeout 30m -v -run KilledAtAnyMoment ./supervisor/record/store && \
	RSSWARDEN_ENDURANCE=1 go test -count=1 -timeout 30m -v -run Churn ./cmd/rsswardend && \
	RSSWARDEN_PARK=0 RSSWARDEN_HUNT=1 go test -count=1 -timeout 30m -run 'Twin|Inject' ./cmd/rsswarden/hunt && \
	RSSWARDEN_ENDURANCE=1 go test -count=1 -timeout 30m -run CommandInC ./cmd/rsswarden && \
	go test -asan -count=1 -timeout 30m -skip 'NoRoom|Twin|NoAllocation' ./supervisor/hold && \
	FUZZTIME=$${FUZZTIME:-30m} .ci/fuzz; \
	} 2>&1 | tee endurance.log

# One after the other, on FUZZPARALLEL processors, all where none is said. What breaks
# one is left beside its test, in testdata/fuzz, and is run by `make test` from then on.
fuzz: ## every fuzz test of the module, FUZZTIME=1m each; FUZZ='Journal|Frames' chooses
	@.ci/setup test
	@FUZZ='$(FUZZ)' FUZZTIME='$(FUZZTIME)' FUZZPARALLEL='$(FUZZPARALLEL)' .ci/fuzz

clean: ## remove what build made
	rm -rf bin dist
