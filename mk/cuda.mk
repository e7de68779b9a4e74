# The code for GPUs: one library that muster-train loads at run time, built wherever nvcc is found and never needed.
#   NVCC=path    another nvcc;   NVCC= (empty)   build without
# Sanitizers know nothing of GPUs: their builds have none.

ifneq ($(origin NVCC),command line)
NVCC := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
endif
ifneq ($(SANITIZE),)
override NVCC :=
endif

# nvcc may be a script, a link, or lie apart from its toolkit: it alone knows where its headers and libraries are, and
# through a link to it not even that. Parts of a toolkit may be absent, so they are tried before they are counted on.
cuda_absent := no nvcc
ifneq ($(NVCC),)
nvcc_paths = $(shell $(NVCC) --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^[^ ]* $1=//p' | tr -d '"')
ifeq ($(call nvcc_paths,INCLUDES),)
override NVCC := $(or $(realpath $(NVCC)),$(NVCC))
endif
cuda_dir_of = $(foreach dir,$(patsubst $1%,%,$(filter $1%,$2)),$(realpath $(dir)))
CUDA_INCLUDES := $(addprefix -isystem ,$(filter-out /usr/include,$(call cuda_dir_of,-I,$(call nvcc_paths,INCLUDES))))
CUDA_LDFLAGS := $(addprefix -L,$(call cuda_dir_of,-L,$(call nvcc_paths,LIBRARIES)))
cuda_lacks := $(shell for header in cuda_runtime_api.h cublasLt.h; do \
	$(CC) $(CUDA_INCLUDES) -include $$header -fsyntax-only -x c /dev/null 2>/dev/null || echo $$header; done; \
	$(CC) -shared -o /dev/null $(CUDA_LDFLAGS) -lcudart_static 2>/dev/null || echo libcudart_static)
ifneq ($(cuda_lacks),)
cuda_absent := $(NVCC) without $(cuda_lacks)
override NVCC :=
endif
endif

# Machine code for A100 (8.0) and H100, H200 (9.0); what is newer compiles the PTX of 9.0 when it loads it.
CUDA_ARCHS ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
CUDA_LIBRARY := $(BUILD)/lib/muster/muster-cuda.so
cuda_cu := $(wildcard compress/cuda/*.cu worker/engine/kernels/cuda/*.cu)
cuda_c  := $(wildcard compress/cuda/*.c worker/engine/kernels/cuda/*.c)
# Of the folders below, what the library calls: it has copies of its own, and shows one symbol.
cuda_shared := base/clock.c base/merr.c base/philox.c base/philox_avx2.c compress/codec.c compress/group_plain.c \
               compress/group_avx2.c compress/group_avx512.c
CUDA_CFLAGS = $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden

ifneq ($(NVCC),)
cuda_objects := $(cuda_cu:%.cu=$(BUILD)/obj/cuda/%.cu.o) $(cuda_c:%.c=$(BUILD)/obj/cuda/%.o) \
                $(cuda_shared:%.c=$(BUILD)/obj/cuda/%.o)

.PHONY: cuda
all: cuda
cuda: $(CUDA_LIBRARY)  ## the library of code for GPUs (wherever nvcc is found)

# The order of rounding is part of the codecs' format, and makes adamw exact: no contraction there.
$(foreach file,$(wildcard compress/cuda/codec_*.cu),$(eval NVCC_FLAGS_$(file) := --fmad=false))
NVCC_FLAGS_worker/engine/kernels/cuda/elements.cu := --fmad=false

$(BUILD)/obj/cuda/%.cu.o: %.cu
	@mkdir -p $(@D)
	@echo "  nvcc  $<"
	@$(NVCC) -std=c++17 -O3 $(CPPFLAGS) $(CUDA_ARCHS) $(NVCC_FLAGS_$<) $(if $(CI),-Werror all-warnings) \
		-Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra$(if $(CI),$(comma)-Werror) -MD -MP -MF $(@:.o=.d) -c $< -o $@

$(BUILD)/obj/cuda/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc  $< (for the library)"
	@$(CC) $(CUDA_INCLUDES) $(CUDA_CFLAGS) $(CFLAGS_$(<)) -MMD -MP -c $< -o $@

# cudart is linked in: it looks for the driver when it is first called, so that the library loads without one.
$(CUDA_LIBRARY): $(cuda_objects)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CXX) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $^ $(CUDA_LDFLAGS) -lcudart_static -ldl -lrt -lm

.PHONY: install-cuda
install: install-cuda
install-cuda: all
	install -d $(DESTDIR)$(PREFIX)/lib/muster
	install -m 755 $(CUDA_LIBRARY) $(DESTDIR)$(PREFIX)/lib/muster/
else
.PHONY: cuda-absent
all: cuda-absent
cuda-absent:
	@$(if $(SANITIZE),,echo "  $(cuda_absent): built without code for GPUs (see docs/gpu.md)")
endif

.PHONY: uninstall-cuda
uninstall: uninstall-cuda
uninstall-cuda:
	rm -rf $(DESTDIR)$(PREFIX)/lib/muster

# --- the check --------------------------------------------------------------------------------------------------------

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
	@$(CC) $(CUDA_INCLUDES) $(CUDA_CFLAGS) -DCUBLASLT_LIBRARY='"$(abspath $(FAKE_LT))"' -MMD -MP -c $< -o $@

# It queues its products there, as the library that loads it does its kernels.
$(FAKE_LT): tests/gpu/fake_lt.c $(EMULATED)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CUDA_INCLUDES) $(CPPFLAGS) $(CFLAGS) -shared -fPIC -o $@ $< $(abspath $(EMULATED))

$(EMULATED): $(emulated_objects)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CXX) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $(emulated_objects) -ldl -lm

$(FRAGMENTS_EMULATED): $(BUILD)/obj/emulated/tests/gpu/fragments.cu.o $(BUILD)/obj/emulated/emulate.o
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CXX) $(LDFLAGS) -o $@ $^ -lm

test-programs: $(FAKE_LT) $(CHECK_GPU) $(FRAGMENTS_EMULATED)
endif

FAILURES_GPU := $(BUILD)/tests/gpu/failures
$(FAILURES_GPU): $(BUILD)/obj/tests/gpu/failures.o $(call libs_of,engine)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,engine)
test-programs: $(if $(NVCC),$(FAILURES_GPU))
