#!/usr/bin/python3
"""Prints unicode_tables.h: the ranges of letters and of numbers. Run it again for a newer Unicode:
    python3 worker/engine/text/unicode_tables.py > worker/engine/text/unicode_tables.h
"""
import sys
import unicodedata


def ranges(kind):
    found, begin = [], None
    for c in range(sys.maxunicode + 2):
        inside = c <= sys.maxunicode and unicodedata.category(chr(c))[0] == kind
        if inside and begin is None:
            begin = c
        if not inside and begin is not None:
            found.append((begin, c - 1))
            begin = None
    return found


def table(name, kind):
    cells = [f"{{{a:#x}, {b:#x}}}," for a, b in ranges(kind)]
    print(f"static const struct range {name}[] = {{")
    line = "   "
    for cell in cells:
        if len(line) + 1 + len(cell) > 118:
            print(line)
            line = "   "
        line += " " + cell
    print(line)
    print("};")


print(f"/* unicode_tables - made by unicode_tables.py from Unicode {unicodedata.unidata_version} */")
table("letters", "L")
table("numbers", "N")
