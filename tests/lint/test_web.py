"""The scripts of the dashboard are read by a parser: one that cannot be read leaves an empty page."""
import glob
import importlib.util
import json
import os
import shutil
import subprocess

import pytest

WEB = os.path.join(os.path.dirname(__file__), "..", "..", "api", "web")
READ = """
const vm = require('vm'), fs = require('fs');
for (const path of process.argv.slice(1))
    new vm.SourceTextModule(fs.readFileSync(path, 'utf8'), { identifier: path });
"""
SAME = """
const acorn = require('internal/deps/acorn/acorn/dist/acorn');
const tree = (text) => JSON.stringify(acorn.parse(text, { ecmaVersion: 'latest', sourceType: 'module' }),
    (key, v) => (key === 'start' || key === 'end' ? undefined
        : typeof v === 'bigint' || v instanceof RegExp ? String(v) : v));
let text = '';
process.stdin.on('data', (part) => { text += part; }).on('end', () => {
    const other = JSON.parse(text).filter(([, before, after]) => tree(before) !== tree(after));
    process.stdout.write(JSON.stringify(other.map(([name]) => name)));
});
"""
SIZE_MAX = 250_000  # of all scripts and styles of the page, as they are sent

spec = importlib.util.spec_from_file_location("shrink", f"{WEB}/shrink.py")
shrink = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shrink)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def changed(pairs, tmp_path):
    """The names of those programs, [name, before, after], that are not the same in node's parser."""
    node = shutil.which("node")
    if not node:
        pytest.skip("there is no node here to read them")
    compare = tmp_path / "same.js"
    compare.write_text(SAME)
    done = subprocess.run([node, "--expose-internals", str(compare)], input=json.dumps(pairs), capture_output=True,
                          text=True, check=False)
    if "internal/deps" in done.stderr:
        pytest.skip("this node has no parser that gives trees")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_script_can_be_parsed():
    node = shutil.which("node")
    if not node:
        pytest.skip("there is no node here to read them")
    done = subprocess.run([node, "--no-warnings", "--experimental-vm-modules", "-e", READ, *glob.glob(f"{WEB}/*.js")],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_sent_is_the_same_program_as_what_is_read(tmp_path):
    scripts = [*glob.glob(f"{WEB}/*.js"), *glob.glob(f"{WEB}/node_modules/uplot/dist/uPlot.iife.js")]
    assert changed([[path, read(path), shrink.script(read(path))] for path in scripts], tmp_path) == []
    assert changed([["other", "a - 1", "a - 2"]], tmp_path) == ["other"], "the comparison sees a change"


@pytest.mark.parametrize("before, after", [
    ("a = 'it // is' // not", "a='it // is'\n"),
    ('a = "/* x */"; /* y */ b', 'a="/* x */";b\n'),
    ("a = `  // ${ b /* c */ + `  ${d}  ` }  `", "a=`  // ${ b /* c */ + `  ${d}  ` }  `\n"),
    ("a = `${ '}' } // ${ /[`}]/ }`; b", "a=`${ '}' } // ${ /[`}]/ }`;b\n"),
    ("a = /[/*]  \\/'/g; b = 1 / 2 / c", "a=/[/*]  \\/'/g;b=1/2/c\n"),
    ("return /  a/.test(b) / 2", "return/  a/.test(b)/2\n"),
    ("a++ / 2 // half", "a++/2\n"),
    ("a + +b; a - -b; a + ++b", "a+ +b;a- -b;a+ ++b\n"),
    ("a\n  ++b", "a\n++b\n"),
    ("return\n  a", "return\na\n"),
    ("a /* x\n */ b", "a\nb\n"),
    ("a ? .5 : 1 .x", "a? .5:1 .x\n"),
    ("if (a) {\n    b();\n\n    c();\n}", "if(a){b();c();}\n"),
    ("a < !--b; x = a / /b/.c", "a< !--b;x=a/ /b/.c\n"),
])
def test_only_what_parts_nothing_is_left_out(before, after):
    assert shrink.script(before) == after


@pytest.mark.parametrize("before, after", [
    ("a b > c { /* x */ margin : calc(1px + 2px) ; }", "a b > c{margin : calc(1px + 2px)}\n"),
    (".a::after { content: ' /* ; } '; color: red }", ".a::after{content: ' /* ; } ';color: red}\n"),
    ("@media (a) and (b) {\n  a, b { c: d; }\n}", "@media (a) and (b){a,b{c: d}}\n"),
])
def test_a_style_keeps_the_spaces_that_say_something(before, after):
    assert shrink.style(before) == after


def test_the_pages_scripts_and_styles_have_room():
    sizes = {path: len(shrink.script(read(path)).encode()) for path in glob.glob(f"{WEB}/*.js")}
    sizes |= {path: len(shrink.style(read(path)).encode()) for path in glob.glob(f"{WEB}/*.css")}
    sizes |= {path: os.path.getsize(path) for path in glob.glob(f"{WEB}/node_modules/uplot/dist/*.min.*")}
    assert sum(sizes.values()) < SIZE_MAX, sizes
