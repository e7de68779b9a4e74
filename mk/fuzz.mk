# Fuzzing with clang's libFuzzer under ASan and UBSan: tests/fuzz/fuzz_X.c with its corpus in tests/fuzz/corpus/X.
# `make fuzz T=X FUZZ_SECONDS=60` works on one of them.

FUZZ_SECONDS ?= 10
FUZZ_BUILD := build-fuzz
FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_$(or $(T),*).c))

# Whole libraries where nearly all is fuzzed, and of the others the files that read what comes from outside (parsers),
# compiled once with the fuzzer's instrumentation. What UBSan finds is a trap at its line: words for each check take
# twice the time.
FUZZ_FLOOR := memory server parsers compress api scheduler base
.PHONY: fuzz suite-fuzz fuzz-build
fuzz-build:
	@$(MAKE) --no-print-directory BUILD=$(FUZZ_BUILD) CC=clang SANITIZE= CI= \
		CFLAGS='-O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fsanitize-undefined-trap-on-error -Wno-unknown-warning-option' \
		LDFLAGS='-fsanitize=fuzzer,address,undefined $(LLD)' $(foreach f,$(FUZZERS),$(FUZZ_BUILD)/fuzz/$(f))

FUZZ_PARSERS := $(addprefix worker/engine/,text/% data/corpus% comm/mesh.c train/run.c \
		$(addprefix model/,model.c param.c gpt2.c llama.c rope.c)) \
	$(addprefix worker/agent/,enter% inside% listener% order% packets% program% screen% shim_files% unpack%) \
	worker/helper/wire.c $(addprefix worker/snapshot/,parity.c stream.c survey.c) checkpoint/format/% api/cli/slurm.c api/cli/slurm_script.c
$(FUZZ_BUILD)/libparsers.a: $(patsubst %.c,$(FUZZ_BUILD)/obj/%.o,$(filter $(FUZZ_PARSERS), \
	$(src_engine) $(src_agent) $(src_helper) $(src_snapshot) $(src_checkpoint) $(src_cli)))

$(FUZZ_BUILD)/fuzz/%: $(FUZZ_BUILD)/obj/tests/fuzz/fuzz_%.o $(foreach f,$(FUZZ_FLOOR),$(FUZZ_BUILD)/lib$(f).a)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,server) $(call external_of,worker) -lcmocka

fuzz: fuzz-build  ## fuzz every parser of outside data (T=name, FUZZ_SECONDS=10)
	@$(PYTHON) tests/fuzz/run.py --build $(FUZZ_BUILD) --seconds $(FUZZ_SECONDS) $(FUZZERS)

suite-fuzz: fuzz-build
	@$(PYTHON) tests/fuzz/run.py --build $(FUZZ_BUILD) --seconds $(FUZZ_SECONDS) --keep $(RESULTS)/fuzz.json $(FUZZERS)
