# Debian packages, by name. `make deps` brings what building and running takes, `make deps-test` what the tests take
# besides. Both are quick and need no network when everything is there.

DEPS := build-essential pkg-config python3 redis-server fortunes fortunes-min ca-certificates \
        libmicrohttpd-dev libgnutls28-dev libjansson-dev libhiredis-dev liburing-dev libucx-dev libdnnl-dev libzstd-dev \
        liblz4-dev libxxhash-dev libyaml-dev libcurl4-openssl-dev libssl-dev libutf8proc-dev
DEPS_TEST := libcmocka-dev python3-pytest python3-requests python3-yaml python3-numpy python3-selenium python3-torch \
        python3-jsonschema python3-fastjsonschema chromium chromium-driver iproute2 iptables util-linux procps psmisc clang \
        mypy python3-pip python3-setuptools python3-wheel lld libclang-rt-14-dev libomp-dev clang-tidy clang-format-14 cppcheck codespell shellcheck redis-tools fio \
        redis-sentinel systemd mandoc tmux git mkdocs

.PHONY: deps deps-test deps-docs
deps:  ## install the Debian packages that building and running take
	@mk/install-packages.sh npm $(DEPS)

deps-test: deps  ## install the Debian packages that the tests take
	@mk/install-packages.sh "" $(DEPS_TEST)

deps-docs:  ## install the Debian packages that `make docs` takes
	@mk/install-packages.sh "" mkdocs python3-yaml
