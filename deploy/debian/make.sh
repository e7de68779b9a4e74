#!/bin/sh
# usage: deploy/debian/make.sh FOLDER [PROFILE]   build the Debian packages in FOLDER, from a copy of the sources
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
version=$(sed -n 's/^#define MUSTER_VERSION "\(.*\)"$/\1/p' "$top/base/version.h")
tree=$1/muster-$version
rm -rf "$tree"
mkdir -p "$tree"
cd "$top"
# shellcheck disable=SC2016 # the inner shell expands it
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard
else
    find . -type f -not -path './build*' -not -path '*/node_modules/*' -print0
fi | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' - | tar -c --null -T - | tar -x -C "$tree"
mkdir -p "$tree/api/web/node_modules"
cp -r api/web/node_modules/uplot "$tree/api/web/node_modules/"
cp -r deploy/debian "$tree/debian"
{
    printf '\nFiles: api/web/node_modules/uplot/*\n'
    sed -n 's/^Copyright (c) \([0-9]\{4\}.*\)$/Copyright: \1/p' api/web/node_modules/uplot/LICENSE
    printf 'License: Expat\n'
    sed -e '1,/^Copyright/d' -e 's/^ *$/./' -e 's/^/ /' api/web/node_modules/uplot/LICENSE | sed 1d
    printf '\nLicense: Apache-2.0\n On Debian systems its text is in /usr/share/common-licenses/Apache-2.0.\n'
} >>"$tree/debian/copyright"
cd "$tree"
DEB_BUILD_OPTIONS="parallel=$(nproc) nocheck ${DEB_BUILD_OPTIONS:-}" \
    dpkg-buildpackage -b -us -uc --no-pre-clean ${2:+-P"$2"}
