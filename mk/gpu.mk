# What checks the GPU side: on a GPU, over its emulation by the processor, and against fakes of NVIDIA's libraries.

CHECK_GPU := $(BUILD)/tests/gpu/check
$(CHECK_GPU): $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/gpu/check*.c)) $(call libs_of,engine)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,engine)

# Whether the instructions of tensor cores do what tensor_core.h says: on a GPU, and over the emulation.
FRAGMENTS := $(BUILD)/tests/gpu/fragments
FRAGMENTS_EMULATED := $(BUILD)/tests/gpu/fragments-emulated
ifneq ($(NVCC),)
$(FRAGMENTS): tests/gpu/fragments.cu worker/engine/kernels/cuda/tensor_core.h
	@mkdir -p $(@D)
	@echo "  nvcc  $@"
	@$(NVCC) -std=c++17 -O3 $(CPPFLAGS) $(CUDA_ARCHS) $(if $(CI),-Werror all-warnings) -o $@ $<
endif

.PHONY: check-gpu
check-gpu: all $(CHECK_GPU) $(if $(NVCC),$(FRAGMENTS))  ## everything on this machine's GPU, beside the processor (exit status 77 without one)
	@MUSTER_CUDA_BACKEND=$(CUDA_LIBRARY) $(PYTHON) tests/gpu/run.py --build $(BUILD) --json $(BUILD)/check-gpu.json

# All that the check takes in one folder, for a machine with a GPU and a driver where nothing can be built or installed:
# there, python3 FOLDER/run.py. Libraries come along but for those of glibc and of the compiler, which each system has.
CHECK_GPU_KIT := $(BUILD)/check-gpu-kit
kit_programs := bin/muster bin/muster-agent bin/muster-train lib/muster/muster-cuda.so tests/gpu/check tests/gpu/fragments
.PHONY: check-gpu-kit
check-gpu-kit: all $(CHECK_GPU) $(FRAGMENTS)  ## the check of a GPU in one folder, to be carried to a machine where nothing is installed
	@rm -rf $(CHECK_GPU_KIT)
	@mkdir -p $(CHECK_GPU_KIT)/lib/kit
	@for f in $(kit_programs); do \
		mkdir -p $(CHECK_GPU_KIT)/$$(dirname $$f) && strip -o $(CHECK_GPU_KIT)/$$f $(BUILD)/$$f || exit 1; \
		ldd $(BUILD)/$$f | awk '$$3 ~ /^\// { print $$3 }'; done | sort -u | \
		grep -vE '/lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s)\.so' | xargs cp -L -t $(CHECK_GPU_KIT)/lib/kit
	@cp tests/gpu/run.py tests/gpu/speeds.py tests/gpu/torch_beside.py $(CHECK_GPU_KIT)/
	@tar -C $(BUILD) -czf $(CHECK_GPU_KIT).tar.gz check-gpu-kit
	@echo "  $(CHECK_GPU_KIT).tar.gz: $$(du -sh $(CHECK_GPU_KIT).tar.gz | cut -f 1); there: python3 run.py [--help]"

# The same library with its kernels run by the processor, thread by thread, so that `make test` sees what they compute.
EMULATED := $(BUILD)/tests/gpu/muster-cuda-emulated.so
FAKE_LT  := $(BUILD)/tests/gpu/libcublasLt-fake.so
FAKE_DNN := $(BUILD)/tests/gpu/libcudnn-fake.so
ifneq ($(NVCC),)
EMULATED_FLAGS := -O1 -g -ffp-contract=off -fPIC -fvisibility=hidden -U_FORTIFY_SOURCE $(CUDA_INCLUDES) \
                  -Wall -Wextra -Wno-unknown-pragmas $(if $(CI),-Werror)
emulated_objects := $(cuda_cu:%.cu=$(BUILD)/obj/emulated/%.cu.o) $(BUILD)/obj/emulated/emulate.o \
                    $(cuda_c:%.c=$(BUILD)/obj/emulated/%.o) $(cuda_shared:%.c=$(BUILD)/obj/cuda/%.o)

$(BUILD)/obj/emulated/%.cu.o: %.cu tests/gpu/emulate.h
	@mkdir -p $(@D)
	@echo "  c++  $< (emulated)"
	@$(CXX) -std=c++17 $(CPPFLAGS) $(EMULATED_FLAGS) -include tests/gpu/emulate.h -MMD -MP -x c++ -c $< -o $@

$(BUILD)/obj/emulated/emulate.o: tests/gpu/emulate.cc tests/gpu/emulate.h
	@mkdir -p $(@D)
	@echo "  c++  $<"
	@$(CXX) -std=c++17 $(CPPFLAGS) $(EMULATED_FLAGS) -c $< -o $@

$(BUILD)/obj/emulated/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc  $< (emulated)"
	@$(CC) $(CUDA_INCLUDES) $(CUDA_CFLAGS) -DCUBLASLT_LIBRARY='"$(abspath $(FAKE_LT))"' \
		-DCUDNN_LIBRARY='"$(abspath $(FAKE_DNN))"' -MMD -MP -c $< -o $@

# They queue what they compute there, as the library that loads them does its kernels.
$(FAKE_LT): tests/gpu/fake_lt.c $(EMULATED)
$(FAKE_DNN): tests/gpu/fake_dnn.c worker/engine/kernels/cuda/dnn_graph.h $(EMULATED)
$(FAKE_LT) $(FAKE_DNN):
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CUDA_INCLUDES) $(CPPFLAGS) $(CFLAGS) -shared -fPIC -o $@ $< $(abspath $(EMULATED)) -lm

$(EMULATED): $(emulated_objects)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CXX) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $(emulated_objects) -ldl -lm

$(FRAGMENTS_EMULATED): $(BUILD)/obj/emulated/tests/gpu/fragments.cu.o $(BUILD)/obj/emulated/emulate.o
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CXX) $(LDFLAGS) -o $@ $^ -lm

test-programs: $(FAKE_LT) $(FAKE_DNN) $(CHECK_GPU) $(FRAGMENTS_EMULATED)
endif

# What the real cuDNN, where it is, says of the graphs that it would be given.
PLANS_DNN   := $(BUILD)/tests/gpu/plans
FAKE_DRIVER := $(BUILD)/tests/gpu/driver/libcuda.so.1
ifneq ($(NVCC),)
test-programs: $(PLANS_DNN) $(FAKE_DRIVER)
$(PLANS_DNN): tests/gpu/plans.c $(BUILD)/obj/emulated/worker/engine/kernels/cuda/dnn_graph.o $(cuda_shared:%.c=$(BUILD)/obj/cuda/%.o)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CUDA_INCLUDES) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ldl -lm

$(FAKE_DRIVER): tests/gpu/fake_driver.c
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared -fPIC -Wl,-soname,libcuda.so.1 -o $@ $<
endif

FAILURES_GPU := $(BUILD)/tests/gpu/failures
$(FAILURES_GPU): $(BUILD)/obj/tests/gpu/failures.o $(call libs_of,engine)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,engine)
test-programs: $(if $(NVCC),$(FAILURES_GPU))

# --- the agent's half, and the traffic between GPUs, against libraries of our own under the names of NVIDIA's ---------

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
