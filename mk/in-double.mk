# The engine once more, with doubles where it has floats: a gradient that must be another one but for the order of sums
# is then held to it closer than any mistake hides.
IN_DOUBLE := packing pieces context
in_double_tests := $(patsubst tests/unit/worker/model/test_%.c,$(BUILD)/tests/unit/worker/model/test_%_in_double,\
	$(filter $(IN_DOUBLE:%=tests/unit/worker/model/test_%.c),$(unit_src)))
in_double_engine := $(patsubst %.c,$(BUILD)/obj/in_double/%.o,$(wildcard worker/engine/model/*.c) worker/engine/kernels/plain.c)

ifeq ($(SANITIZE),) # which have nothing more to find in the same lines
UNIT += $(in_double_tests)
units: $(in_double_tests)
endif

$(BUILD)/obj/in_double/%.o: %.c tests/unit/worker/in_double.h
	@mkdir -p $(@D)
	@echo "  cc  $< (in double)"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -include tests/unit/worker/in_double.h -MMD -MP -c $< -o $@

$(BUILD)/tests/unit/worker/model/test_%_in_double: $(BUILD)/obj/in_double/tests/unit/worker/model/test_%.o $(in_double_engine) \
		$(call libs_of,engine)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,engine) -lcmocka
