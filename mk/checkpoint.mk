# Checkpoints: the programs that the crash test runs, and which tests run under TSan.

TSAN_TESTS += roundtrip faults capture lift archive

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

# Its benchmark is a program that times one run, and a script that takes turns between it, fio and others.
$(BUILD)/bench/checkpoint-measure: $(BUILD)/obj/tests/bench/checkpoint/measure.o $(call libs_of,checkpoint)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,checkpoint)

.PHONY: bench-checkpoint
bench: bench-checkpoint
bench-checkpoint: $(BUILD)/bench/checkpoint-measure \
                  $(foreach p,muster muster-train muster-agent musterd,$(BUILD)/bin/$(p))
	@$(PYTHON) tests/bench/checkpoint/bench.py --build $(BUILD) $(BENCH_FLAGS)
