#!/usr/bin/env python3
"""Write the schemas of the job spec and of the agents' messages, which come from tables, into api/openapi.yaml.

    api/openapi.py build/bin/muster api/openapi.yaml
"""
import json
import re
import subprocess
import sys

import yaml


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def printed(muster, option):
    return json.loads(subprocess.run([muster, "help", option], check=True, capture_output=True).stdout)


def needed(messages, page):
    """Those that the page refers to, and those that they refer to; files are not part of the API."""
    found, text = {}, page
    while new := [name for name in messages if name not in found and f"#/components/schemas/{name}'" in text]:
        found.update({name: messages[name] for name in new})
        text = yaml.dump({name: found[name] for name in new})
    return found


def schemas(muster, page):
    spec = printed(muster, "--schema")
    del spec["$schema"]
    return {"Spec": spec, **needed(printed(muster, "--messages"), page)}


def main():
    muster, path = sys.argv[1:]
    with open(path, encoding="utf-8") as f:
        page = f.read()
    begin, end = (re.search(rf"^    # {words}.*\n", page, re.M) for words in ("Of the job spec and", "The end of what"))
    hand = page[:begin.end()] + page[end.start():]
    text = yaml.dump(schemas(muster, hand), Dumper=Dumper, sort_keys=False, width=118, allow_unicode=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(page[:begin.end()])
        f.writelines("    " + line + "\n" for line in text.splitlines())
        f.write(page[end.start():])


if __name__ == "__main__":
    main()
