CURVES ?=
.PHONY: curves
curves: deps-test all  ## loss curves of every layout and precision (hours; CURVES=f32-1,bf16-tp2 for some)
	@examples/corpus.sh build/quickstart/fortunes.txt
	@$(PYTHON) tests/bench/curves.py --corpus build/quickstart/fortunes.txt --only "$(CURVES)"
