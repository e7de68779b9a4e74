# What codecs of messages are worth, and what they cost. `make bench-collectives` is tests/bench/collectives.c.

QUALITY ?=
QUALITY_STEPS ?= 2000

.PHONY: bench-slow-link quality
bench-slow-link: all  ## tokens a second over a shaped link, with codecs and without (root; BENCH_FLAGS=--quick)
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/slow_link.py $(BENCH_FLAGS)

quality: deps-test all  ## final losses with codecs and without (QUALITY=none-1,r8-1 for some, QUALITY_STEPS=n)
	@examples/corpus.sh build/quickstart/fortunes.txt
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/quality.py --corpus build/quickstart/fortunes.txt \
		--steps $(QUALITY_STEPS) --docs $(if $(filter 2000,$(QUALITY_STEPS)),docs,$(BUILD)/quality) --only "$(QUALITY)"
