#!/bin/sh
# Make the corpus, bring up a cluster of four CPU slots, train examples/quickstart.yaml on it, say what came of it.
set -eu
cd "$(dirname "$0")/.."
muster="${BUILD:-build}/bin/muster"

examples/corpus.sh build/quickstart/fortunes.txt
"$muster" up --devices cpu:4
job=$("$muster" submit examples/quickstart.yaml -o json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
"$muster" watch "$job"
echo
python3 examples/summary.py "$job"
echo "sampled after 'The ':"
"$muster" sample "$job" --prompt "The " --tokens 300 | sed 's/^/  | /'
printf '\n\n'
"$muster" up
echo "end the cluster with: $muster down"
