#!/usr/bin/python3
"""Makes the tokenizer's vectors beside this file with a byte-level BPE of its own, as plain as it can be.

    python3 tests/unit/worker/tokenizer/make_vectors.py

A small vocabulary is trained here; vectors.json then holds texts and what each rule of cutting words makes of them.
"""
import collections
import json
import pathlib
import random
import re
import sys
import unicodedata

HERE = pathlib.Path(__file__).parent
TRAINING = """The quick brown fox jumps over the lazy dog. It's what they've done; we'll see, I'm sure you'd say.
In 1984 and 2024 there were 1234567 ways to do it, and some of those were better than the others.
    def f(x):
        return x + 1  # the function returns the next number
Über die Brücke gehen größere Häuser; l'été à la mer, déjà vu. Привет, мир! Как дела? 你好，世界。 こんにちは世界
""" * 3


def charclass(*kinds):
    cells, begin = [], None
    for c in range(sys.maxunicode + 2):
        inside = c <= sys.maxunicode and unicodedata.category(chr(c))[0] in kinds
        if inside and begin is None:
            begin = c
        if not inside and begin is not None:
            cells.append(f"\\U{begin:08x}-\\U{c - 1:08x}")
            begin = None
    return "".join(cells)


SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
L, N = charclass("L"), charclass("N")
TAIL = rf"|[{SPACE}]+(?![^{SPACE}])|[{SPACE}]+"
CL100K = (rf"'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n{L}{N}]?[{L}]+|[{N}]%s"
          rf"| ?[^{SPACE}{L}{N}]+[\r\n]*|[{SPACE}]*[\r\n]+" + TAIL)
RULES = {
    "gpt2": re.compile(rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{L}]+| ?[{N}]+| ?[^{SPACE}{L}{N}]+" + TAIL),
    "llama3": re.compile(CL100K % "{1,3}"),
    "qwen2": re.compile(CL100K % ""),
}


def alphabet():
    shown = [*range(33, 127), *range(0xa1, 0xad), *range(0xae, 0x100)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


MASK = alphabet()


def merge(word, pair):
    out, i = [], 0
    while i < len(word):
        if tuple(word[i:i + 2]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def train(text, rule, count):
    words = collections.Counter(RULES[rule].findall(text))
    split = {w: [bytes([b]) for b in w.encode()] for w in words}
    merges = []
    while len(merges) < count:
        pairs = collections.Counter()
        for w, n in words.items():
            for pair in zip(split[w], split[w][1:]):
                pairs[pair] += n
        if not pairs or max(pairs.values()) < 2:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        split = {w: merge(s, best) for w, s in split.items()}
    return merges


def encode(text, rule, merges, vocab, special):
    out = []
    for part in re.split("(" + "|".join(map(re.escape, special)) + ")", text):
        if part in special:
            out.append(special[part])
            continue
        for word in RULES[rule].findall(part):
            symbols = [bytes([b]) for b in word.encode()]
            while len(symbols) > 1:
                best = min(zip(symbols, symbols[1:]), key=lambda p: merges.get(p, len(merges)))
                if best not in merges:
                    break
                symbols = merge(symbols, best)
            out += [vocab[s] for s in symbols]
    return out


def texts(rng):
    fixed = ["", " ", "a", "\n", "\n\n", "  a", " \n a", "a  ", "\r\n\r\nx", "it's IT'S we'll We'Ll 'ſ 'tis 'x",
             "1234567 12 3½ ²", "hello<|endoftext|>there", "<|endoftext|>", "<|endoftext", "tab\tand  two",
             "\u00a0nbsp\u3000wide", "e\u0301", "😀 emoji👍🏽!", "日本語のテキスト", "   \n\t  end", "a" * 300, "(x)",
             " (x)\n\n", "!!\r\n", "x\u0085y", "…—–", "ⅣⅤ ٣٤"]
    drawn = "  \n\r\tabcdeß'sSſtTrReEvVmMlLdD0123½²Ⅳ.,!?-_()#éüПр你好。😀\u00a0\u2003\u0301\x1c" + TRAINING[:400]
    random_ones = ["".join(rng.choice(drawn) for _ in range(rng.randint(1, 60))) for _ in range(400)]
    return fixed + random_ones


def main():
    merges = train(TRAINING, "gpt2", 300)
    tokens = [bytes([b]) for b in range(256)]
    for a, b in merges:
        if a + b not in tokens:
            tokens.append(a + b)
    vocab = {t: i for i, t in enumerate(tokens)}
    special = {"<|endoftext|>": len(tokens)}
    masked = {"".join(MASK[b] for b in t): i for t, i in vocab.items()}
    lines = [" ".join("".join(MASK[b] for b in t) for t in pair) for pair in merges]
    ranks = {pair: i for i, pair in reversed(list(enumerate(merges)))}
    (HERE / "vocab.json").write_text(json.dumps({**masked, **special}, ensure_ascii=False))
    (HERE / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
    vectors = []
    for text in texts(random.Random(7)):
        vectors.append({"text": text, **{r: encode(text, r, ranks, vocab, special) for r in RULES}})
    (HERE / "vectors.json").write_text("[\n" + ",\n".join(json.dumps(v, ensure_ascii=False) for v in vectors) + "\n]\n")


main()
