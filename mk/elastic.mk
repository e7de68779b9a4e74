# How long a job stands still when its devices change: a cluster of its own, so a program and not a unit.
.PHONY: bench-elastic
bench: bench-elastic
bench-elastic: all
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/elastic.py $(BENCH_FLAGS)
