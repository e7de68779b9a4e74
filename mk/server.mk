# The control server's tests that have threads run under TSan too.
TSAN_TESTS += queue
