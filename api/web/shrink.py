"""Leave out of a script or a style sheet what only people read: comments, indentation, spaces that part nothing.

Strings, templates and regular expressions stay as they are, and so does every end of a line between two statements: no
semicolon is made or needed. tests/lint/test_web.py compares the
syntax trees of before and after.
"""
import re

SCRIPT = re.compile(r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")
  | (?P<space>[ \t\r]+)
  | (?P<line>\n)
  | (?P<word>[\w$\u0080-\U0010ffff]+)
  | (?P<sign>\+\+|--|=>|.)
""", re.X | re.S)
REGEX = re.compile(r"/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
WORDS_BEFORE_A_REGEX = {"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "do", "else",
                        "instanceof", "yield", "await"}
STYLE = re.compile(r"""
    (?P<comment>/\*.*?\*/)
  | (?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
  | (?P<space>\s+)
  | (?P<other>.)
""", re.X | re.S)


def template_end(text, at):
    """Behind the template that begins at `at`; those within its `${}` are passed over with it."""
    at += 1
    while text[at] != "`":
        if text[at] == "\\":
            at += 2
        elif text.startswith("${", at):
            at = brace_end(text, at + 2)
        else:
            at += 1
    return at + 1


def brace_end(text, at):
    """Behind the `}` that ends what stands in a template's `${}`."""
    depth, before = 1, "{"
    while depth:
        kind, end = token(text, at, before)
        piece = text[at:end]
        depth += (piece == "{") - (piece == "}")
        if kind not in ("space", "comment", "line"):
            before = piece
        at = end
    return at


def token(text, at, before):
    """The kind and the end of what begins at `at`; before: the last word or sign."""
    if text[at] == "`":
        return "string", template_end(text, at)
    is_value = before in ("++", "--") or (before not in WORDS_BEFORE_A_REGEX and
                                          re.match(r"[\w$)\]}'\"`/]", before[-1:]))
    if text[at] == "/" and not is_value:
        found = REGEX.match(text, at)
        if found:
            return "string", found.end()
    found = SCRIPT.match(text, at)
    if found.lastgroup == "sign" and found[0] in "'\"":
        raise ValueError(f"a string without an end: {text[at:at + 40]!r}")
    return found.lastgroup, found.end()


def parted(left, right):
    """Whether two pieces would be another program without a space between them."""
    def is_word(c):
        return c.isalnum() or c in "_$" or c > "\x7f"
    return (is_word(left) and is_word(right)) or (left == right and left in "+-/&|") or \
        (left.isdigit() and right == ".") or left + right in ("/*", "//", "*/", "<!", "?.", "->")


def script(text):
    out, at, before, gap = [], 0, "", ""
    while at < len(text):
        kind, end = token(text, at, before)
        piece = text[at:end]
        at = end
        if kind in ("comment", "space", "line"):
            gap = "\n" if "\n" in piece or gap == "\n" else " "
            continue
        if gap == "\n" and before and before not in "{,;(":
            out.append("\n")
        elif gap and before and parted(before[-1], piece[0]):
            out.append(" ")
        out.append(piece)
        before, gap = piece, ""
    return "".join(out) + "\n"


def style(text):
    out, gap = [], False
    for found in STYLE.finditer(text):
        if found.lastgroup in ("comment", "space"):
            gap = True
            continue
        last = out[-1][-1] if out else "{"
        if gap and not (last in "{};," or found[0] in "{},;"):
            out.append(" ")
        if found[0] == "}" and last == ";" and len(out[-1]) == 1:
            out.pop()
        out.append(found[0])
        gap = False
    return "".join(out) + "\n"
