#!/bin/sh
# usage: install-packages.sh "PROGRAM..." PACKAGE...
#
# Install the Debian packages that are missing, with sudo unless root. Each PROGRAM is a command whose package of the
# same name is installed only when no such command is found: Node.js often comes from elsewhere.
set -eu

programs=$1
shift
missing=
for program in $programs; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "cannot install packages: no apt-get here; install these yourself:$missing" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        printf '%s\n' "cannot install packages without root or sudo; let root run this, then go on as you are:" \
            "  apt-get install --no-install-recommends$missing" >&2
        exit 1
    }
    sudo=sudo
fi
echo "installing:$missing"
$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
