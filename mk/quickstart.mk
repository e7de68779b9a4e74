.PHONY: quickstart
quickstart: deps all  ## a cluster on this machine that trains a small GPT on real text
	@BUILD=$(BUILD) examples/quickstart.sh
