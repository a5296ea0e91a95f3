# Bellhop. `make help` lists the targets; each works from a clean clone.

VERSION := 0.1.0
# The date on the man pages.
VERSION_DATE := 2026-11-23
PROFILE ?= release
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

# `CC ?=` does nothing in make: CC always has a built-in value.
ifeq ($(origin CC),default)
CC := $(if $(filter fuzz,$(PROFILE)),clang-14,gcc)
endif
MUSL_CC ?= musl-gcc

B := build/$(PROFILE)
CC_IS_CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))
# Boxes need root.
AS_ROOT = $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=TEST_AGAIN,TEST_JOBS,TEST_LIMIT_S,npm_config_registry,BELLHOP_KUBERNETES_CACHE)
# Two makes in one tree would write the same files.
ALONE = mkdir -p build && flock build/.lock
PARALLEL = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(JOBS))

# ---- sources: a new file needs no line here ---------------------------------------------------

COMMON_SRC := $(wildcard guest/common/*.c guest/common/*/*.c)
AGENT_SRC := $(sort $(filter-out guest/deps/%,$(wildcard guest/*.c guest/*/*.c guest/*/*/*.c)))
LIB_SRC := $(wildcard host-client/lib/*/*.c host-client/lib/*/*/*.c) $(COMMON_SRC)
CLI_SRC := $(wildcard host-client/cli/*.c)
MONITOR_SRC := $(wildcard host-client/monitor/*.c)
# The daemon serves with the transport of the guest agent.
DAEMON_SRC := $(wildcard host-client/daemon/*.c guest/event/*.c guest/http/*.c)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_HOST_SRC := $(wildcard tests/unit/host/test_*.c)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
HEADERS := $(wildcard guest/*.h guest/*/*.h guest/*/*/*.h host-client/*/*.h host-client/*/*/*.h host-client/*/*/*/*.h)
C_FILES := $(sort $(AGENT_SRC) $(LIB_SRC) $(CLI_SRC) $(MONITOR_SRC) $(DAEMON_SRC) $(UNIT_SRC) $(UNIT_HOST_SRC) \
	$(HEADERS) $(wildcard tests/unit/*.h tests/diff/*.[ch] tests/dialect/*.[ch] tests/providers/*.c tests/lib/*.c tests/lib/*/*.c tests/bench/*.c tests/fuzz/*.[ch] docs/examples/*.c))
SH_FILES := $(sort $(wildcard scripts/*.sh image/*.sh image/checks/*.sh image/forms/*.sh guest/deps/*.sh tests/lib/*.sh tests/lib/*/*.sh tests/long/*.sh \
	tests/bench/*.sh tests/conformance/*.sh tests/fuzz/*.sh bootstrap/*.sh bootstrap/*/*.sh) tests/run .ci/run)

# ---- flags -------------------------------------------------------------------------------------

WARN := -Wall -Wextra -Wshadow -Wformat=2 -Wundef -Wstrict-prototypes \
	-Wmissing-prototypes -Wold-style-definition -Wpointer-arith -Wwrite-strings -Wvla \
	-Wimplicit-fallthrough -Wnull-dereference -Wdouble-promotion -Wconversion \
	-Wno-sign-conversion -Wswitch-enum -Wframe-larger-than=16384 -Wno-missing-field-initializers
# gcc cannot see that `return err_set(...)` is never 0, and so takes every out-parameter of a call
# that failed for one that may be read.
# It also warns about `(void)` where glibc wants a result to be used.
WARN_GCC := -Wno-unused-result -Wno-maybe-uninitialized -Wno-format-truncation -Wformat-signedness -Wduplicated-cond -Wduplicated-branches \
	-Wlogical-op -Walloca -Wjump-misses-init -Wtrampolines
# clang 14 reports a guard that only its cleanup uses as unused; gcc reports the others.
# -Wpedantic is clang's job: gcc's also refuses printf's %m. -Wno-gnu-*: gnu11 extensions we use on purpose (statement expressions, ?:, empty initialisers).
WARN_CLANG := -Wpedantic -Wno-unused-variable -Wmissing-variable-declarations -Wcomma -Wunreachable-code -Wassign-enum \
	-Wno-gnu-statement-expression -Wno-gnu-conditional-omitted-operand -Wno-gnu-empty-initializer \
	-Wno-gnu-zero-variadic-macro-arguments -Wno-gnu-auto-type -Wno-gnu-folding-constant \
	-Wno-gnu-case-range -Wno-gnu-flexible-array-initializer
WERROR ?= -Werror

# For the same reason gcc's analysis of null pointers is wrong about out-parameters once it inlines.
OPT_release := -O2 -Wno-null-dereference -g -DBH_RELEASE -D_FORTIFY_SOURCE=2
OPT_debug := -Og -g3
# The instrumentation of a sanitizer makes gcc report null dereferences that do not exist.
OPT_asan := -O1 -g3 -fno-omit-frame-pointer -fsanitize=address,undefined \
	-fno-sanitize-recover=undefined -Wno-null-dereference -Wno-frame-larger-than
OPT_tsan := -O1 -g3 -fno-omit-frame-pointer -fsanitize=thread -Wno-null-dereference -Wno-frame-larger-than
OPT_cov := -O0 -g3 --coverage
# The compilers of the other profiles give the warnings.
OPT_fuzz := -O1 -gline-tables-only -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=undefined -w
ifeq ($(OPT_$(PROFILE)),)
$(error PROFILE must be release, debug, asan, tsan, cov or fuzz, not '$(PROFILE)')
endif
LDOPT_asan := -fsanitize=address,undefined
LDOPT_tsan := -fsanitize=thread
LDOPT_cov := --coverage
LDOPT_fuzz := -fsanitize=fuzzer,address,undefined

CPPFLAGS_ALL = -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DBELLHOP_VERSION='"$(VERSION)"' -DBELLHOP_DATE='"$(VERSION_DATE)"' -Ibuild/gen -Iguest $(CPPFLAGS)
# Refuses banned functions in every file.
BANNED = -include common/banned.h
HARDEN := -fstack-protector-strong -fno-common -ffunction-sections -fdata-sections -fno-strict-aliasing
CFLAGS_ALL = -std=gnu11 -pthread $(HARDEN) $(WARN) \
	$(if $(CC_IS_CLANG),$(WARN_CLANG),$(WARN_GCC)) $(OPT_$(PROFILE)) $(WERROR) $(CFLAGS)
LDFLAGS_ALL = -pthread $(LDOPT_$(PROFILE)) -Wl,--gc-sections -Wl,--as-needed -Wl,-z,relro,-z,now $(LDFLAGS)
HOST_CPPFLAGS = -Ihost-client -Ihost-client/include
# The host programs look for their parts next to themselves first, then here.
HOST_CPPFLAGS += -DBH_PREFIX='"$(PREFIX)"'

pkg = $(shell pkg-config $(1) $(2) 2>/dev/null)
AGENT_PKGS := libmicrohttpd jansson libarchive libpcre2-8 nettle zlib libprotobuf-c
HOST_PKGS := libcurl jansson libarchive sqlite3 nettle

# The agent that ships is static musl, made from the pinned libraries of guest/deps. Every other
# profile uses the system's shared libraries, because sanitizers cannot be linked statically.
ifeq ($(PROFILE),release)
DEPS_HASH := $(shell cat guest/deps/deps.lock guest/deps/build.sh 2>/dev/null | sha256sum | cut -c1-16)
DEPS_DIR := build/deps/$(DEPS_HASH)
DEPS_DONE := $(DEPS_DIR)/.done
AGENT_CC := $(MUSL_CC)
AGENT_CPPFLAGS := -isystem guest/deps/include -isystem $(DEPS_DIR)/include -DPCRE2_STATIC -DBELLHOP_STATIC=1
AGENT_CFLAGS = $(filter-out $(WARN_CLANG),$(CFLAGS_ALL)) $(if $(CC_IS_CLANG),$(WARN_GCC))
AGENT_CFLAGS += -fno-asynchronous-unwind-tables
AGENT_LDFLAGS := -static -L$(DEPS_DIR)/lib
AGENT_LIBS := $(DEPS_DIR)/lib/mimalloc.o -lmicrohttpd -ljansson -larchive -lpcre2-8 -lnettle -lzstd -llzma -lbz2 -lz -lprotobuf-c
else
DEPS_DONE :=
AGENT_CC := $(CC)
AGENT_CPPFLAGS := $(call pkg,--cflags,$(AGENT_PKGS))
AGENT_CFLAGS = $(CFLAGS_ALL)
AGENT_LDFLAGS :=
AGENT_LIBS := $(call pkg,--libs,$(AGENT_PKGS)) -lm
endif
HOST_LIBS := $(call pkg,--libs,$(HOST_PKGS))
DAEMON_LIBS := $(call pkg,--libs,libmicrohttpd gnutls zlib)
HOST_LIB_CFLAGS := $(call pkg,--cflags,$(HOST_PKGS))

agent_o = $(patsubst %.c,$(B)/obj/agent/%.o,$(1))
host_o = $(patsubst %.c,$(B)/obj/host/%.o,$(1))
# Generated from E2B's messages.
E2B_PB := build/gen/dialect/e2b/e2b.pb-c
AGENT_OBJ := $(call agent_o,$(AGENT_SRC)) $(B)/obj/agent/e2b.pb-c.o
LIB_OBJ := $(call host_o,$(LIB_SRC))
CLI_OBJ := $(call host_o,$(CLI_SRC))
MONITOR_OBJ := $(call host_o,$(MONITOR_SRC))
DAEMON_OBJ := $(call host_o,$(DAEMON_SRC))
UNIT_BIN := $(patsubst tests/unit/%.c,$(B)/tests/%,$(UNIT_SRC)) \
	$(patsubst tests/unit/host/%.c,$(B)/tests/host/%,$(UNIT_HOST_SRC))

FUZZ_BIN := $(patsubst tests/fuzz/%.c,$(B)/tests/%,$(FUZZ_SRC))

PROGRAMS := $(if $(wildcard guest/main.c),$(B)/bellhopd) \
	$(if $(filter host-client/%,$(LIB_SRC)),$(B)/libbellhop.a $(B)/libbellhop.so) \
	$(if $(CLI_SRC),$(B)/bellhop) $(if $(MONITOR_SRC),$(B)/bellhop-monitor) $(B)/bellhop-daemon

# ---- targets for people ------------------------------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all help deps programs objects unit check test test-long test-engines test-kill test-soak test-vm page-shots test-sanitized search-diff run image bench conformance fuzz fuzz-agent fuzz-min fuzz-targets lint check-layers check-names \
	check-headers check-generated format install install-image uninstall clean distclean static FORCE

all: ## install what the build needs, then build everything (PROFILE=release|debug|asan|tsan|cov)
	@scripts/install-packages.sh build
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) programs

programs: $(PROGRAMS) ## build, without looking at packages

objects: $(AGENT_OBJ) $(LIB_OBJ) $(CLI_OBJ) $(MONITOR_OBJ) $(DAEMON_OBJ) ## compile every source, link nothing

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

deps: ## install every package, build the pinned libraries with musl
	@scripts/install-packages.sh build run test lint
	@$(MAKE) --no-print-directory PROFILE=release libs

.PHONY: libs
libs: $(DEPS_DONE)

run: ## put PROJECT (default: here) into a box with the coding agent AGENT (opencode, pi, none)
	@scripts/install-packages.sh build run
	@$(MAKE) --no-print-directory image
	@scripts/run.sh

image: ## build the image of the boxes (I=NAME for another), cached by the hash of its sources
	@scripts/install-packages.sh build run
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=release programs
	@$(AS_ROOT) scripts/make-image.sh $(I)

unit: $(UNIT_BIN) $(B)/tests/echo_agent ## build the unit tests of this PROFILE (the tests run asan's)

check: ## build, and run the short tests, which need neither image nor network: two minutes (sudo)
	@scripts/install-packages.sh build run test
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=release programs
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=asan unit
	@$(AS_ROOT) tests/run --check

test: ## build, and run every test that CI runs; T=FILE for one file; ends with `N passed, N failed` (sudo)
	@scripts/install-packages.sh build run test
	@$(MAKE) --no-print-directory image
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=asan unit
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=fuzz fuzz-targets
	@$(AS_ROOT) tests/run $(T)

test-long: ## tests too long for CI: a bare Debian root, every image in every form, gigabytes, a VM (sudo)
	@scripts/install-packages.sh build run test
	@tests/long/bare-root.sh
	@tests/long/exec-gigabyte.sh
	@tests/long/e2b-gigabyte.sh
	@tests/long/gateway-gigabyte.sh
	@tests/long/sync.sh
	@tests/long/search-diff.sh
	@tests/long/search-gigabyte.sh
	@tests/long/vm-exec.sh
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=release programs
	@tests/long/images.sh
	@tests/long/dockerfile.sh

test-engines: ## test with Docker, Podman and Kubernetes, which is built first: ten minutes, once (sudo)
	@scripts/install-packages.sh build run test
	@$(MAKE) --no-print-directory image
	@$(AS_ROOT) tests/lib/kubernetes/cluster.sh build --agent-sandbox --kwok
	@$(AS_ROOT) tests/run --engines

test-kill: ## kill each command, the monitor and the daemon before every call that changes something: an hour (sudo)
	@scripts/install-packages.sh build run test
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=release programs image
	@$(AS_ROOT) env KILL_POINTS=all bats tests/host/kill-commands.bats
	@$(AS_ROOT) env KILL_POINTS=all KILL_CALLS='create start stop pause resume keep destroy' bats tests/daemon/kill.bats

test-soak: ## a daemon under load for MINUTES (20): descriptors, threads and memory stay flat
	@scripts/install-packages.sh build run test
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=release programs
	@tests/long/soak-daemon.sh $(or $(MINUTES),20)

page-shots: ## pictures of each view of the status page in build/shots, and the README's in docs/images (sudo)
	@scripts/install-packages.sh build run test
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=release programs image
	@$(AS_ROOT) bats tests/long/page-shots.bats
	@mkdir -p docs/images
	@cp build/shots/status-page.png docs/images/

search-diff: ## compare search with rg and fd over thousands of trees and real ones: 15 minutes
	@scripts/install-packages.sh build run test
	@tests/long/search-diff.sh

test-vm: ## test exec in an emulated virtual machine with cgroup v2: 15 minutes
	@scripts/install-packages.sh build run test
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=release programs image
	@$(AS_ROOT) tests/long/vm-exec.sh

test-sanitized: ## run the agent's tests against its PROFILE=asan or tsan build (T=FILE for one): an hour (sudo)
	@scripts/install-packages.sh build run test
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) programs
	@$(AS_ROOT) tests/long/sanitized.sh $(PROFILE) $(T)

fuzz: ## run the fuzz target T (default: all) for S seconds (60; all: 10 each)
	@scripts/install-packages.sh build test
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=fuzz fuzz-targets
	@tests/fuzz/run.sh $(or $(T),all) $(S)

fuzz-min: ## minimise the corpus of the fuzz target T
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=fuzz fuzz-targets
	@tests/fuzz/run.sh min $(T)

fuzz-agent: ## send raw requests to a whole agent beside canaries for S seconds (60); SEED=N, REPLAY=FILE (sudo)
	@scripts/install-packages.sh build test
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) $(B)/bellhopd
	@$(AS_ROOT) tests/fuzz/agent.py $(B)/bellhopd --seconds $(if $(REPLAY),0,$(or $(S),60)) $(if $(SEED),--seed $(SEED)) \
		$(if $(REPLAY),--replay $(REPLAY))

fuzz-targets: $(FUZZ_BIN) ## build the fuzz targets (PROFILE=fuzz)

bench: ## print sizes, latencies, and ratios to peers of the same run (T=exec for one area)
	@scripts/install-packages.sh build run test bench
	@$(MAKE) --no-print-directory $(PARALLEL) PROFILE=release programs $(patsubst \
		tests/bench/%.c,build/release/bench/%,$(wildcard tests/bench/*.c))
	@tests/bench/run.sh $(T)

conformance: ## run the same cases against Bellhop, sandbox-agent and codex exec-server
	@scripts/install-packages.sh build conformance
	@$(ALONE) $(MAKE) --no-print-directory $(PARALLEL) PROFILE=release programs
	@tests/conformance/run.sh $(T)

lint: ## check format, names, layers, headers, documents, generated files; cppcheck, shellcheck, codespell
	@scripts/install-packages.sh build lint
	@$(MAKE) --no-print-directory $(PARALLEL) -k PROFILE=release check-headers check-layers check-names check-generated
	@scripts/lint.sh $(C_FILES) -- $(SH_FILES)

format: ## format the C files
	@clang-format-14 -i $(C_FILES)

check-layers: ## check that calls go down only
	@scripts/check-layers.sh

check-names: ## check names of statics and files, and the first words of comments
	@scripts/check-names.sh

check-headers: $(patsubst %.h,build/headers/%.ok,$(HEADERS)) ## check that each header compiles alone

build/headers/%.ok: %.h build/gen/version.h
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS_ALL) $(HOST_CPPFLAGS) $(AGENT_CPPFLAGS) $(HOST_LIB_CFLAGS) -std=gnu11 $(WARN) -Werror \
		-Wno-unused-function -fsyntax-only -include $< -x c /dev/null
	@touch $@

check-generated: programs ## regenerate the committed files and compare
	@scripts/check-generated.sh

static: $(B)/bellhopd ## check that the shipped agent is static and small
	@scripts/check-static.sh $<

# ---- rules -------------------------------------------------------------------------------------

build/gen/version.h: FORCE
	@mkdir -p $(@D)
	@scripts/version-header.sh '$(VERSION)' $@

SCHEMAS := $(filter-out %/README.md,$(wildcard guest/common/wire/schema/*))
build/gen/schema.inc: scripts/embed-json.sh $(SCHEMAS)
	@mkdir -p $(@D)
	@scripts/embed-json.sh $(SCHEMAS) >$@
$(B)/obj/agent/guest/api/openapi.o: build/gen/schema.inc

# The status page, with the npm packages of its lock, which are fetched once.
build/gen/page.inc: scripts/embed-page.sh $(wildcard host-client/daemon/page/*)
	@mkdir -p $(@D)
	@scripts/embed-page.sh $@
$(B)/obj/host/host-client/daemon/page.o: build/gen/page.inc

DAEMON_SCHEMAS := $(wildcard host-client/daemon/schema/*.json)
build/gen/daemon_schema.inc: scripts/embed-json.sh $(DAEMON_SCHEMAS)
	@mkdir -p $(@D)
	@scripts/embed-json.sh $(DAEMON_SCHEMAS) >$@
$(call host_o,host-client/daemon/openapi.c): build/gen/daemon_schema.inc

$(E2B_PB).c: guest/dialect/e2b/e2b.proto
	@mkdir -p $(@D)
	@protoc-c --proto_path=$(<D) --c_out=$(@D) $<
$(B)/obj/agent/e2b.pb-c.o: $(E2B_PB).c $(DEPS_DONE) $(B)/flags
	@mkdir -p $(@D)
	@echo "  CC    $<"
	@$(AGENT_CC) $(CPPFLAGS_ALL) $(AGENT_CPPFLAGS) -I$(<D) -std=gnu11 $(OPT_$(PROFILE)) -w -c $< -o $@
$(B)/obj/agent/guest/dialect/e2b/proto.o: $(E2B_PB).c

# Compile everything again after a change of the compiler or the flags.
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(CC) $(AGENT_CC) $(CPPFLAGS_ALL) $(HOST_CPPFLAGS) $(CFLAGS_ALL))' >$@.new
	@cmp -s $@.new $@ && rm -f $@.new || mv -f $@.new $@

$(B)/obj/agent/%.o: %.c $(DEPS_DONE) $(B)/flags | build/gen/version.h
	@mkdir -p $(@D)
	@echo "  CC    $<"
	@$(AGENT_CC) $(CPPFLAGS_ALL) $(BANNED) $(AGENT_CPPFLAGS) $(AGENT_CFLAGS) -MMD -MP -c $< -o $@

$(B)/obj/host/%.o: %.c $(B)/flags | build/gen/version.h
	@mkdir -p $(@D)
	@echo "  CC    $< (host)"
	@$(CC) $(CPPFLAGS_ALL) $(BANNED) $(HOST_CPPFLAGS) $(HOST_LIB_CFLAGS) $(CFLAGS_ALL) -fPIC -MMD -MP -c $< -o $@

$(B)/obj/unit/%.o: tests/unit/%.c $(B)/flags | build/gen/version.h
	@mkdir -p $(@D)
	@echo "  CC    $<"
	@$(CC) $(CPPFLAGS_ALL) -Itests/unit $(HOST_CPPFLAGS) $(AGENT_CPPFLAGS) $(HOST_LIB_CFLAGS) \
		$(CFLAGS_ALL) -MMD -MP -c $< -o $@

# The symbols of the release agent are in bellhopd.debug. The copy splits the large page cache folios that strip
# has just written, which would count as resident as a whole.
$(B)/bellhopd: $(AGENT_OBJ) $(DEPS_DONE)
	@echo "  LD    $@"
	@$(AGENT_CC) $(LDFLAGS_ALL) $(AGENT_LDFLAGS) -o $@.debug $(AGENT_OBJ) $(AGENT_LIBS)
	@$(if $(filter release,$(PROFILE)),strip -o $@.strip $@.debug && cp $@.strip $@.tmp && rm $@.strip,ln -f $@.debug $@.tmp)
	@mv -f $@.tmp $@
	@$(if $(filter release,$(PROFILE)),scripts/check-static.sh $@)

$(B)/libbellhop.a: $(LIB_OBJ)
	@echo "  AR    $@"
	@rm -f $@ && ar rcs $@ $(LIB_OBJ)

$(B)/libbellhop.so: $(LIB_OBJ) scripts/libbellhop.map
	@echo "  LD    $@"
	@$(CC) -shared $(LDFLAGS_ALL) -Wl,-soname,libbellhop.so.0 -Wl,--version-script=scripts/libbellhop.map \
		-o $@.0 $(LIB_OBJ) $(HOST_LIBS)
	@ln -sf libbellhop.so.0 $@

$(B)/bellhop: $(CLI_OBJ) $(B)/libbellhop.a
	@echo "  LD    $@"
	@$(CC) $(LDFLAGS_ALL) -o $@ $(CLI_OBJ) $(B)/libbellhop.a $(HOST_LIBS)

$(B)/bellhop-monitor: $(MONITOR_OBJ) $(B)/libbellhop.a
	@echo "  LD    $@"
	@$(CC) $(LDFLAGS_ALL) -o $@ $(MONITOR_OBJ) $(B)/libbellhop.a $(HOST_LIBS)

$(B)/bellhop-daemon: $(DAEMON_OBJ) $(B)/libbellhop.a
	@echo "  LD    $@"
	@$(CC) $(LDFLAGS_ALL) -o $@ $(DAEMON_OBJ) $(B)/libbellhop.a $(HOST_LIBS) $(DAEMON_LIBS)

# The agent with one more dialect: only the table of dialects differs.
ECHO_OBJ := $(patsubst %.c,$(B)/obj/agent/%.o,$(wildcard tests/dialect/*.c))
$(B)/tests/echo_agent: $(filter-out %/dialects.o,$(AGENT_OBJ)) $(ECHO_OBJ) $(DEPS_DONE)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	@$(AGENT_CC) $(LDFLAGS_ALL) $(AGENT_LDFLAGS) -o $@ $(filter %.o,$^) $(AGENT_LIBS)

# An archive, so that a test links only the modules that it needs.
$(B)/obj/agent.a: $(filter-out %/guest/main.o,$(AGENT_OBJ))
	@rm -f $@ && ar rcs $@ $^

$(B)/tests/test_%: $(B)/obj/unit/test_%.o $(B)/obj/agent.a $(DEPS_DONE)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	@$(AGENT_CC) $(LDFLAGS_ALL) $(AGENT_LDFLAGS) -o $@ $(filter %.o %.a,$^) $(AGENT_LIBS)

# The test and the target record the decoders' tables at use.
$(B)/tests/test_schema $(B)/tests/fuzz_rpc: LDFLAGS += -Wl,--wrap=jx_decode
# The test makes each call that changes files fail, one after the other.
comma := ,
$(B)/tests/test_extract_faults: LDFLAGS += $(addprefix -Wl$(comma)--wrap=,syscall openat openat64 mkdirat \
	renameat unlinkat fchmod futimens pwrite pwrite64 pwritev pwritev64 ftruncate ftruncate64 symlinkat linkat)

# The test notes the order of the calls.
$(B)/tests/test_io: LDFLAGS += -Wl,--wrap=fsync -Wl,--wrap=renameat

# The test is short of memory.
$(B)/tests/test_activity: LDFLAGS += -Wl,--wrap=array_grow_bytes

# The test refuses new threads.
$(B)/tests/test_pool: LDFLAGS += -Wl,--wrap=pthread_create

# The test changes a file between two reads.
$(B)/tests/test_process: LDFLAGS += -Wl,--wrap=io_read_file

# The test has a clock of its own, and a scripted box.
$(B)/tests/host/test_template_boot: LDFLAGS += $(addprefix -Wl$(comma)--wrap=,clock_mono_ms poll image_facts \
	box_environment_json client_call)

# The test counts the statements.
$(B)/tests/host/test_gc: LDFLAGS += -Wl,--wrap=sqlite3_prepare_v2

# The test has clocks of its own.
$(B)/tests/host/test_timers: LDFLAGS += $(addprefix -Wl$(comma)--wrap=,clock_mono_ms clock_real_ms)

# The test has clocks, and scripts what the daemon's parts stand on.
$(B)/tests/host/test_day: LDFLAGS += $(addprefix -Wl$(comma)--wrap=,clock_mono_ms clock_real_ms bh_extend bringup_notice control_ping \
	http_new http_free http_do poll sqlite3_open_v2)
$(B)/tests/host/test_day: $(call host_o,$(addprefix host-client/daemon/,events.c attention.c webhooks.c contexts.c))

# The test has a clock, and an API server, of its own.
$(B)/tests/host/test_kube_lease: LDFLAGS += $(addprefix -Wl$(comma)--wrap=,clock_mono_ms http_do)

# It watches a box as the monitor does.
$(B)/tests/host/test_provider: $(call host_o,host-client/monitor/exit_watch.c)

$(B)/tests/host/test_supervise: $(call host_o,host-client/monitor/supervise.c)

$(B)/tests/host/test_%: $(B)/obj/unit/host/test_%.o $(B)/libbellhop.a
	@mkdir -p $(@D)
	@echo "  LD    $@"
	@$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(HOST_LIBS)

# The parsers of the host need only guest/common.
FUZZ_HOST_OBJ := $(call host_o,host-client/daemon/websocket.c host-client/lib/util/toml.c host-client/lib/project/extract.c \
	host-client/lib/util/archive_lib.c host-client/lib/util/beneath.c)
$(B)/tests/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/fuzz.c tests/fuzz/fuzz.h $(FUZZ_HOST_OBJ) $(B)/obj/agent.a
	@mkdir -p $(@D)
	@echo "  LD    $@"
	@$(CC) $(CPPFLAGS_ALL) -Itests/fuzz -Ihost-client $(AGENT_CPPFLAGS) $(AGENT_CFLAGS) $(LDFLAGS_ALL) -o $@ \
		$< tests/fuzz/fuzz.c $(FUZZ_HOST_OBJ) $(B)/obj/agent.a $(AGENT_LIBS)

$(B)/bench/%: tests/bench/%.c $(B)/flags
	@mkdir -p $(@D)
	@echo "  CC    $<"
	@$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $<

ifeq ($(PROFILE),release)
$(DEPS_DONE): guest/deps/deps.lock guest/deps/build.sh
	@guest/deps/build.sh $(DEPS_DIR)
endif

clean: ## remove everything compiled; keep the libraries and images
	@$(AS_ROOT) rm -rf build/release build/debug build/asan build/tsan build/cov build/fuzz build/gen build/headers build/test

distclean: ## remove everything made (sudo: the images are root's)
	@$(AS_ROOT) rm -rf --one-file-system build

install: ## install under $(DESTDIR)$(PREFIX)
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' VERSION='$(VERSION)' scripts/install.sh install

install-image: ## install the slim image under $(DESTDIR)$(PREFIX)/share/bellhop/images (root)
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' VERSION='$(VERSION)' scripts/install.sh install-image

uninstall: ## remove the installed files
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' VERSION='$(VERSION)' scripts/install.sh uninstall

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
