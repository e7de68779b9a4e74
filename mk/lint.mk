# House rules that a machine can check; the rules themselves are in CONTRIBUTING.md.

C_FILES := $(shell git ls-files '*.c' '*.h' '*.cu' '*.cc' 2>/dev/null)
PY_FILES := $(shell git ls-files '*.py' 2>/dev/null)
MD_FILES := $(shell git ls-files '*.md' 2>/dev/null)
SH_FILES := $(shell git ls-files '*.sh' .ci/run deploy/setup/muster-setup 2>/dev/null)

# Other versions lay the same code out in other ways.
CLANG_FORMAT := clang-format-14
UNFORMATTED := worker/engine/text/unicode_tables.h # generated
TYPED := api/python/muster
SPELLED = $$(git ls-files | grep -vE '^tests/(fuzz/corpus|unit/worker/tokenizer)/|package-lock.json')

LINTS := cppcheck types format spelling rules shell # those that take longest first

.PHONY: lint format $(LINTS:%=lint-%)
format: deps-test  ## lay out all C as .clang-format says
	@$(CLANG_FORMAT) -i $(filter-out $(UNFORMATTED),$(C_FILES))

lint: deps-test  ## floors, banned calls, long files, layout, words, spelling, types, shell, cppcheck
	@$(MAKE) --no-print-directory -j$(shell nproc) -k -Otarget $(LINTS:%=lint-%)
	@echo 'lint: clean'

lint-types:
	@mypy --config-file api/python/pyproject.toml --strict --python-version 3.9 --cache-dir $(BUILD)/mypy \
		--no-error-summary $(TYPED)

lint-cppcheck:
	@cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,portability \
		--suppressions-list=tests/lint/cppcheck.txt -I. -D__x86_64__ $(filter %.c,$(filter-out tests/%,$(C_FILES)))

lint-format:
	@$(CLANG_FORMAT) --dry-run -Werror $(filter-out $(UNFORMATTED),$(C_FILES))

lint-spelling:
	@codespell -q 3 --skip '*/node_modules/*,./tests/unit/worker/tokenizer/*,./LICENSE,./tests/fuzz/corpus/*' \
		--ignore-words tests/lint/words.txt $(SPELLED)

lint-rules:
	@$(PYTHON) tests/lint/rules.py $(C_FILES) $(PY_FILES) $(SH_FILES) $(MD_FILES)

lint-shell:
	@shellcheck -x $(SH_FILES)
