# Sequence planning. Its benchmark needs nothing above the scheduler, so it links no more: `make bench-sequence` builds
# in seconds.
$(BUILD)/bench/sequence: $(BUILD)/obj/tests/bench/sequence.o $(foreach f,$(floor_scheduler),$(BUILD)/lib$(f).a)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,scheduler)

# A step is planned while the one before it is trained on.
TSAN_TESTS += feed

# One of its tests loses each allocation once.
LDFLAGS_test_sequence_memory := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
