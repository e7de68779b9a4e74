# What codecs of messages are worth, and what they cost. `make bench-collectives` is tests/bench/collectives.c.

QUALITY_STEPS ?= 2000

.PHONY: bench-slow-link quality
bench-slow-link: all  ## tokens a second over a shaped link, with codecs and without (root; BENCH_FLAGS=--quick)
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/slow_link.py $(BENCH_FLAGS)

quality: all  ## final losses with codecs and without, two seeds (QUALITY_STEPS=n; hours at the default)
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/quality.py --steps $(QUALITY_STEPS)
