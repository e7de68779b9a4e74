# What other people's programs load: libmuster.so.1, of libc alone, in lib/muster beside the programs' bin. Its agent
# tells commands where (MUSTER_LIB).

PROGRAM_LIB := $(BUILD)/lib/muster
PROGRAM_LIBS := $(PROGRAM_LIB)/libmuster.so.1 $(PROGRAM_LIB)/libmuster-state.so.1 $(PROGRAM_LIB)/libmuster-nccl-profiler.so \
	$(PROGRAM_LIB)/libmuster-flight.so.1
program_o := $(patsubst %.c,$(BUILD)/obj/shared/%.o,$(src_program))
# A sanitizer's runtime is not in the programs that load it.
program_cflags = $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS))

all: $(PROGRAM_LIBS) $(PROGRAM_LIB)/libmuster.so

$(BUILD)/obj/shared/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc  $< (shared)"
	@$(CC) $(CPPFLAGS) $(program_cflags) $(CFLAGS_$(<)) $(pic) -MMD -MP -c $< -o $@

$(PROGRAM_LIB)/libmuster.so.1: $(program_o) api/program/muster.map
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(program_cflags) -pthread -shared -Wl,-soname,libmuster.so.1 -Wl,--version-script=api/program/muster.map \
		-Wl,-z,defs -Wl,--as-needed -o $@ $(program_o)

# Checkpoints and plans for programs. What it takes beside libc is linked into it, where nobody sees it.
state_src := $(src_state) $(src_base) $(src_compress) $(src_checkpoint) $(filter scheduler/sequence/%,$(src_scheduler))
state_o := $(patsubst %.c,$(BUILD)/obj/$(if $(SANITIZE),shared/)%.o,$(state_src))
# Debian makes these two fit for shared libraries only as such.
STATE_LIBS ?= $(foreach l,uring zstd lz4,-l:lib$(l).a) -ljansson -lxxhash -lm

$(PROGRAM_LIB)/libmuster-state.so.1: $(state_o) api/state/state.map
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(program_cflags) -pthread -shared -Wl,-soname,libmuster-state.so.1 -Wl,--version-script=api/state/state.map \
		-Wl,-z,defs -Wl,--as-needed -Wl,--gc-sections -o $@ $(state_o) $(STATE_LIBS)

# NCCL loads the one, the package for PyTorch the other; neither needs any of their files.
queue_src := worker/profiler/queue.c $(src_flight) base/clock.c base/io.c base/merr.c base/buf.c
shared_o = $(patsubst %.c,$(BUILD)/obj/shared/%.o,$(1) $(queue_src))

$(PROGRAM_LIB)/libmuster-nccl-profiler.so: $(call shared_o,worker/profiler/nccl.c)
$(PROGRAM_LIB)/libmuster-flight.so.1: $(call shared_o,worker/profiler/c10d.c)
$(PROGRAM_LIB)/libmuster-nccl-profiler.so $(PROGRAM_LIB)/libmuster-flight.so.1:
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(program_cflags) -pthread -shared -Wl,-soname,$(@F) -Wl,-z,defs -Wl,--as-needed -o $@ $^

$(PROGRAM_LIB)/libmuster.so: $(PROGRAM_LIB)/libmuster.so.1
	@ln -sf libmuster.so.1 $@

# The Python package of the same contract: files that are copied, so a cluster that runs from the build has them.
python_src := $(filter %.py %.typed,$(wildcard api/python/muster/*))
PROGRAM_PYTHON := $(patsubst api/python/%,$(PROGRAM_LIB)/python/%,$(python_src))

all: $(PROGRAM_PYTHON)

$(PROGRAM_LIB)/python/%: api/python/%
	@mkdir -p $(@D)
	@cp $< $@

.PHONY: python
python:  ## a wheel of the Python package for programs, in build/wheel
	@$(PYTHON) -c 'import setuptools, wheel, pip' 2>/dev/null || \
		{ echo 'a wheel takes python3-pip, python3-setuptools and python3-wheel: make deps-test' >&2; exit 1; }
	@rm -rf $(BUILD)/wheel && mkdir -p $(BUILD)/wheel/source
	@cp -r api/python/pyproject.toml api/python/muster $(BUILD)/wheel/source/
	@$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation \
		-w $(BUILD)/wheel $(BUILD)/wheel/source
	@rm -rf $(BUILD)/wheel/source
	@ls $(BUILD)/wheel/*.whl
