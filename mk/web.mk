# The dashboard: files of api/web, without what only people read, and uPlot from npm, embedded into the server as C. No
# network once node_modules is there.

WEB_MODULES := api/web/node_modules/uplot/package.json
WEB_FILES := $(wildcard api/web/*.html api/web/*.css api/web/*.js) api/openapi.yaml
UPLOT := api/web/node_modules/uplot/dist
WEB_C := $(BUILD)/gen/web_assets.c

$(WEB_MODULES): api/web/package-lock.json
	@command -v npm >/dev/null || { echo 'cannot fetch uPlot for the dashboard: no npm here; make deps' >&2; exit 1; }
	@echo "  npm api/web"
	@cd api/web && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts
	@touch $@

$(WEB_C): api/web/embed.py api/web/shrink.py $(WEB_FILES) $(WEB_MODULES)
	@mkdir -p $(@D)
	@echo "  gen $@"
	@$(PYTHON) api/web/embed.py $@ $(WEB_FILES) $(UPLOT)/uPlot.iife.min.js=uplot.js $(UPLOT)/uPlot.min.css=uplot.css

$(BUILD)/obj/gen/web_assets.o: $(WEB_C)
	@mkdir -p $(@D)
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/libserver.a: $(BUILD)/obj/gen/web_assets.o
