# Benchmarks: tests/bench/X.c is linked with the libraries of every folder; each prints one JSON object a line.
# `make bench-X` runs one, BENCH_FLAGS=--quick shortens them.

BENCHES := $(patsubst tests/bench/%.c,%,$(bench_src))

$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(foreach f,server $(floor_worker),$(BUILD)/lib$(f).a)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,server) $(call external_of,worker)

.PHONY: bench $(addprefix bench-,$(BENCHES))
bench: $(addprefix bench-,$(BENCHES))  ## every benchmark (BENCH_FLAGS=--quick)
$(addprefix bench-,$(BENCHES)): bench-%: $(BUILD)/bench/%
	@$< $(BENCH_FLAGS)
