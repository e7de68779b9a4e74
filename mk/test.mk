# Tests: what some need beyond the rules of the Makefile, the programs that they start, and the suites.

# --- unit tests -------------------------------------------------------------------------------------------------------

# Those whose subject has threads run under TSan, too; two that take longest with `make test-all`.
TSAN_TESTS := $(if $(MUSTER_TEST_LONG),faults archive) roundtrip capture lift abandon kernels kernels_attention kernels_pool feed \
	queue files storing readers http gpus muster
# One loses each command that is to be queued once, another each allocation.
LDFLAGS_test_redis := -Wl,--wrap=redisAppendFormattedCommand
LDFLAGS_test_sequence_memory := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc

# The engine once more, with doubles where it has floats: a gradient that must be another one but for the order of sums
# is then held to it closer than any mistake hides.
IN_DOUBLE := $(addprefix tests/unit/worker/model/,test_packing.c test_pieces.c context/test_context.c)
in_double_tests := $(patsubst %.c,$(BUILD)/%_in_double,$(filter $(IN_DOUBLE),$(unit_src)))
in_double_engine := $(patsubst %.c,$(BUILD)/obj/in_double/%.o,$(wildcard worker/engine/model/*.c worker/engine/model/*/*.c) worker/engine/kernels/plain.c)

ifeq ($(SANITIZE),) # which have nothing more to find in the same lines
UNIT += $(in_double_tests)
units: $(in_double_tests)
endif

$(BUILD)/obj/in_double/%.o: %.c tests/unit/worker/in_double.h
	@mkdir -p $(@D)
	@echo "  cc  $< (in double)"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -include tests/unit/worker/in_double.h -MMD -MP -c $< -o $@

$(in_double_tests): $(BUILD)/%_in_double: $(BUILD)/obj/in_double/%.o $(in_double_engine) $(call libs_of,engine)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,engine) -lcmocka

# --- programs that the Python tests start -----------------------------------------------------------------------------

# The crash tests of checkpoints.
test-programs: $(BUILD)/tests/fault/checkpoint_writer $(BUILD)/tests/fault/checkpoint_power

CHANGING := open write pwrite rename renameat2 fsync fdatasync mkdir rmdir unlink remove fallocate
FAULTS_WRAPPED := $(CHANGING) close read pread unlinkat sync_file_range flock access poll io_uring_submit
fault_o = $(patsubst %,$(BUILD)/obj/tests/fault/%.o,$(1))
$(BUILD)/tests/fault/checkpoint_writer: override LDFLAGS += $(foreach f,$(FAULTS_WRAPPED),-Wl,--wrap=$(f))
$(BUILD)/tests/fault/checkpoint_writer: $(call fault_o,checkpoint_writer checkpoint_model checkpoint_faults)
$(BUILD)/tests/fault/checkpoint_power: override LDFLAGS += $(foreach f,$(CHANGING),-Wl,--wrap=$(f))
$(BUILD)/tests/fault/checkpoint_power: $(call fault_o,checkpoint_power checkpoint_model disk_log disk_replay)
$(BUILD)/tests/fault/checkpoint_writer $(BUILD)/tests/fault/checkpoint_power: $(call libs_of,checkpoint)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(call external_of,checkpoint)

# What lets a test set the clock of a cluster, slow a rank, and hold up the removal of files.
PRELOADED := $(patsubst %,$(BUILD)/tests/fault/%.so,set_clock slow_rank slow_unlink)
test-programs: $(PRELOADED)
$(PRELOADED): $(BUILD)/tests/fault/%.so: tests/fault/%.c
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -shared -fPIC -o $@ $<

# What writes down the answers that the command line and agents get.
$(BUILD)/tests/openapi/tap.so: tests/openapi/tap.c
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CPPFLAGS) $(filter-out -Wpedantic -pedantic,$(CFLAGS)) -shared -fPIC -o $@ $<
ifeq ($(SANITIZE),) # whose libraries must come first
test-programs: $(BUILD)/tests/openapi/tap.so
endif

# muster-train with faults in it, beside an agent that starts it.
INJECT := $(BUILD)/tests/fault/inject
INJECT_WRAPPED := comm_group_new comm_all_reduce message_send data_train optim_new optim_begin optim_squares \
	ucp_worker_progress mio_submit
test-programs: $(INJECT)/muster-train $(INJECT)/muster-agent
$(INJECT)/muster-agent: $(BUILD)/bin/muster-agent
	@mkdir -p $(@D)
	@ln -f $< $@
$(INJECT)/muster-train: override LDFLAGS += $(foreach f,$(INJECT_WRAPPED),-Wl,--wrap=$(f))
$(INJECT)/muster-train: $(call obj_of,worker/engine/train/main.c) $(call fault_o,inject) $(call libs_of,engine)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,engine)

# --- suites -----------------------------------------------------------------------------------------------------------
# Each leaves its counts in $(BUILD)/results; `make test` adds them up and ends with one plain line.

RESULTS := build/results
# Builds and programs that do not need each other share the cores.
BUILD_JOBS := -j$(shell echo $$(($$(nproc) + 1))) # one more: some fetch
LINT := $(wildcard tests/lint/test_*.py)
# Packages take minutes to build.
INTEGRATION := $(filter-out $(if $(MUSTER_TEST_LONG),,$(addprefix tests/integration/,test_packages.py test_slurm.py)),\
	$(wildcard tests/integration/test_*.py))
# Whether the verdict on a slow rank comes in time depends on what else the machine does: `make test-all` alone judges it.
SPEED := tests/fault/test_slow.py
FAULT := $(filter-out $(if $(MUSTER_TEST_LONG),,$(SPEED)),$(wildcard tests/fault/test_*.py))
ATTACK := $(wildcard tests/attack/test_*.py)
E2E := $(wildcard tests/e2e/test_*.py)
THREADED := $(filter $(foreach t,$(TSAN_TESTS),tests/unit/%/test_$(t).c),$(unit_src))
# UCX's hooks of mmap and TSan's call each other until the stack is full.
ifneq ($(findstring thread,$(SANITIZE)),)
export UCX_MEM_MMAP_HOOK_MODE := none
endif
run = $(PYTHON) tests/run.py --build $(BUILD) --keep $(RESULTS)/$(1).json

.PHONY: test test-all test-pace suite-system suite-unit suite-asan suite-tsan suite-fuzz suite-python test-programs
test: export CUDA_ONE := $(if $(MUSTER_TEST_LONG),,1)
test: deps-test  ## every test; ends with "N passed, N failed"
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	@$(MAKE) --no-print-directory $(BUILD_JOBS) -k all test-programs units CI=1
	@-$(MAKE) --no-print-directory $(BUILD_JOBS) suite-unit
	@-$(MAKE) --no-print-directory $(BUILD_JOBS) suite-asan SANITIZE=address,undefined
	@-$(MAKE) --no-print-directory $(BUILD_JOBS) suite-tsan SANITIZE=thread
	@-$(MAKE) --no-print-directory $(BUILD_JOBS) suite-fuzz FUZZ_SECONDS=1
	@-$(MAKE) --no-print-directory $(BUILD_JOBS) suite-python
	@$(PYTHON) tests/run.py sum $(foreach s,unit asan tsan fuzz python,$(RESULTS)/$(s).json)

NODE_TESTS := $(foreach d,openapi e2e,tests/$(d)/node_modules/.package-lock.json)
test-programs: $(NODE_TESTS)  ## helper programs that the Python tests start

# Public tools for the API's description and the dashboard's pages; npm itself makes the file when it is done.
$(NODE_TESTS): tests/%/node_modules/.package-lock.json: tests/%/package-lock.json
	@command -v npm >/dev/null || { echo 'cannot fetch the tools of tests/$*: no npm here; make deps' >&2; exit 1; }
	@cd tests/$* && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts
	@touch $@

suite-unit: $(UNIT)
	@$(call run,unit) unit $(UNIT)

suite-asan: $(UNIT)
	@ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 $(call run,asan) asan $(UNIT)

suite-tsan: $(patsubst %.c,$(BUILD)/%,$(THREADED))
	@TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp $(call run,tsan) tsan $^

suite-python: all test-programs
	@MUSTER_BUILD=$(BUILD) $(call run,python) python $(LINT) $(INTEGRATION) $(E2E) $(FAULT) $(ATTACK)

# Tests that meet jobs while they run: with models so small that jobs hurry, then all of Python's with a tenth of the
# processor. Neither may change an outcome.
PACE = $(filter-out $(foreach t,compressed documents layouts layouts_random plan precision torch torch_llama hf,\
	tests/integration/test_$(t).py),$(shell grep -l specs.train $(INTEGRATION) $(E2E) \
	$(filter-out tests/fault/test_blocks.py,$(FAULT))))

test-pace: deps-test all test-programs  ## tests of running jobs with hardly any work, then with a tenth of the processor
	@-MUSTER_BUILD=$(BUILD) MUSTER_TEST_TINY=1 $(call run,hurried) hurried $(PACE)
	@-MUSTER_BUILD=$(BUILD) MUSTER_PYTEST_SECONDS=7200 $(PYTHON) tests/slow.py 0.1 \
		$(call run,slowed) slowed $(INTEGRATION) $(E2E) $(FAULT) $(ATTACK)
	@$(PYTHON) tests/run.py sum $(foreach s,hurried slowed,$(RESULTS)/$(s).json)

test-all: deps-test  ## the tests with the long ones: more seeds, minutes of fuzzing, soak
	@MUSTER_TEST_LONG=1 MUSTER_TEST_SECONDS=1800 MUSTER_PYTEST_SECONDS=3600 $(MAKE) --no-print-directory test
	@-$(MAKE) --no-print-directory $(BUILD_JOBS) suite-fuzz FUZZ_SECONDS=120
	@-$(MAKE) --no-print-directory $(BUILD_JOBS) suite-system SANITIZE=address,undefined
	@-$(MAKE) --no-print-directory $(BUILD_JOBS) suite-system SANITIZE=thread
	@$(PYTHON) tests/run.py sum $(foreach s,unit asan tsan fuzz python system-address system-thread,$(RESULTS)/$(s).json)

# Whole clusters of sanitized programs. UCX's hook of madvise runs when a thread has ended for TSan already, and crashes
# there: without the hook (a cache of registrations, which no test's transport has) all is well.
SYSTEM_address := $(foreach t,agent bad_input command_jobs layouts server,tests/integration/test_$(t).py)
SYSTEM_thread := $(foreach t,command_jobs layouts server,tests/integration/test_$(t).py)
sanitizer := $(firstword $(subst $(comma), ,$(SANITIZE)))

suite-system: all test-programs
	@MUSTER_BUILD=$(BUILD) UCX_MEM_EVENTS=n ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
		TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp:exitcode=66 \
		$(call run,system-$(sanitizer)) system-$(sanitizer) $(SYSTEM_$(sanitizer))
