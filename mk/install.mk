# What is made of the programs: an installation, a first cluster, references.
#
#   make install DESTDIR=/somewhere PREFIX=/usr/local

UNITDIR ?= /lib/systemd/system
DOCDIR  ?= $(PREFIX)/share/doc/muster

.PHONY: install uninstall
install: all  ## install programs, man page, completion, units, docs (DESTDIR=, PREFIX=); the site after make docs
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(DOCDIR)/examples \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $(DESTDIR)$(UNITDIR) $(DESTDIR)/usr/lib/sysusers.d \
		$(DESTDIR)/etc/muster $(DESTDIR)$(DOCDIR)/prometheus $(DESTDIR)$(PREFIX)/lib/muster $(DESTDIR)$(PREFIX)/include
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(PROGRAM_LIBS) $(DESTDIR)$(PREFIX)/lib/muster/
	ln -sf libmuster.so.1 $(DESTDIR)$(PREFIX)/lib/muster/libmuster.so
	install -m 644 api/program/muster.h api/state/muster_state.h $(DESTDIR)$(PREFIX)/include/
	install -d $(DESTDIR)$(PREFIX)/lib/muster/python/muster
	install -m 644 $(PROGRAM_PYTHON) $(DESTDIR)$(PREFIX)/lib/muster/python/muster/
	$(PYTHON) -m compileall -q --invalidation-mode checked-hash $(if $(DESTDIR),-s $(DESTDIR) -p /) \
		$(DESTDIR)$(PREFIX)/lib/muster/python/muster
	$(BUILD)/bin/muster help --man > $(DESTDIR)$(PREFIX)/share/man/man1/muster.1
	$(BUILD)/bin/muster completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/muster
	$(BUILD)/bin/muster completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_muster
	$(BUILD)/bin/muster completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/muster.fish
	for unit in musterd muster-agent; do \
		sed 's|@PREFIX@|$(PREFIX)|' deploy/systemd/$$unit.service > $(DESTDIR)$(UNITDIR)/$$unit.service; done
	install -m 644 deploy/systemd/muster.sysusers $(DESTDIR)/usr/lib/sysusers.d/muster.conf
	install -m 644 docs/*.md LICENSE $(DESTDIR)$(DOCDIR)/
	if [ -d $(BUILD)/docs ]; then cp -r $(BUILD)/docs $(DESTDIR)$(DOCDIR)/html; fi
	install -m 644 deploy/prometheus/*.yml deploy/grafana/muster.json $(DESTDIR)$(DOCDIR)/prometheus/
	install -m 644 examples/*.yaml $(DESTDIR)$(DOCDIR)/examples/

uninstall:  ## remove what install put there (state and /etc/muster stay)
	rm -f $(foreach p,$(notdir $(PROGRAMS)),$(DESTDIR)$(PREFIX)/bin/$(p)) $(DESTDIR)$(PREFIX)/share/man/man1/muster.1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/muster $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_muster \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/muster.fish \
		$(DESTDIR)$(UNITDIR)/musterd.service $(DESTDIR)$(UNITDIR)/muster-agent.service \
		$(DESTDIR)/usr/lib/sysusers.d/muster.conf
	rm -rf $(DESTDIR)$(DOCDIR) $(DESTDIR)$(PREFIX)/lib/muster $(DESTDIR)$(PREFIX)/include/muster.h \
		$(DESTDIR)$(PREFIX)/include/muster_state.h

# The documentation as a site, with a search; musterd serves it at /docs.
.PHONY: docs
docs: deps-docs  ## make docs/ into a site in build/docs
	@$(PYTHON) docs/site/build.py $(BUILD)/docs
	@echo "the documentation is in $(BUILD)/docs; a musterd started from here serves it at /docs"

.PHONY: quickstart
quickstart: deps all  ## a cluster on this machine that trains a small GPT on real text
	@BUILD=$(BUILD) examples/quickstart.sh

# References printed from the tables that the programs run by; tests hold both sides equal.

.PHONY: docs/spec.md docs/cli.md docs/protocol.md openapi
docs/spec.md: $(BUILD)/bin/muster  ## print the reference of the job spec from its table
	@$(BUILD)/bin/muster help --spec > $@

docs/cli.md: $(BUILD)/bin/muster  ## print the reference of the commands from their table
	@$(BUILD)/bin/muster help --markdown > $@

openapi: $(BUILD)/bin/muster  ## print the schemas in api/openapi.yaml from their tables, and the Python client from it
	@$(PYTHON) api/openapi.py $(BUILD)/bin/muster api/openapi.yaml
	@$(PYTHON) api/python_client.py api/openapi.yaml api/python/muster

docs/protocol.md: $(BUILD)/bin/muster  ## print its last section, the fields of all messages, from their tables
	@sed -i '/^## Fields of the messages$$/,$$d' $@
	@$(BUILD)/bin/muster help --protocol >> $@
