# `make bench-train` starts real ranks, as an agent does, and PyTorch beside them; `BENCH_FLAGS='--quick'` shortens it,
# tests/bench/train/bench.py --help says what else there is.
$(BUILD)/bench/train-matrix: $(BUILD)/obj/tests/bench/train/matrix.o $(call libs_of,engine)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,engine)

.PHONY: bench-train
bench: bench-train
bench-train: $(BUILD)/bench/train-matrix $(BUILD)/bin/muster-train
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/train/bench.py $(BENCH_FLAGS)
