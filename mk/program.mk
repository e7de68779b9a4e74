# What other people's programs load: libmuster.so.1, of libc alone, in lib/muster beside the programs' bin. Its agent
# tells commands where (MUSTER_LIB).

PROGRAM_LIB := $(BUILD)/lib/muster
PROGRAM_LIBS := $(PROGRAM_LIB)/libmuster.so.1 $(PROGRAM_LIB)/libmuster-nccl-profiler.so
program_o := $(patsubst %.c,$(BUILD)/obj/shared/%.o,$(src_program))
# A sanitizer's runtime is not in the programs that load it.
program_cflags = $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS))

all: $(PROGRAM_LIBS) $(PROGRAM_LIB)/libmuster.so

$(BUILD)/obj/shared/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc  $< (shared)"
	@$(CC) $(CPPFLAGS) $(program_cflags) -fPIC -fvisibility=hidden -MMD -MP -c $< -o $@

$(PROGRAM_LIB)/libmuster.so.1: $(program_o) api/program/muster.map
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(program_cflags) -pthread -shared -Wl,-soname,libmuster.so.1 -Wl,--version-script=api/program/muster.map \
		-Wl,-z,defs -Wl,--as-needed -o $@ $(program_o)

# NCCL loads it; it needs none of NCCL's files.
profiler_src := worker/profiler/nccl.c $(src_flight) base/clock.c base/io.c base/merr.c base/buf.c
profiler_o := $(patsubst %.c,$(BUILD)/obj/shared/%.o,$(profiler_src))

$(PROGRAM_LIB)/libmuster-nccl-profiler.so: $(profiler_o)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(program_cflags) -pthread -shared -Wl,-z,defs -Wl,--as-needed -o $@ $(profiler_o)

$(PROGRAM_LIB)/libmuster.so: $(PROGRAM_LIB)/libmuster.so.1
	@ln -sf libmuster.so.1 $@
