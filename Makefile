# The verbs of the project; CI calls the same ones. `make` builds.
#
# Everything that Debian 12 lacks is named in ci/packages; `make demo`, `make test` and .ci/run
# install it, the other verbs expect it.

CARGO  ?= cargo
PREFIX ?= /usr/local
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Tools that are built once and kept beside the build.
TOOLS  := $(abspath $(TARGET))/tools
DENY   := $(TOOLS)/bin/cargo-deny
DENY_VERSION := 0.20.2
DEB    := $(TOOLS)/bin/cargo-deb
DEB_VERSION := 3.8.0
# Links for an old glibc: zig has the start files of each, which the command needs.
ZIG    := $(TOOLS)/zig
ZIG_VERSION := 0.17.0
ZIGBUILD_VERSION := 0.24.0
GNU    := x86_64-unknown-linux-gnu
PORTABLE := $(abspath $(TARGET))/portable
# The library defines libc's symbols and needs panic = "abort", which test programs cannot have: it
# is built alone, and the rest of a debug build does without.
LIBRARY := --locked -p tidelock-preload
ABORTS  := CARGO_PROFILE_DEV_PANIC=abort
# Test programs run under ci/guard, which ends those that hang and what they leave.
GUARDED := $(CARGO) --config "target.'cfg(unix)'.runner='$(CURDIR)/ci/guard'"
CRATES  := --locked --workspace --exclude tidelock-preload
# Then says which tests could not run here.
SKIPPED := $(abspath $(TARGET))/skipped
tests = @rm -f $(SKIPPED); ended=0; \
    TIDELOCK_SKIPPED=$(SKIPPED) TIDELOCK_TEST_LIMIT=$(or $(2),$(TIDELOCK_TEST_LIMIT),900) \
    $(GUARDED) test $(CRATES) --no-fail-fast $(1) || ended=$$?; \
    if [ -e $(SKIPPED) ]; then sort -u $(SKIPPED); fi; exit $$ended

.PHONY: build debug library portable deb deb-check boot-check container-check packages
.PHONY: reachable sqlite-packages test-packages demo demo-sqlite fetch test test-full check fmt
.PHONY: bench bench-calls bench-scale bench-latency bench-files bench-parts \
    bench-conversion bench-sqlcipher
.PHONY: lab install fips
build:
	$(CARGO) build --release --locked -p tidelock -p tidelock-lab
	$(CARGO) build --release $(LIBRARY)

# For glibc 2.28 and later. zig refuses `-z initfirst`, which the library needs.
portable: $(ZIG)/bin/cargo-zigbuild
	CARGO_TARGET_DIR=$(PORTABLE) \
	    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=$(CURDIR)/ci/old-glibc-linker \
	    $(CARGO) build --release --target $(GNU) $(LIBRARY)
	CARGO_TARGET_DIR=$(PORTABLE)/command PATH=$(ZIG)/bin:$$PATH \
	    $(CARGO) zigbuild --release --locked --target $(GNU).2.28 -p tidelock
	cp $(PORTABLE)/command/$(GNU)/release/tidelock \
	    $(PORTABLE)/$(GNU)/release/libtidelock_preload.so $(PORTABLE)
	ci/portable $(PORTABLE)/tidelock $(PORTABLE)/libtidelock_preload.so

$(ZIG)/bin/cargo-zigbuild:
	python3 -m venv $(ZIG)
	$(ZIG)/bin/pip install --quiet cargo-zigbuild==$(ZIGBUILD_VERSION) ziglang==$(ZIG_VERSION)

# Debian packages of the command with the library, and of the lab, in target/debian.
deb: build $(DEB)
	ci/deb-files $(TARGET)/release target/deb
	for package in tidelock tidelock-lab; do \
	    $(DEB) deb --no-build --locked -p $$package -o $(TARGET)/debian/$$package.deb || exit 1; \
	    dpkg-deb -f $(TARGET)/debian/$$package.deb Depends | grep libc6 || exit 1; \
	done

# The package in an empty root, as a new user would try it. Needs root.
deb-check: deb
	ci/packages full
	ci/deb-check $(TARGET)/debian/tidelock.deb

# The package where systemd is process 1: units, credentials, the journal, restarts of the machine.
# BOOT=mysql tries the MySQL of Debian's unstable suite; BOOT=machine has qemu emulate a machine
# with Debian's kernel, for more than an hour. Needs root.
boot-check: deb
	ci/packages full
	ci/boot-check $(TARGET)/debian/tidelock.deb $(BOOT)

# The recipe for containers, without a registry. Needs root.
container-check: deb
	ci/packages full
	ci/container-check $(TARGET)/debian/tidelock.deb

$(DEB):
	$(CARGO) install cargo-deb --debug --locked --version $(DEB_VERSION) --root $(TOOLS)

packages:
	ci/packages demo

sqlite-packages:
	ci/packages sqlite

test-packages:
	ci/packages test

# About five minutes after the build, as root or not.
demo: packages build
	$(CARGO) build --release --locked -p tidelock-testkit --bin demo
	$(TARGET)/release/demo $(DEMO)

# Ten seconds after the build: no server, one command in front.
demo-sqlite: sqlite-packages build
	ci/demo-sqlite $(TARGET)/release

# What the tests need beside packages: the suites of PostgreSQL, from Debian's source package,
# servers of its oldest and newest major, and doubles of key services.
fetch: test-packages
	ci/pg-source
	ci/pg-majors test
	ci/python-env

# What a single test program needs: `cargo test -p tidelock-testkit --test NAME`.
debug: library
	$(CARGO) build --locked -p tidelock

library:
	$(ABORTS) $(CARGO) build $(LIBRARY)

# Every quick test. The command is built with them: alone, it would be built twice. CI may skip only
# what ci/may-skip lists.
test: reachable fetch library
	$(call tests)
	@if [ -n "$$CI" ] && [ -e $(SKIPPED) ]; then ci/skipped $(SKIPPED); fi

reachable:
	ci/reachable

# The long ones too: whole regression suites, power cuts, torture. Fails if one was skipped that
# ci/may-skip, of the long ones ci/may-skip-long, does not list; they need root. What the oldest and
# newest servers lack is not judged.
test-full: test build
	@if [ -e $(SKIPPED) ]; then ci/skipped $(SKIPPED); fi
	ci/packages full
	ci/pg-majors full
	ci/pg-build
	ci/vault
	ci/mysql
	ci/extensions
	ci/sqlite-testfixture
	ci/redis-tests
	ci/leveldb-tests
	ci/python-env engines
	$(call tests,-- --ignored,7200)
	@if [ -e $(SKIPPED) ]; then ci/skipped --long $(SKIPPED); fi
	@for bin in $(MAJORS); do \
	    settings=$$($$bin/postgres --describe-config) || exit 1; \
	    case $$settings in *io_method*) methods='worker sync' ;; *) methods=default ;; esac; \
	    moves=; \
	    if [ -x $$bin/pg_basebackup ]; then \
	        moves='--test postgres_protect --test postgres_migrate'; \
	    fi; \
	    for method in $$methods; do \
	        echo "the life of $$bin, io_method: $$method"; \
	        TIDELOCK_PG_BINDIR=$(CURDIR)/$$bin TIDELOCK_PG_IO_METHOD=$$method \
	            $(GUARDED) test $(CRATES) --test postgres_life $$moves -- --include-ignored \
	            || exit 1; \
	    done; \
	done

# Ready binaries of the oldest majors; of 17 and 18 all tools are built. For the shell: they come
# while make runs.
MAJORS := build/postgresql/1[346].*/bin build/postgresql-built/1[78]/bin

# All experiments in the size that fits two cores, in an hour and a quarter, and their report. Root
# can also limit memory, CPU and I/O; LAB="--out DIR" and others of `tidelock-lab run`.
lab: build
	ci/packages lab
	$(TARGET)/release/tidelock-lab run $(EXPERIMENTS) $(LAB)

EXPERIMENTS := crypto cpu-paths shared-buffers rds-encryption wal-stress aurora-mysqlslap \
    provisioned-iops cybertec-matrix

check: $(DENY)
	$(CARGO) fmt --all --check
	ci/long-lines
	ci/broken-links
	$(CARGO) clippy $(CRATES) --all-targets -- -D warnings
	$(ABORTS) $(CARGO) clippy $(LIBRARY) -- -D warnings
	$(CARGO) check --locked -p tidelock --no-default-features
	$(CARGO) fetch --locked --quiet
	$(DENY) --offline --locked check bans licenses sources
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(CRATES) --no-deps --quiet

$(DENY):
	$(CARGO) install cargo-deny --debug --locked --version $(DENY_VERSION) --root $(TOOLS)

fmt:
	$(CARGO) fmt --all

# Instructions of the library for each call of the fast path, the same on every machine; then the
# lab's experiment for before and after a change: sealed against plain, interleaved, half an hour.
# BENCH="--out before", BENCH="--blocks 4" and others of `tidelock-lab run`.
bench: packages build
	TIDELOCK_BUILT=$(abspath $(TARGET))/release \
	    $(CARGO) test $(CRATES) --test instructions --test cipher_code -- --nocapture \
	    --include-ignored
	$(TARGET)/release/tidelock-lab run regression shared-buffers --only shared_buffers=8MB $(BENCH)

# Library and command on AWS-LC's FIPS 140-3 module (the feature `fips`), with the vectors of the
# cipher, in a directory of their own; needs Go. Nine minutes on two processors.
fips: packages
	@command -v go >/dev/null || { echo 'error: make fips needs Go' >&2; exit 3; }
	$(ABORTS) $(CARGO) build $(LIBRARY) --features fips --target-dir $(TARGET)/fips
	$(CARGO) build --locked -p tidelock --features fips --target-dir $(TARGET)/fips
	$(CARGO) test --locked -p tidelock-ffi --features fips --test xts_vectors \
	    --target-dir $(TARGET)/fips

# Single calls, sealed and plain in turns, beside the cipher alone: two minutes on a quiet machine.
# BENCH="--starts 3" and others.
bench-calls: build
	$(CARGO) bench --locked -p tidelock-testkit --bench calls -- $(BENCH)

# Whether calls cost the same in large files, with many processes, threads or files; 3 GB below
# TMPDIR. BENCH="--only files" and others.
bench-scale: build
	$(CARGO) bench --locked -p tidelock-testkit --bench scale -- $(BENCH)

# Where a transaction's latency comes from: CPU, queues, waits; half an hour on a quiet machine, as
# another user than root. BENCH="--loads tpcb_warm --shares 0.4", BENCH="--rounds 0 --calls".
bench-latency: build
	python3 crates/testkit/benches/latency.py $(BENCH)

# Thousands of small tables, a start after a kill, and pg_basebackup: ten minutes on a quiet
# machine, as another user than root. BENCH="--parts backup" and others.
bench-files: build
	python3 crates/testkit/benches/files.py $(BENCH)

# A plain and a sealed server's CPU time by part: cipher, library, kernel, server. Ten minutes on a
# quiet machine, as another user than root, with perf. BENCH="--loads scan --shared-buffers 1MB".
bench-parts: build
	python3 crates/testkit/benches/parts.py $(BENCH)

# Conversion beside cp: 100,000 files of 8 KiB, then 16 of 64 MiB.
bench-conversion: build
	python3 crates/testkit/benches/conversion.py --unsynced $(BENCH)
	python3 crates/testkit/benches/conversion.py --unsynced --files 16 --size 67108864 $(BENCH)

# SQLite's speedtest1, sealed and by SQLCipher, each beside its own engine. BENCH="--journal wal".
bench-sqlcipher: build
	ci/packages full
	ci/sqlite-speedtest
	python3 crates/testkit/benches/sqlcipher.py $(BENCH)

# What `make` built; root needs no Rust for it.
install:
	@for file in libtidelock_preload.so:lib/tidelock tidelock:bin tidelock-lab:bin; do \
	    place="$(DESTDIR)$(PREFIX)/$${file#*:}/$${file%:*}"; echo "$$place"; \
	    install -D -m 755 "$(TARGET)/release/$${file%:*}" "$$place.new" && \
	        sync "$$place.new" && mv -f "$$place.new" "$$place" || exit 1; \
	done
