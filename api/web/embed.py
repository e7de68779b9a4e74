#!/usr/bin/env python3
"""Write C source with the given files as the table `web_assets` of server/http/web.h: embed.py OUT FILE[=NAME]..."""
import hashlib
import os
import sys

import shrink

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".yaml": "application/yaml"}


def c_bytes(data):
    rows = (data[i:i + 24] for i in range(0, len(data), 24))
    return ",\n".join("    " + ",".join(str(b) for b in row) for row in rows)


def main():
    out = ['#include "server/http/web.h"\n']
    rows = []
    for i, argument in enumerate(sys.argv[2:]):
        path, _, name = argument.partition("=")
        name = name or os.path.basename(path)
        with open(path, "rb") as f:
            data = f.read()
        if ".min." not in path and path.endswith((".js", ".css")):
            data = (shrink.script if path.endswith(".js") else shrink.style)(data.decode()).encode()
        etag = hashlib.sha256(data).hexdigest()[:16]
        out.append(f"static const unsigned char file_{i}[] = {{\n{c_bytes(data)}\n}};\n")
        rows.append(f'    {{"{name}", "{TYPES[os.path.splitext(name)[1]]}", "\\"{etag}\\"", file_{i}, {len(data)}}},')
    out.append("const struct web_asset web_assets[] = {\n" + "\n".join(rows) +
               "\n    {NULL, NULL, NULL, NULL, 0},\n};\n")
    with open(sys.argv[1], "w", encoding="ascii") as f:
        f.write("\n".join(out))


if __name__ == "__main__":
    main()
