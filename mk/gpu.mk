# What is tested of the GPU side where there is no GPU: the agent's half, against a driver library of our own.

FAKE_NVML := $(BUILD)/tests/gpu/libnvidia-ml.so.1
test-programs: $(FAKE_NVML)
$(FAKE_NVML): tests/gpu/fake_nvml.c
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o $@ $< -ljansson

# The unit tests of what loads it are linked with it, so that it is there under its name whoever asks (a sanitizer's
# dlopen does not look where the program says).
$(BUILD)/tests/unit/worker/test_nvml $(BUILD)/tests/unit/worker/test_gpus $(BUILD)/tests/unit/worker/test_devices: $(FAKE_NVML)
LDFLAGS_test_nvml    := -Wl,--no-as-needed,$(FAKE_NVML),-rpath,$(dir $(abspath $(FAKE_NVML))),--as-needed
LDFLAGS_test_gpus    := $(LDFLAGS_test_nvml)
LDFLAGS_test_devices := $(LDFLAGS_test_nvml)
TSAN_TESTS += gpus
