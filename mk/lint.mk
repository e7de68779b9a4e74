# House rules that a machine can check; the rules themselves are in CONTRIBUTING.md.

C_FILES := $(shell git ls-files '*.c' '*.h' '*.cu' '*.cc' 2>/dev/null)
PY_FILES := $(shell git ls-files '*.py' 2>/dev/null)
SH_FILES := $(shell git ls-files '*.sh' .ci/run 2>/dev/null)

.PHONY: lint
lint: deps-test  ## floors, banned calls, long files, spelling, shell, cppcheck
	@$(PYTHON) tests/lint/rules.py $(C_FILES) $(PY_FILES) $(SH_FILES)
	@shellcheck -x $(SH_FILES)
	@codespell -q 3 --skip '*/node_modules/*,./tests/unit/worker/tokenizer/*,./api/web/package-lock.json,./LICENSE,./tests/fuzz/corpus/*' \
		--ignore-words tests/lint/words.txt $$(git ls-files | grep -vE '^tests/(fuzz/corpus|unit/worker/tokenizer)/')
	@cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,portability \
		--suppressions-list=tests/lint/cppcheck.txt -j 2 -I. -D__x86_64__ $(filter %.c,$(filter-out tests/%,$(C_FILES)))
	@echo 'lint: clean'
