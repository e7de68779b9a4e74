# The control server's tests that have threads run under TSan too.
TSAN_TESTS += queue files

# One of its tests loses each command that is to be queued once.
LDFLAGS_test_redis := -Wl,--wrap=redisAppendFormattedCommand

# What lets a test set the clock of a cluster.
SET_CLOCK := $(BUILD)/tests/fault/set_clock.so
test-programs: $(SET_CLOCK)
$(SET_CLOCK): tests/fault/set_clock.c
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -shared -fPIC -o $@ $<
