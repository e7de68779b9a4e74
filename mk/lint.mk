# House rules that a machine can check; the rules themselves are in CONTRIBUTING.md.

C_FILES := $(shell git ls-files '*.c' '*.h' '*.cu' '*.cc' 2>/dev/null)
PY_FILES := $(shell git ls-files '*.py' 2>/dev/null)
MD_FILES := $(shell git ls-files '*.md' 2>/dev/null)
SH_FILES := $(shell git ls-files '*.sh' .ci/run 2>/dev/null)

# Other versions lay the same code out in other ways.
CLANG_FORMAT := clang-format-14
UNFORMATTED := worker/engine/text/unicode_tables.h # generated

.PHONY: lint format
format: deps-test  ## lay out all C as .clang-format says
	@$(CLANG_FORMAT) -i $(filter-out $(UNFORMATTED),$(C_FILES))

lint: deps-test  ## floors, banned calls, long files, layout, words, spelling, types, shell, cppcheck
	@$(PYTHON) tests/lint/rules.py $(C_FILES) $(PY_FILES) $(SH_FILES) $(MD_FILES)
	@$(CLANG_FORMAT) --dry-run -Werror $(filter-out $(UNFORMATTED),$(C_FILES))
	@mypy --strict --python-version 3.9 --cache-dir $(BUILD)/mypy --no-error-summary api/python/muster
	@shellcheck -x $(SH_FILES)
	@codespell -q 3 --skip '*/node_modules/*,./tests/unit/worker/tokenizer/*,./LICENSE,./tests/fuzz/corpus/*' \
		--ignore-words tests/lint/words.txt $$(git ls-files | grep -vE '^tests/(fuzz/corpus|unit/worker/tokenizer)/|package-lock.json')
	@cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,portability \
		--suppressions-list=tests/lint/cppcheck.txt -j 2 -I. -D__x86_64__ $(filter %.c,$(filter-out tests/%,$(C_FILES)))
	@echo 'lint: clean'
