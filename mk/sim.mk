# The simulator of the whole cluster: production control room and agents on simulated machines (tests/sim/cluster.h).
#
#   make sim SEED=7 FAULTS=agent-kill,cut STEPS=100000   one seed; SIM='--agents 100 --trace' says more
#   make sim-soak FOR=3600                               seed after seed for so many seconds
#   make sim-mutants                                     plants faults in the code, one at a time: each must be found

SEED   ?= 1
FAULTS ?= all
FOR    ?= 600
sim_src := $(wildcard tests/sim/*.c)

# Its own objects come first: they stand in for the modules of the libraries that touch the outside.
$(BUILD)/sim/sim: $(call obj_of,$(sim_src)) $(call libs_of,server_and) $(call libs_of,agent)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,server) $(call external_of,agent)

test-programs: $(BUILD)/sim/sim

.PHONY: sim sim-soak sim-mutants
sim: $(BUILD)/sim/sim  ## a simulated cluster under faults (SEED=, STEPS=, FAULTS=, SIM=more options)
	@$< --seed $(SEED) $(if $(STEPS),--steps $(STEPS)) --faults $(FAULTS) $(SIM)

sim-soak: $(BUILD)/sim/sim  ## seed after seed for FOR seconds
	@$< --seed $(SEED) --for $(FOR) --faults $(FAULTS) --shrink $(SIM)

sim-mutants: deps-test  ## plant faults in the code, one at a time: the simulator must find each (T=name)
	@$(PYTHON) tests/sim/mutants.py $(T)
