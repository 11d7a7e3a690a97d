# Everything one does with this project. `make` alone prints this list.

PREFIX  ?= $(HOME)/.local
DESTDIR ?=
MOUNT   ?=
CMD     ?=
BUBBLEWRAP ?=
SECONDS ?= 60

# A shell that does not expand ~ after the = sign leaves it to us.
prefix = $(patsubst ~/%,$(HOME)/%,$(PREFIX))
mount = $(patsubst ~/%,$(HOME)/%,$(MOUNT))
bubblewrap = $(patsubst ~/%,$(HOME)/%,$(BUBBLEWRAP))
scripts = .ci/run $(wildcard packaging/*.sh packaging/*/*.sh)

.DEFAULT_GOAL := help
.PHONY: help build run test release-test vm-test lint bench sessions-test interrupted-test egress-test desktop-test fuzz bubblewrap-suite install clean

help: ## this list
	@echo 'cowork-linux: puts an AI coding agent in a box on Linux'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		awk -F'|' '{ printf "%-24s %s\n", $$1, $$2 }'
	@echo
	@echo '  make run CMD="claude" MOUNT=~/project    your agent, in a box, over your folder'
	@echo '  make install PREFIX=~/.local             where the binary goes: PREFIX/bin'

build: ## build .build/cowork-linux (static where possible)
	@packaging/static/build.sh

run: build ## a ten-line tour of a box; or CMD="..." [MOUNT=dir]
	@packaging/run.sh "$(mount)" $(CMD)

test: lint ## everything: lint, then the tests as an ordinary user and as root
	@packaging/test-setup.sh
	@packaging/test-as-user.sh

release-test: build ## the same tests with the binary as it is released: static, optimised
	@packaging/test-setup.sh
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' packaging/test-as-user.sh

vm-test: build ## the limits that the kernel holds, in a virtual machine with systemd and cgroup v2; the first time as root
	@packaging/vm-test.sh

lint: ## cargo fmt and clippy, shellcheck where it is installed
	@cargo fmt --check
	@packaging/need.sh libseccomp-dev pkg-config
	@cargo clippy --locked --all-targets -- -D warnings
	@if command -v shellcheck >/dev/null; then shellcheck $(scripts); \
		else echo 'shellcheck is not installed: scripts not checked'; fi

bench: build ## launch time, memory and growth beside bwrap, then called as bwrap, then exec, the network, Claude Desktop's commands; best as an ordinary user
	@packaging/need.sh bwrap=bubblewrap busybox=busybox-static strace=strace
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' cargo bench --locked --profile dev --bench launch
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' cargo bench --locked --profile dev --bench bwrap
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' cargo bench --locked --profile dev --bench exec
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' cargo bench --locked --profile dev --bench egress
	@packaging/need.sh node=nodejs
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' cargo bench --locked --profile dev --bench desktop

sessions-test: build ## 500 sessions beside each other: started, listed, entered, ended, and what they weigh
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' COWORK_TEST_SESSIONS=500 \
		timeout -k 10 10m cargo test --locked --test sessions many_sessions -- --nocapture

fuzz: ## the readers of hostile bytes, SECONDS=60 each; wants cargo-fuzz
	@packaging/fuzz.sh $(SECONDS)

egress-test: build ## 10 000 connections and 100 000 questions through a box's gateway: it must not grow
	@packaging/test-setup.sh
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' COWORK_TEST_CONNECTIONS=10000 COWORK_TEST_QUESTIONS=100000 \
		timeout -k 10 10m cargo test --locked --test egress load:: -- --nocapture

desktop-test: build ## a day of Claude Desktop: 50 sessions, 2 000 commands, crashes of either side; some minutes
	@packaging/test-setup.sh
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' COWORK_TEST_DESKTOP_SESSIONS=50 COWORK_TEST_DESKTOP_COMMANDS=2000 \
		COWORK_TEST_RACES=1000 timeout -k 10 20m cargo test --locked --test desktop -- --nocapture
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' timeout -k 10 5m cargo test --locked --test desktop alone_for -- --ignored

interrupted-test: build ## kill -9 at every system call of every change of a session; some minutes
	@COWORK_BIN='$(CURDIR)/.build/cowork-linux' COWORK_TEST_MOMENTS=all \
		timeout -k 10 20m cargo test --locked --test interrupted

bubblewrap-suite: build ## bubblewrap's own tests against our bwrap: BUBBLEWRAP=dir of its source; as root
	@packaging/bubblewrap-suite.sh '$(bubblewrap)' .build/cowork-linux

install: build ## copy the binary to PREFIX/bin (~/.local)
	@install -Dm755 .build/cowork-linux '$(DESTDIR)$(prefix)/bin/cowork-linux'
	@install -Dm644 -t '$(DESTDIR)$(prefix)/share/doc/cowork-linux' LICENSE LICENSE-MIT LICENSE-APACHE
	@install -Dm755 -t '$(DESTDIR)$(prefix)/share/cowork-linux/claude-desktop' packaging/claude-desktop/*install.sh
	@install -Dm644 -t '$(DESTDIR)$(prefix)/share/cowork-linux/claude-desktop' packaging/claude-desktop/steps.sh \
		packaging/claude-desktop/README.md packaging/claude-desktop/systemd/*
	@echo 'installed: $(DESTDIR)$(prefix)/bin/cowork-linux'

clean: ## remove what was built, and the caches
	@cargo clean
	@rm -rf --one-file-system .build
