#!/usr/bin/env python3
"""Make the documentation as a site: build.py OUT

The pages are those of docs/ and one more, rest.md, printed from api/openapi.yaml. mkdocs makes the site of them; a link
that leads nowhere is an error."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
METHODS = ("get", "put", "post", "patch", "delete")
LINE = 100
DEPTH_MAX = 4  # of the bodies shown; what is deeper is in the schema


def one_line(text):
    return re.sub(r"\s+", " ", str(text or "")).strip().replace("|", "\\|")


class Rest:
    """The page on the REST interface."""

    def __init__(self, api):
        self.api, self.out = api, []

    def get(self, node):
        """What a $ref stands for."""
        while "$ref" in node:
            name = node["$ref"]
            node = self.api
            for part in name[2:].split("/"):
                node = node[part]
        return node

    def kind(self, schema):
        schema = self.get(schema)
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            return " or ".join(dict.fromkeys(self.kind(s) for s in choices))
        if "enum" in schema:
            return "one of " + ", ".join(f"`{v}`" for v in schema["enum"] if v is not None)
        kinds = schema.get("type", "any")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        limits = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
        return " ".join([" or ".join(kinds), *limits])

    def example(self, schema, depth=0):
        """A small value of this form: what is required, and one element of each list."""
        if schema.get("$ref") == "#/components/schemas/Spec":
            return {"name": "hello", "command": {"argv": ["echo", "hello"]}}
        schema = self.get(schema)
        for key in ("example", "default", "const"):
            if key in schema:
                return schema[key]
        if schema.get("examples"):
            return schema["examples"][0]
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self.example(schema[key][0], depth)
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kind = kind if isinstance(kind, str) else next(k for k in kind if k != "null")
        if kind == "object":
            if depth == DEPTH_MAX:
                return {}
            needed = schema.get("required") or list(schema.get("properties", {}))[:1]
            return {k: self.example(schema["properties"][k], depth + 1) for k in needed
                    if k in schema.get("properties", {})}
        if kind == "array":
            return [self.example(schema["items"], depth + 1)] if "items" in schema and depth < DEPTH_MAX else []
        return {"integer": schema.get("minimum", 1), "number": schema.get("minimum", 1), "boolean": True,
                "null": None}.get(kind, "…")

    def curl(self, method, path, body):
        words = ["curl -sS"]
        if method != "get":
            words.append(f"-X {method.upper()}")
        words.append('-H "Authorization: Bearer $MUSTER_TOKEN"')
        if body is not None:
            text = json.dumps(body, ensure_ascii=False).replace("'", "'\\''")
            words += ["-H 'Content-Type: application/json'", f"-d '{text}'"]
        address = re.sub(r"\{(\w+)\}", lambda m: {"id": "j1"}.get(m.group(1), m.group(1).upper()), path)
        words.append(f'"$MUSTER_SERVER{address}"')
        line = " ".join(words)
        return line if len(line) <= LINE else " \\\n  ".join([" ".join(words[:-3]), *words[-3:]])

    def operation(self, path, shared, method, op):
        say = self.out.append
        say(f"### {method.upper()} {path}\n\n{one_line(op.get('summary'))}.\n")
        if op.get("description"):
            say(op["description"].strip() + "\n")
        body = None
        for form, content in self.get(op.get("requestBody", {})).get("content", {}).items():
            if form == "application/json":
                body = op.get("x-example", self.example(content["schema"]))
        answers = op["responses"].items()
        stream = any("text/event-stream" in self.get(r).get("content", {}) for _, r in answers)
        say(f"```\n{self.curl(method, path, body)}\n```\n")
        if stream:
            say("Followed as it grows with `-N -H 'Accept: text/event-stream'`.\n")
        parameters = [self.get(p) for p in [*shared, *op.get("parameters", [])]]
        if parameters:
            say("| parameter | in | form | meaning |\n|---|---|---|---|")
            for p in parameters:
                needed = ", required" if p.get("required") and p["in"] != "path" else ""
                say(f"| `{p['name']}` | {p['in']}{needed} | {one_line(self.kind(p['schema']))} | "
                    f"{one_line(p.get('description'))} |")
            say("")
        say("| answer | meaning |\n|---|---|")
        for status, answer in answers:
            say(f"| {status if status != 'default' else 'other'} | {one_line(self.get(answer).get('description'))} |")
        say("")

    def page(self):
        info = self.api["info"]
        self.out = ["# REST\n", info["description"].strip() + "\n",
                    "`$MUSTER_SERVER` is the server's address, `http://127.0.0.1:7717` where nothing else was said, "
                    "and `$MUSTER_TOKEN` a token: `muster token create USER` makes one. The whole interface with all "
                    "its fields is [openapi.yaml](files/openapi.yaml), which each server serves as `/openapi.yaml`.\n"]
        for tag in self.api["tags"]:
            self.out.append(f"## {tag['name']}\n\n{one_line(tag['description'])}\n")
            for path, item in self.api["paths"].items():
                for method in METHODS:
                    if method in item and tag["name"] in item[method].get("tags", []):
                        self.operation(path, item.get("parameters", []), method, item[method])
        return "\n".join(self.out)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: build.py OUT")
    to = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as pages:
        for name in os.listdir(f"{ROOT}/docs"):
            if name.endswith(".md"):
                shutil.copy(f"{ROOT}/docs/{name}", pages)
        shutil.copytree(f"{ROOT}/docs/images", f"{pages}/images")
        os.mkdir(f"{pages}/files")
        shutil.copy(f"{ROOT}/api/openapi.yaml", f"{pages}/files/openapi.yaml")
        with open(f"{ROOT}/api/openapi.yaml", encoding="utf-8") as f:
            api = yaml.safe_load(f)
        with open(f"{pages}/rest.md", "w", encoding="utf-8") as f:
            f.write(Rest(api).page())
        env = dict(os.environ, MUSTER_DOCS_FROM=pages, MUSTER_DOCS_TO=f"{to}.new")
        subprocess.run(["mkdocs", "build", "--quiet", "--strict", "--config-file", f"{HERE}/mkdocs.yml"], env=env,
                       check=True)
    for name in ("sitemap.xml", "sitemap.xml.gz"):  # their dates change with each build, and nobody asks for them
        os.remove(f"{to}.new/{name}")
    shutil.rmtree(to, ignore_errors=True)
    os.rename(f"{to}.new", to)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as e:
        sys.exit(f"docs: mkdocs ended with {e.returncode}; what it found is above")
    except FileNotFoundError as e:
        sys.exit(f"docs: '{e.filename}' is missing; `make deps-docs` installs what the site takes")
