#!/usr/bin/env python3
"""What is in the machine code of GPUs, without the toolkit's disassembler.

    sass.py [--order] FILE.cubin...     each kernel: instructions, registers, shared memory, how many of each opcode
    sass.py --gate FOLDER               whether the kernels of a build are as they were made to be (exit status 1: not,
                                        77: there are none)

With --order the widths of its global loads (L) and stores (S) in program order, | for a barrier. Opcodes are the low 12
bits of the 128-bit instruction, of compute capability 7.0 to 9.0; the width of a global access is bits 9 to 11 of its
high half. Unknown opcodes print as numbers.
"""
import argparse
import collections
import pathlib
import re
import struct
import subprocess
import sys

NAMES = {0x23c: "HMMA", 0xdf0: "HGMMA", 0x1df0: "HGMMA", 0x5df0: "HGMMA", 0x83b: "LDSM", 0xfae: "LDGSTS", 0x308: "MUFU",
         0x387: "STL", 0x983: "LDL", 0x381: "LDG", 0x981: "LDG", 0x386: "STG", 0x986: "STG", 0x388: "STS", 0x984: "LDS",
         0xb1d: "BAR", 0x223: "FFMA", 0x823: "FFMA", 0xc23: "FFMA", 0x220: "FMUL", 0x221: "FADD", 0x209: "FMNMX",
         0x589: "SHFL", 0xf89: "SHFL", 0x947: "BRA", 0x94d: "EXIT", 0x918: "NOP", 0x228: "DMUL", 0x229: "DMUL",
         0x22b: "DFMA", 0x82b: "DFMA"}
WIDTH = {0: "U8", 1: "S8", 2: "U16", 3: "S16", 4: "32", 5: "64", 6: "128"}

# Kernel, and what holds for each architecture: registers at most, loads of 16 bytes that come one after the other
# before a store, products of tensor cores at least. What is not named here need only keep its registers.
GATE = [
    ("for_units<map_one<bf16, bf16", {"registers": 64, "wide": 2}),
    ("for_units<map_one<float, bf16", {"registers": 64, "wide": 4}),
    ("for_units<map_one<float, float", {"registers": 64, "wide": 4}),
    ("for_units<map_two<bf16", {"registers": 64, "wide": 4}),
    ("for_units<map_two<float", {"registers": 80, "wide": 8}),
    ("for_units<swiglu_there<bf16", {"registers": 80, "wide": 4}),
    ("for_units<swiglu_back<bf16", {"registers": 96, "wide": 6}),
    ("for_units<add_to", {"registers": 64, "wide": 8}),
    ("for_units<adamw", {"registers": 128, "wide": 16}),
    ("for_units<finish_product<bf16", {"registers": 80, "wide": 4}),
    ("add_wide_pieces<bf16", {"registers": 96, "wide": 8}),
    ("add_wide_pieces<float", {"registers": 128, "wide": 16}),
    ("for_units<drop_units", {"registers": 64, "wide": 4}),
    ("for_units<look_up<bf16", {"registers": 64, "wide": 2}),
    ("for_units<look_up<float", {"registers": 64, "wide": 4}),
    ("rotate_units<bf16", {"registers": 96, "wide": 12}),
    ("xent_partial", {"registers": 64, "wide": 4}),
    ("xent_finish<bf16", {"registers": 64, "wide": 4}),
    ("sum_squares", {"registers": 64, "wide": 4}),
    ("norm_forward_kept<bf16, 4", {"registers": 64, "wide": 4}),
    ("norm_backward_rows<1", {"registers": 64, "wide": 2}),
    ("norm_backward_rows<4", {"registers": 128, "wide": 8}),
    ("forward<128, false", {"registers": 255, "products": 256}),
    ("of_keys<128, false", {"registers": 255, "products": 128}),
    ("of_queries<128, false", {"registers": 255, "products": 128}),
]
# Angles of any size are reduced in the memory of a thread; the coders of groups have more numbers than registers, of
# which they store two.
SPILLS = ("for_each<rotate<", "for_each<make_turn", "rotate_units<", "encode_kernel", "reduce_kernel")
SHARED_MOST = 48 << 10  # without asking, of each GPU


def kernels(path):
    """Name, code, registers and fixed shared memory of each kernel of an ELF file."""
    data = path.read_bytes()
    table = struct.unpack_from("<Q", data, 40)[0]
    size, count, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQII", data, table + i * size) for i in range(count)]
    start, code, shared = sections[names][4], {}, {}
    for name, _, _, _, offset, length, _, info in sections:
        text = data[start + name:data.index(b"\0", start + name)].decode()
        if text.startswith(".text."):
            code[text[6:]] = data[offset:offset + length], info >> 24
        elif text.startswith(".nv.shared."):
            shared[text[11:]] = length
    for name, (text, registers) in code.items():
        yield name, list(struct.iter_unpack("<QQ", text)), registers, shared.get(name, 0)


def plain(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return {name: re.sub(r"\(anonymous namespace\)::|attention_tensor::|^void ", "", line).split("(")[0]
            for name, line in zip(names, text.splitlines())}


def counts(words):
    return collections.Counter(NAMES.get(low & 0xfff, hex(low & 0xfff)) for low, _ in words)


def order(words):
    steps = []
    for low, high in words:
        op = NAMES.get(low & 0xfff)
        if op in ("LDG", "STG"):
            steps.append(("L" if op == "LDG" else "S") + WIDTH.get(high >> 9 & 7, "?"))
        elif op == "BAR":
            steps.append("|")
    return steps


def wide_loads(steps):
    """Most loads of 16 bytes before a store."""
    runs = re.split(r"S\w+|\|", " ".join(steps))
    return max(run.split().count("L128") for run in runs)


def faults(name, words, registers, shared):
    """What is wrong with a kernel of this name."""
    found = counts(words)
    if (found["STL"] or found["LDL"]) and not name.startswith(SPILLS):
        yield f"{found['STL']} stores to a thread's own memory and {found['LDL']} loads: registers are spilled"
    if shared > SHARED_MOST:
        yield f"{shared} bytes of fixed shared memory"
    for want in (w for start, w in GATE if name.startswith(start)):
        if registers > want["registers"]:
            yield f"{registers} registers instead of at most {want['registers']}"
        if wide_loads(order(words)) < want.get("wide", 0):
            yield f"{wide_loads(order(words))} loads of 16 bytes before a store instead of {want['wide']}"
        if found["HMMA"] + found["HGMMA"] < want.get("products", 0):
            yield f"{found['HMMA'] + found['HGMMA']} products of tensor cores instead of {want['products']}"


def gate(folder):
    cubins = sorted(pathlib.Path(folder).rglob("*.cubin"))
    wrong, seen = 0, set()
    for path in cubins:
        all_of = list(kernels(path))
        called = plain([k[0] for k in all_of])
        for name, words, registers, shared in all_of:
            seen.update(start for start, _ in GATE if called[name].startswith(start))
            for fault in faults(called[name], words, registers, shared):
                print(f"{path.name}: {called[name]}: {fault}")
                wrong += 1
    there = {path.name.split(".")[0] for path in cubins}
    for start, _ in GATE:
        if {"elements", "rows", "attention_tensor", "attention_tensor_backward"} <= there and start not in seen:
            print(f"no kernel is called {start}...")
            wrong += 1
    print(f"{len(cubins)} files of machine code, {wrong} faults")
    return 1 if wrong else 0 if cubins else 77


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--order", action="store_true")
    args.add_argument("--gate", metavar="FOLDER")
    args.add_argument("cubin", nargs="*", type=pathlib.Path)
    args = args.parse_args()
    if args.gate:
        sys.exit(gate(args.gate))
    for path in args.cubin:
        all_of = list(kernels(path))
        called = plain([k[0] for k in all_of])
        for name, words, registers, shared in all_of:
            what = " ".join(order(words)) if args.order else dict(counts(words).most_common())
            print(len(words), called[name], f"{registers} registers, {shared} bytes shared:", what)


if __name__ == "__main__":
    main()
