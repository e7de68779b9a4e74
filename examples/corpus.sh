#!/bin/sh
# Write the texts of Debian's fortunes as one file, a line of % after each file: corpus.sh FILE
set -eu
fortunes="${FORTUNES:-/usr/share/games/fortunes}"

mkdir -p "$(dirname "$1")"
find "$fortunes" -maxdepth 1 -type f ! -name '*.dat' ! -name '*.u8' | LC_ALL=C sort |
    while read -r file; do cat "$file"; echo %; done > "$1.new"
[ "$(wc -c < "$1.new")" -gt 100000 ] || {
    echo "corpus: '$fortunes' holds too little text; is the package fortunes installed?" >&2
    exit 1
}
mv "$1.new" "$1"
