# The scheduler's benchmark needs nothing above it.
$(BUILD)/bench/scheduler: $(BUILD)/obj/tests/bench/scheduler.o $(call libs_of,scheduler)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,scheduler)
