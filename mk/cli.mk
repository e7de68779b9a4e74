# References printed from the tables that the programs run by; tests hold both sides equal.

.PHONY: docs/spec.md docs/cli.md
docs/spec.md: $(BUILD)/bin/muster  ## print the reference of the job spec from its table
	@$(BUILD)/bin/muster help --spec > $@

docs/cli.md: $(BUILD)/bin/muster  ## print the reference of the commands from their table
	@$(BUILD)/bin/muster help --markdown > $@

FUZZ_FOLDER_spec := api
