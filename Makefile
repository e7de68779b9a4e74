# Muster. `make help` lists what can be made.
#
#   SANITIZE=address,undefined or SANITIZE=thread   build in a folder of its own with that sanitizer
#   CI=1                                            warnings are errors
#   T=name                                          with `check`: only tests/unit/**/test_name

comma  := ,
BUILD  := build$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))
CC     ?= gcc
PYTHON ?= /usr/bin/python3
PREFIX ?= /usr/local
CFLAGS ?= $(if $(SANITIZE),-O1 -g1,-O2 -g)
SHELL  := /bin/bash

PKGS := libmicrohttpd gnutls jansson hiredis liburing ucx libzstd liblz4 libxxhash yaml-0.1 libcurl libcrypto libutf8proc
override CPPFLAGS += -D_GNU_SOURCE -I. -I$(BUILD)/gen
override CFLAGS   += -std=gnu11 -fno-math-errno -ffp-contract=off -pthread -Wall -Wextra -Wshadow -Wstrict-prototypes \
                     -Wmissing-prototypes -Wvla -Wpointer-arith -Wno-format-truncation $(if $(CI),$(if $(SANITIZE),,-Werror))
override LDFLAGS  += -pthread -Wl,--as-needed
# Which library each folder may call: the floor table of CONTRIBUTING.md.
LIBS_base       := -lxxhash -lm
LIBS_compress   := -lzstd -llz4
LIBS_checkpoint := -luring -ljansson
LIBS_api        := -ljansson -lyaml -lcurl -lcrypto
LIBS_engine     := -ldnnl -lucp -lucs -ljansson -lgomp -lutf8proc
LIBS_agent      := -ljansson -lcurl -lcrypto
LIBS_server     := -lmicrohttpd -lgnutls -lhiredis -ljansson -lcrypto
LLD := $(if $(shell command -v ld.lld),-fuse-ld=lld) # of tests: some 200 are linked
ifneq ($(SANITIZE),)
override CFLAGS  += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
override LDFLAGS += -fsanitize=$(SANITIZE)
endif

# One static library a folder, four of worker/; each program is its main.c and the libraries of its floor and below.
LIBRARIES := base compress scheduler checkpoint api program cli flight snapshot engine agent helper server memory
src_base       := $(shell find base -name '*.c' 2>/dev/null)
src_compress   := $(shell find compress -name '*.c' -not -path '*/cuda/*' 2>/dev/null) # mk/cuda.mk has the rest
src_scheduler  := $(shell find scheduler -name '*.c' 2>/dev/null)
src_checkpoint := $(shell find checkpoint -name '*.c' 2>/dev/null)
src_api        := $(shell find api -name '*.c' -not -path 'api/cli/*' -not -path 'api/program/*' -not -path 'api/state/*' 2>/dev/null)
src_program    := $(shell find api/program -name '*.c' 2>/dev/null)
src_state      := $(shell find api/state -name '*.c' 2>/dev/null)
src_cli        := $(shell find api/cli -name '*.c' -not -name main.c 2>/dev/null)
src_flight     := $(shell find worker/flight -name '*.c' 2>/dev/null)
src_snapshot   := $(shell find worker/snapshot -name '*.c' 2>/dev/null)
src_engine     := $(shell find worker/engine -name '*.c' -not -name main.c -not -path '*/cuda/*' 2>/dev/null)
src_agent      := $(shell find worker/agent -name '*.c' -not -name main.c 2>/dev/null)
src_helper     := $(shell find worker/helper -name '*.c' -not -name main.c 2>/dev/null)
src_server     := $(shell find server -name '*.c' -not -name main.c 2>/dev/null)
src_memory     := $(wildcard tests/memory/*.c)

floor_base       := base
floor_compress   := compress base
floor_scheduler  := scheduler base
floor_checkpoint := checkpoint compress base
floor_api        := api scheduler base
floor_program    := program # alone: mk/program.mk makes what other people's programs load
floor_cli        := cli checkpoint compress api scheduler base
floor_flight     := flight base
floor_snapshot   := snapshot checkpoint compress base
floor_engine     := engine snapshot flight checkpoint compress api scheduler base
floor_agent      := agent snapshot flight checkpoint compress api scheduler base
floor_helper     := helper
floor_helper_and := helper base # of its tests, which make files
floor_worker     := agent helper $(floor_engine)
floor_server     := server api scheduler base
floor_server_and := memory $(floor_server) # of its tests, the simulator and fuzz targets: a store and a disk in memory

libs_of     = $(foreach f,$(floor_$(1)),$(BUILD)/lib$(f).a)
external_of = $(foreach f,$(floor_$(1)),$(LIBS_$(f)))
obj_of      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

PROGRAMS := $(BUILD)/bin/musterd $(BUILD)/bin/muster-agent $(BUILD)/bin/muster-helper $(BUILD)/bin/muster-train $(BUILD)/bin/muster

.PHONY: all
all: $(PROGRAMS)  ## the programs, in build/bin

.SECONDEXPANSION:
$(foreach f,$(LIBRARIES),$(eval $(BUILD)/lib$(f).a: $(call obj_of,$(src_$(f)))))
$(BUILD)/lib%.a:
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcs --thin $@ $(filter %.o,$^)

# What mk/program.mk makes a shared library of, too.
pic_folders := base/% compress/% checkpoint/% scheduler/sequence/% api/state/%
pic := -fPIC -fvisibility=hidden

# Unit tests' own code runs once: to optimize it takes longer than it saves.
unit_flags := -O$(if $(findstring address,$(SANITIZE)),0,1)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc  $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(CFLAGS_$(<)) $(if $(filter $(pic_folders),$<),$(pic)) \
		$(if $(filter tests/unit/%,$<),$(unit_flags)) -MMD -MP -c $< -o $@

define program # name, main.c, library
$(BUILD)/bin/$(1): $(BUILD)/obj/$(2:.c=.o) $(call libs_of,$(3))
	@mkdir -p $$(@D)
	@echo "  ld  $$@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $$@ $$^ $(call external_of,$(3))
endef
$(eval $(call program,musterd,server/main.c,server))
$(eval $(call program,muster-agent,worker/agent/main.c,agent))
$(eval $(call program,muster-helper,worker/helper/main.c,helper))
$(eval $(call program,muster-train,worker/engine/train/main.c,engine))
$(eval $(call program,muster,api/cli/main.c,cli))

# --- tests -------------------------------------------------------------------------------------
# tests/unit/FOLDER/ROOM/test_X.c tests X.c of that room and links its library's floor, nothing above. The rooms of
# worker/engine stand beside those of worker.
unit_src  := $(sort $(shell find tests/unit -name 'test_$(or $(T),*).c'))
UNIT      := $(patsubst %.c,$(BUILD)/%,$(unit_src))
define unit_rule # folder below tests/unit, library
$(BUILD)/tests/unit/$(1)/%: $(BUILD)/obj/tests/unit/$(1)/%.o $(call libs_of,$(2))
	@mkdir -p $$(@D)
	@echo "  ld  $$@"
	@$(CC) $(CFLAGS) $(LDFLAGS) $(LLD) $$(LDFLAGS_$$(notdir $$@)) -o $$@ $$^ $(call external_of,$(2)) -lcmocka
endef
$(foreach f,$(filter-out program cli flight snapshot engine agent helper server memory,$(LIBRARIES)),$(eval $(call unit_rule,$(f),$(f))))
$(eval $(call unit_rule,server,server_and))
$(eval $(call unit_rule,api/cli,cli))
$(eval $(call unit_rule,api/program,program))
$(foreach f,flight snapshot agent,$(eval $(call unit_rule,worker/$(f),$(f))))
$(eval $(call unit_rule,worker/helper,helper_and))
$(foreach f,$(filter-out flight snapshot agent helper,$(patsubst tests/unit/worker/%/,%,$(wildcard tests/unit/worker/*/))),\
	$(eval $(call unit_rule,worker/$(f),engine)))

.PHONY: units
units: $(UNIT)

.PHONY: check
check: units  ## unit tests (T=name for one, SANITIZE=... under a sanitizer)
	$(if $(UNIT),,$(error no unit test is named test_$(T): T=name runs tests/unit/**/test_name))
	@$(PYTHON) tests/run.py --build $(BUILD) unit $(UNIT)

# What is not the build itself, a file a topic, and in mk/flags.mk what single files need of the compiler.
-include mk/*.mk

.PHONY: help
help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

.PHONY: clean
clean:  ## remove everything built
	rm -rf build build-*

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
.SECONDARY:
