# Checkpoints: the program that the crash test kills, and which tests run under TSan.

TSAN_TESTS += roundtrip faults capture lift archive

test-programs: $(BUILD)/tests/fault/checkpoint_writer

FAULTS_WRAPPED := open close read pread write pwrite rename fsync fdatasync mkdir rmdir unlink unlinkat fallocate \
                  sync_file_range flock access poll renameat2 io_uring_submit
$(BUILD)/tests/fault/checkpoint_writer: override LDFLAGS += $(foreach f,$(FAULTS_WRAPPED),-Wl,--wrap=$(f))
$(BUILD)/tests/fault/checkpoint_writer: $(BUILD)/obj/tests/fault/checkpoint_writer.o \
                                        $(BUILD)/obj/tests/fault/checkpoint_faults.o $(call libs_of,checkpoint)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,checkpoint)

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
