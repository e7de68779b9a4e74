# Benchmarks: tests/bench/X.c is linked with the libraries of every folder; each prints one JSON object a line.
# `make bench-X` runs one, BENCH_FLAGS=--quick shortens them.

BENCHES := $(filter-out swarm,$(patsubst tests/bench/%.c,%,$(wildcard tests/bench/*.c)))

$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(foreach f,server $(floor_worker),$(BUILD)/lib$(f).a)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,server) $(call external_of,worker)

# Those that need nothing above a folder link no more, so that they build in seconds, and those in folders.
define bench_program # name, source below tests/bench, library
$(BUILD)/bench/$(1): $(BUILD)/obj/tests/bench/$(2).o $(call libs_of,$(3))
	@mkdir -p $$(@D)
	@echo "  ld  $$@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $$@ $$^ $(call external_of,$(3))
endef
$(eval $(call bench_program,swarm,swarm,base))
$(eval $(call bench_program,scheduler,scheduler,scheduler))
$(eval $(call bench_program,sequence,sequence,scheduler))
$(eval $(call bench_program,diagnose,diagnose,scheduler))
$(eval $(call bench_program,compress,compress,compress))
$(eval $(call bench_program,comm,comm,engine))
$(eval $(call bench_program,train-matrix,train/matrix,engine))
$(eval $(call bench_program,checkpoint-measure,checkpoint/measure,checkpoint))

.PHONY: bench $(addprefix bench-,$(BENCHES))
bench: $(addprefix bench-,$(BENCHES))  ## every benchmark (BENCH_FLAGS=--quick)
$(addprefix bench-,$(BENCHES)): bench-%: $(BUILD)/bench/%
	@$< $(BENCH_FLAGS)

# It starts a server, its Redis and an agent of its own in a temporary folder.
bench-api: $(BUILD)/bin/musterd $(BUILD)/bin/muster-agent

# --- those with a script: it starts programs, and others beside them --------------------------------------------------

.PHONY: bench-train bench-checkpoint bench-longsft bench-elastic bench-recovery \
	bench-plan-accuracy
bench: bench-train bench-checkpoint bench-longsft bench-elastic bench-recovery bench-plan-accuracy

# Real ranks, started as an agent does, and PyTorch beside them (tests/bench/train/bench.py --help).
bench-train: $(BUILD)/bench/train-matrix $(BUILD)/bin/muster-train
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/train/bench.py $(BENCH_FLAGS)

# A program times one run; the script takes turns between it, fio and others.
bench-checkpoint: $(BUILD)/bench/checkpoint-measure $(PROGRAMS)
	@$(PYTHON) tests/bench/checkpoint/bench.py --build $(BUILD) $(BENCH_FLAGS)

# Short and long documents under several policies (tests/bench/longsft/bench.py --help).
bench-longsft: $(BUILD)/bin/muster-train
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/longsft/bench.py $(BENCH_FLAGS)

# How soon a job goes on after a rank hangs, a rank is killed, and a node is lost.
bench-recovery: all
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/recovery.py $(BENCH_FLAGS)

# How far planned steps and memory are off.
bench-plan-accuracy: all
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/plan_accuracy.py $(BENCH_FLAGS)

# How long a job stands still when its devices change.
bench-elastic: all
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/elastic.py $(BENCH_FLAGS)

# --- those that are run for the docs ----------------------------------------------------------------------------------

CURVES ?=
QUALITY ?=
QUALITY_STEPS ?= 2000

.PHONY: curves quality bench-slow-link bench-real-values codec-pictures
curves: deps-test all  ## loss curves of every layout and precision (hours; CURVES=f32-1,bf16-tp2 for some)
	@examples/corpus.sh build/quickstart/fortunes.txt
	@$(PYTHON) tests/bench/curves.py --corpus build/quickstart/fortunes.txt --only "$(CURVES)"

quality: deps-test all  ## final losses with codecs and without (QUALITY=none-1,r8-1 for some, QUALITY_STEPS=n)
	@examples/corpus.sh build/quickstart/fortunes.txt
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/quality.py --corpus build/quickstart/fortunes.txt \
		--steps $(QUALITY_STEPS) --docs $(if $(filter 2000,$(QUALITY_STEPS)),docs,$(BUILD)/quality) --only "$(QUALITY)"

bench-slow-link: all  ## tokens a second over a shaped link, with codecs and without (root; BENCH_FLAGS=--quick)
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/slow_link.py $(BENCH_FLAGS)

# Of a model trained for it; needs PyTorch.
bench-real-values: all $(BUILD)/bench/compress  ## codecs on gradients and activations of a real run (REAL_FLAGS=--quick)
	@MUSTER_BUILD=$(abspath $(BUILD)) $(PYTHON) tests/bench/real_values.py $(REAL_FLAGS)

codec-pictures: $(BUILD)/bench/compress  ## the pictures of docs/compression.md, with errors measured anew
	@$< --only errors | $(PYTHON) tests/bench/codec_pictures.py

# What the Python package for programs costs.
.PHONY: bench-python
bench: bench-python
bench-python:
	@$(PYTHON) tests/bench/python_package.py $(BENCH_FLAGS)

# What an array of 100,000 tasks costs.
.PHONY: bench-scale
bench: bench-scale
bench-scale: $(BUILD)/bin/musterd $(BUILD)/bench/swarm  ## ten thousand nodes, large gangs, a million ended jobs
	@MUSTER_BUILD=$(BUILD) $(PYTHON) -m tests.bench.scale $(BENCH_FLAGS)

.PHONY: bench-arrays
bench: bench-arrays
bench-arrays: all
	@MUSTER_BUILD=$(BUILD) $(PYTHON) -m tests.bench.arrays $(BENCH_FLAGS)

# What a change of devices costs a program with PyTorch.
.PHONY: bench-elastic-program
bench: bench-elastic-program
bench-elastic-program: all
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/elastic_program.py $(BENCH_FLAGS)

# Which faults are told as what. It takes hours; BENCH_FLAGS=--quick minutes.
.PHONY: bench-confusion
bench-confusion: all test-programs
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/confusion.py $(BENCH_FLAGS)

# False alarms in so many seconds of training with evaluations, checkpoints and rescales on a busy host.
.PHONY: bench-clean
bench-clean: SECONDS ?= 600
bench-clean: all test-programs
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/confusion.py --clean $(SECONDS)

# What a flood of logs, readers and a flood of events cost an honest user.
.PHONY: bench-attackers
bench: bench-attackers
bench-attackers: all
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/attackers.py $(BENCH_FLAGS)

# What checkpoints of PyTorch programs cost; needs PyTorch, OpenBLAS (libopenblas0-pthread) and an idle machine.
.PHONY: bench-torch-checkpoint
bench-torch-checkpoint: all  ## muster.torch.Checkpointer beside torch.save (BENCH_FLAGS=--adopt, --quick)
	@MUSTER_LIB=$(abspath $(PROGRAM_LIB)) $(PYTHON) tests/bench/torch_checkpoint.py --dir $(abspath $(BUILD)) $(BENCH_FLAGS)

# Gradients of PyTorch programs as blocks of a codec, over a slow link; needs root, PyTorch and OpenBLAS.
.PHONY: bench-ddp-codec
bench-ddp-codec: all  ## muster.torch.ddp_codec_hook beside plain DDP, within 5 minutes (root; BENCH_FLAGS=--only speed)
	@examples/corpus.sh build/quickstart/fortunes.txt
	@MUSTER_LIB=$(abspath $(PROGRAM_LIB)) $(PYTHON) tests/bench/ddp_codec.py --corpus build/quickstart/fortunes.txt $(BENCH_FLAGS)

# What a session beside a rank carries.
.PHONY: bench-exec
bench: bench-exec
bench-exec: all
	@MUSTER_BUILD=$(BUILD) $(PYTHON) tests/bench/exec.py $(BENCH_FLAGS)
