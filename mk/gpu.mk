# What is tested of the GPU side where there is no GPU: the agent's half and the traffic between GPUs, against libraries
# of our own under the names of NVIDIA's.

FAKE_NVML := $(BUILD)/tests/gpu/libnvidia-ml.so.1
test-programs: $(FAKE_NVML)
$(FAKE_NVML): tests/gpu/fake_nvml.c
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o $@ $< -ljansson

# The unit tests of what loads it are linked with it, so that it is there under its name whoever asks (a sanitizer's
# dlopen does not look where the program says).
$(foreach t,nvml gpus devices,$(BUILD)/tests/unit/worker/agent/test_$(t)): $(FAKE_NVML)
LDFLAGS_test_nvml    := -Wl,--no-as-needed,$(FAKE_NVML),-rpath,$(dir $(abspath $(FAKE_NVML))),--as-needed
LDFLAGS_test_gpus    := $(LDFLAGS_test_nvml)
LDFLAGS_test_devices := $(LDFLAGS_test_nvml)
TSAN_TESTS += gpus

FAKE_NCCL := $(BUILD)/tests/gpu/libnccl.so.2
test-programs: $(FAKE_NCCL)
$(FAKE_NCCL): tests/gpu/fake_nccl.c
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared -fPIC -Wl,-soname,libnccl.so.2 -o $@ $<

$(foreach t,transport/test_nccl test_comm test_coded_gpu test_probe,$(BUILD)/tests/unit/worker/comm/$(t)): $(FAKE_NCCL)
LDFLAGS_test_nccl := -Wl,--no-as-needed,$(FAKE_NCCL),-rpath,$(dir $(abspath $(FAKE_NCCL))),--as-needed
LDFLAGS_test_comm := $(LDFLAGS_test_nccl)
LDFLAGS_test_coded_gpu := $(LDFLAGS_test_nccl)
LDFLAGS_test_probe := $(LDFLAGS_test_nccl)
