# The control server's tests that have threads run under TSan too.
TSAN_TESTS += queue

# One of its tests loses each command that is to be queued once.
LDFLAGS_test_store := -Wl,--wrap=redisAppendCommand
