# Fuzzing with clang's libFuzzer under ASan and UBSan: tests/fuzz/fuzz_X.c with its corpus in tests/fuzz/corpus/X.
# `make fuzz T=X FUZZ_SECONDS=60` works on one of them.

FUZZ_SECONDS ?= 10
FUZZ_BUILD := build-fuzz
FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_$(or $(T),*).c))

# All folders' sources but the programs' main files, compiled once with the fuzzer's instrumentation.
.PHONY: fuzz suite-fuzz fuzz-build
fuzz-build:
	@$(MAKE) --no-print-directory BUILD=$(FUZZ_BUILD) CC=clang SANITIZE= \
		CFLAGS='-O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -Wno-unknown-warning-option' \
		LDFLAGS='-fsanitize=fuzzer,address,undefined' $(foreach f,$(FUZZERS),$(FUZZ_BUILD)/fuzz/$(f))

$(FUZZ_BUILD)/fuzz/%: $(FUZZ_BUILD)/obj/tests/fuzz/fuzz_%.o $(foreach f,server $(floor_worker),$(FUZZ_BUILD)/lib$(f).a)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,server) $(call external_of,worker) -lcmocka

fuzz: fuzz-build  ## fuzz every parser of outside data (T=name, FUZZ_SECONDS=10)
	@$(PYTHON) tests/fuzz/run.py --build $(FUZZ_BUILD) --seconds $(FUZZ_SECONDS) $(FUZZERS)

suite-fuzz: fuzz-build
	@$(PYTHON) tests/fuzz/run.py --build $(FUZZ_BUILD) --seconds $(FUZZ_SECONDS) --keep $(RESULTS)/fuzz.json $(FUZZERS)
