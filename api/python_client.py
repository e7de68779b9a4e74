#!/usr/bin/env python3
"""Write the parts of the Python package that follow from api/openapi.yaml: a method for each route that people call,
in muster/_routes.py, and a type for each document, in muster/types.py, muster/spec_types.py and muster/node_types.py.

    api/python_client.py api/openapi.yaml api/python/muster
"""
import keyword
import re
import sys
import textwrap

import yaml

PARTS = ("Spec", "Node")  # schemas with files of their own
HEAD = '"""{}.\n\nWritten by `make openapi` from api/openapi.yaml.\n"""\n'
LEFT_OUT = ("/v1/agents/", "/v1/bundles/", "/assets/", "/openapi.yaml", "/docs")  # of agents, `submit` and browsers
SIMPLE = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "null": "None"}
STREAMED = ("Last-Event-ID", "Idempotency-Key", "changes", "follow")  # of streams, and of every submit


def snake(name):
    return re.sub(r"(?<=[a-z])([A-Z])", lambda m: "_" + m[1].lower(), name)


def argument(name):
    name = snake(re.sub(r"\W+", "_", name).strip("_")).lower()
    return name + "_" if keyword.iskeyword(name) else name


TYPING = "from __future__ import annotations\n\nfrom typing import Any, Dict, List, Literal, TypedDict, Union\n\n"
IMPORTS = '''from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Optional, cast

from ._http import Transport, quote

if TYPE_CHECKING:
    from typing import Dict, List, Literal, Union

    from .types import *  # pylint: disable=wildcard-import,unused-wildcard-import


def new_key() -> str:
    return uuid.uuid4().hex
'''


def union(kinds):
    flat = []
    for kind in kinds:
        flat += kind[6:-1].split(", ") if kind.startswith("Union[") and kind.count("[") == 1 else [kind]
    flat = list(dict.fromkeys(flat))
    return flat[0] if len(flat) == 1 else f"Union[{', '.join(flat)}]"


class Types:
    """Types of JSON schemas; those of objects are classes, named by where they stand."""

    def __init__(self, schemas):
        self.schemas, self.classes, self.aliases = schemas, [], []
        for name, schema in schemas.items():
            if self.is_class(schema):
                self.of(schema, name)
            else:
                self.aliases.append(f"{name} = {self.of(schema, name)}")

    @staticmethod
    def is_class(schema):
        return bool(schema.get("properties"))

    def of(self, schema, name):
        """Its type, as an annotation in quotes where that may not be there yet."""
        if "$ref" in schema:
            return schema["$ref"].split("/")[-1]
        if "const" in schema:
            return f"Literal[{schema['const']!r}]"
        if "enum" in schema:
            return f"Literal[{', '.join(repr(v) for v in schema['enum'])}]"
        many = schema.get("oneOf") or schema.get("anyOf")
        if many and not self.is_class(schema):
            return union(self.of(one, f"{name}{i}") for i, one in enumerate(many, 1))
        kind = schema.get("type")
        if isinstance(kind, list):
            return union(self.of({**schema, "type": one}, name) for one in kind)
        if kind == "object" or self.is_class(schema):
            if self.is_class(schema):
                return self.add(schema, name)
            more = schema.get("additionalProperties")
            return f"Dict[str, {self.of(more, name + 'Value') if isinstance(more, dict) and more else 'Any'}]"
        if kind == "array":
            return f"List[{self.of(schema.get('items') or {}, name + 'Item')}]"
        return SIMPLE.get(kind, "Any")

    def add(self, schema, name):
        if any(name == known for known, _ in self.classes):
            return name
        self.classes.append((name, ""))
        at = len(self.classes) - 1
        fields = {key: self.of(value or {}, name + re.sub(r"\W", "", key.title().replace("_", "")))
                  for key, value in schema["properties"].items()}
        if all(key.isidentifier() and not keyword.iskeyword(key) for key in fields):
            text = f"class {name}(TypedDict, total=False):\n"
            text += "".join(f"    {key}: {kind}\n" for key, kind in fields.items())
        else:
            text = f"{name} = TypedDict({name!r}, {{\n"
            text += "".join(f"    {key!r}: {kind!r},\n" for key, kind in fields.items()) + "}, total=False)\n"
        self.classes[at] = (name, text)
        return name

    def text(self, part):
        """The file of a job spec's types, of a node's, or of all others (None)."""
        about = {"Spec": "A job spec", "Node": "A node",
                 None: "The documents of Muster's REST surface. Every field may be missing"}
        head = HEAD.format(about[part]) + TYPING
        if not part:
            head += "".join(f"from .{name.lower()}_types import {name} as {name}\n" for name in sorted(PARTS))
            head += "\n" + "\n".join(self.aliases) + "\n"
        return head + "\n\n" + "\n\n".join(
            text for name, text in self.classes if next((p for p in PARTS if name.startswith(p)), None) == part)


def used(page):
    """The schemas of what people call."""
    schemas, found = page["components"]["schemas"], {}
    text = yaml.safe_dump([{path: item for path, item in page["paths"].items() if not path.startswith(LEFT_OUT)},
                           page["components"]["responses"]])
    while new := [name for name in schemas if name not in found and f"#/components/schemas/{name}'" in
                  text.replace("\n", "'\n")]:
        found.update({name: schemas[name] for name in new})
        text = yaml.safe_dump([schemas[name] for name in new])
    return {name: schemas[name] for name in schemas if name in found}


def resolve(page, value):
    while "$ref" in value:
        at = page
        for part in value["$ref"].split("/")[1:]:
            at = at[part]
        value = at
    return value


def answer_of(page, operation, types):
    """The type of a call's answer."""
    kinds = []
    for status, response in operation["responses"].items():
        content = resolve(page, response).get("content") or {}
        if str(status).startswith("2") and content:
            schema = content.get("application/json", {}).get("schema")
            name = operation["operationId"][0].upper() + operation["operationId"][1:] + "Answer"
            kinds.append(types.of(schema, name) if schema else "str")
    return union(kinds or ["None"])


def methods(page, types):
    for path, item in page["paths"].items():
        if path == "/" or path.startswith(LEFT_OUT):
            continue
        for verb in ("get", "post", "put", "patch", "delete"):
            if verb in item:
                yield method(page, types, path, verb, item, item[verb])


def method(page, types, path, verb, item, operation):
    """Its name, arguments, answer's type, words, and the arguments of the call."""
    parameters = [resolve(page, p) for p in (item.get("parameters") or []) + (operation.get("parameters") or [])]
    name = snake(operation["operationId"])
    arguments, keywords, query, headers = [], [], [], []
    for parameter in parameters:
        schema, called = parameter.get("schema") or {}, argument(parameter["name"])
        kind = types.of(schema, "Unused")
        if parameter["in"] == "path":
            arguments.append(f"{called}: {kind}")
        elif parameter["name"] not in STREAMED:
            keywords.append(f"{called}: Optional[{kind}] = None")
            (query if parameter["in"] == "query" else headers).append(f"{parameter['name']!r}: {called}")
    body = resolve(page, operation["requestBody"])["content"]["application/json"]["schema"] \
        if "requestBody" in operation else None
    if body:
        kind = types.of(body, operation["operationId"][0].upper() + operation["operationId"][1:] + "Body")
        kind = "Any" if kind.endswith("Spec") else kind
        if resolve(page, operation["requestBody"]).get("required"):
            arguments.append(f"body: {kind}")
        else:
            keywords.append(f"body: Optional[{kind}] = None")
    keyed = any(p["name"] == "Idempotency-Key" for p in parameters)
    if keyed:
        keywords.append("key: Optional[str] = None")
        headers.append("'Idempotency-Key': key or new_key()")
    once = verb == "delete" or (verb == "post" and not keyed and "201" in map(str, operation["responses"]))
    parts = re.sub(r"\{(\w+)\}", lambda m: "{quote(" + argument(m[1]) + ")}", path)
    call = [repr(verb.upper()), f'f"{parts}"' if "{" in parts else repr(parts)]
    call += [f"query={{{', '.join(query)}}}"] if query else []
    call += ["body=body"] if body else []
    call += [f"headers={{{', '.join(headers)}}}"] if headers else []
    call += ["again=False"] if once else []
    signature = ", ".join(["self", *arguments, *(["*", *keywords] if keywords else [])])
    words = f"{verb.upper()} {path}: {' '.join(operation.get('summary', '').split())}"
    return name, signature, answer_of(page, operation, types), words, ", ".join(call)


def folded(text):
    """Lines of at most 120 letters, broken behind commas, which all stand within brackets."""
    out = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 8)
        while len(line) > 120:
            at = line.rfind(", ", 0, 117)
            if at <= len(indent):
                break
            within = line[:at].count('"') % 2  # of a text, which two texts beside each other are, too
            out.append(line[:at + 1] + (' "' if within else ""))
            line = indent + ('"' if within else "") + line[at + 2:]
        out.append(line)
    return "\n".join(out) + "\n"


def routes(found):
    text = HEAD.format("A method for each route of Muster's REST surface")
    text += IMPORTS
    for name, form in (("Routes", ""), ("AsyncRoutes", "async ")):
        text += f"\n\nclass {name}:\n"
        text += '    """Each call is made again while the server is busy or away, where that does no harm."""\n'
        text += "    _transport: Transport\n" if not form else ""
        if form:
            text += "\n    async def _call(self, method: str, path: str, **more: Any) -> Any:\n"
            text += "        raise NotImplementedError\n"
        for call, signature, answer, words, arguments in found:
            text += "\n" + f"    {form}def {call}({signature}) -> {answer}:\n"
            text += textwrap.indent(textwrap.fill(f'"""{words}."""', 110, break_long_words=False), " " * 8) + "\n"
            send = "await self._call(" if form else "self._transport.call("
            text += f"        {send}{arguments})\n" if answer == "None" else \
                f"        return cast({answer!r}, {send}{arguments}))\n"
    return text


def main():
    source, folder = sys.argv[1:]
    with open(source, encoding="utf-8") as f:
        page = yaml.load(f, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    types = Types(used(page))
    found = list(methods(page, types))
    pages = {"_routes.py": routes(found), "types.py": types.text(None)}
    pages.update({f"{part.lower()}_types.py": types.text(part) for part in PARTS})
    for name, text in pages.items():
        with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
            f.write(folded(text))


if __name__ == "__main__":
    main()
