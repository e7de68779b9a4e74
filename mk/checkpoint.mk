# Checkpoints: the program that the crash test kills, and which tests run under TSan.

TSAN_TESTS += roundtrip faults

test-programs: $(BUILD)/tests/fault/checkpoint_writer

$(BUILD)/tests/fault/checkpoint_writer: $(BUILD)/obj/tests/fault/checkpoint_writer.o $(call libs_of,checkpoint)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,checkpoint)
