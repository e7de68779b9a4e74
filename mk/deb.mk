# Debian packages, in build/deb, from a copy of the sources.

DEPS_DEB := debhelper dh-python dpkg-dev fakeroot help2man lintian po-debconf

.PHONY: deps-deb deb
deps-deb: deps
	@mk/install-packages.sh "" $(DEPS_DEB)

deb: deps-deb $(WEB_MODULES)  ## Debian packages in build/deb, looked over by lintian
	@mkdir -p $(BUILD)/deb && rm -f $(BUILD)/deb/*.deb
	@deploy/debian/make.sh $(abspath $(BUILD)/deb) $(if $(NVCC),pkg.muster.cuda) >$(BUILD)/deb/build.log 2>&1 || \
		{ tail -n 40 $(BUILD)/deb/build.log; exit 1; }
	@lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs $(BUILD)/deb/*.deb
	@echo "the packages are in $(BUILD)/deb"
