# `make bench-api` starts a server, its Redis and an agent of its own in a temporary folder.
bench-api: $(BUILD)/bin/musterd $(BUILD)/bin/muster-agent
