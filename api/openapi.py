#!/usr/bin/env python3
"""Write the schema of the job spec, which `muster help --schema` prints from its table, into api/openapi.yaml.

    muster help --schema | api/openapi.py api/openapi.yaml
"""
import json
import re
import sys

import yaml


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def main():
    schema = json.load(sys.stdin)
    del schema["$schema"]
    text = yaml.dump({"Spec": schema}, Dumper=Dumper, sort_keys=False, width=118, allow_unicode=True)
    indented = "".join("    " + line + "\n" for line in text.splitlines())
    with open(sys.argv[1], encoding="utf-8") as f:
        page = f.read()
    page, n = re.subn(r"    Spec:.*?(?=    # The end of the job spec\.)", lambda _: indented, page, flags=re.S)
    if n != 1:
        sys.exit(f"{sys.argv[1]}: the section `Spec` with its two comments is not there once")
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write(page)


if __name__ == "__main__":
    main()
