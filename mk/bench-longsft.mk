# `make bench-longsft` trains on short and long documents under several policies (tests/bench/longsft/bench.py --help).
.PHONY: bench-longsft
bench: bench-longsft
bench-longsft: $(BUILD)/bin/muster-train
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/longsft/bench.py $(BENCH_FLAGS)
