# References printed from the tables that the programs run by; tests hold both sides equal.

.PHONY: docs/spec.md docs/cli.md docs/protocol.md
docs/spec.md: $(BUILD)/bin/muster  ## print the reference of the job spec from its table
	@$(BUILD)/bin/muster help --spec > $@

docs/cli.md: $(BUILD)/bin/muster  ## print the reference of the commands from their table
	@$(BUILD)/bin/muster help --markdown > $@

docs/protocol.md: $(BUILD)/bin/muster  ## print its last section, the fields of all messages, from their tables
	@sed -i '/^## Fields of the messages$$/,$$d' $@
	@$(BUILD)/bin/muster help --protocol >> $@
