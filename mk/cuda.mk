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

# Machine code for A100 (8.0) and H100, H200 (9.0); what is newer compiles the PTX of 9.0 when it loads it, unless the
# library is built with CUDA_NEWER=1, for releases: B200 (10.0) and RTX (12.0), which take nvcc 12.8 or newer.
# `make test`, which runs none of it, builds for one alone (CUDA_ONE) and marks that: whoever else asks has all built.
CUDA_ARCHS ?= $(if $(CUDA_ONE),-gencode arch=compute_80$(comma)code=[sm_80$(comma)compute_80],\
	-gencode arch=compute_80$(comma)code=sm_80 -gencode arch=compute_90$(comma)code=[sm_90$(comma)compute_90] \
	$(if $(CUDA_NEWER),-gencode arch=compute_100$(comma)code=sm_100 -gencode arch=compute_120$(comma)code=sm_120))
CUDA_MARK := $(BUILD)/obj/cuda/for-one
CUDA_LIBRARY := $(BUILD)/lib/muster/muster-cuda.so
cuda_cu := $(wildcard compress/cuda/*.cu worker/engine/kernels/cuda/*.cu)
cuda_c  := $(wildcard compress/cuda/*.c worker/engine/kernels/cuda/*.c)
# Of the folders below, what the library calls: it has copies of its own, and shows one symbol.
cuda_shared := base/clock.c base/merr.c base/philox.c base/philox_avx2.c compress/codec.c compress/cuda_library.c compress/group_plain.c \
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

$(BUILD)/obj/cuda/%.cu.o: %.cu $(if $(CUDA_ONE),,$(wildcard $(CUDA_MARK)))
	@rm -rf $(@:.o=.kept) && mkdir -p $(@:.o=.kept)
	@echo "  nvcc  $<"
	@$(NVCC) -std=c++17 -O3 $(CPPFLAGS) $(CUDA_ARCHS) $(NVCC_FLAGS_$<) $(if $(CI),-Werror all-warnings) \
		-Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra$(if $(CI),$(comma)-Werror) -MD -MP -MF $(@:.o=.d) \
		--keep --keep-dir $(@:.o=.kept) -c $< -o $@
	@find $(@:.o=.kept) -type f ! -name '*.cubin' -delete # tests/gpu/sass.py looks at the machine code

$(BUILD)/obj/cuda/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc  $< (for the library)"
	@$(CC) $(CUDA_INCLUDES) $(CUDA_CFLAGS) $(CFLAGS_$(<)) -MMD -MP -c $< -o $@

# cudart is linked in: it looks for the driver when it is first called, so that the library loads without one.
$(CUDA_LIBRARY): $(cuda_objects)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CXX) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $^ $(CUDA_LDFLAGS) -lcudart_static -ldl -lrt -lm
	@$(if $(CUDA_ONE),touch,rm -f) $(CUDA_MARK)

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
