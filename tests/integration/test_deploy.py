"""make install, the units, the container's package list and the alert rules, checked against what is really built."""
import glob
import json
import os
import re
import subprocess

import jsonschema
import pytest
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    dest = str(tmp_path_factory.mktemp("dest"))
    subprocess.run(["make", "-s", "install", f"DESTDIR={dest}", "PREFIX=/usr"], cwd=ROOT, check=True,
                   capture_output=True)
    return dest


def test_install_lays_out_programs_man_page_completion_and_units(installed):
    for path in ("usr/bin/musterd", "usr/bin/muster-agent", "usr/bin/muster-helper", "usr/bin/muster-train",
                 "usr/bin/muster",
                 "usr/share/man/man1/muster.1", "usr/share/bash-completion/completions/muster",
                 "usr/share/zsh/site-functions/_muster", "usr/share/fish/vendor_completions.d/muster.fish",
                 "lib/systemd/system/musterd.service", "lib/systemd/system/muster-agent.service",
                 "usr/lib/sysusers.d/muster.conf", "usr/lib/muster/libmuster.so", "usr/include/muster.h",
                 "usr/lib/muster/python/muster/__init__.py"):
        assert os.path.getsize(os.path.join(installed, path)) > 0, path
    assert subprocess.run([os.path.join(installed, "usr/bin/muster"), "--version"], capture_output=True,
                          text=True, check=True).stdout.startswith("muster 0.")


def test_nothing_installed_names_the_build_or_the_destination(installed):
    for folder, _, names in os.walk(installed):
        for name in names:
            path = os.path.join(folder, name)
            if "/bin/" in path or "/lib/muster/" in path:
                continue  # debug information names sources
            with open(path, "rb") as f:
                text = f.read()
            assert installed.encode() not in text and ROOT.encode() + b"/" not in text, path


def test_the_units_verify(installed):
    for unit in ("musterd", "muster-agent"):
        with open(os.path.join(installed, f"lib/systemd/system/{unit}.service"), encoding="utf-8") as f:
            text = f.read()
        assert "@PREFIX@" not in text
        # systemd-analyze looks for the program on this machine: point it at the one just installed. The user is made
        # by the sysusers file, which needs a running system.
        text = text.replace("/usr/bin/", f"{installed}/usr/bin/")
        path = os.path.join(installed, f"{unit}.service")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        out = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
        faults = [line for line in out.stderr.splitlines() if unit in line and "muster:" not in line]
        assert out.returncode == 0 and not faults, out.stderr


@pytest.mark.parametrize("unit, most", [("musterd", 1.6), ("muster-agent", 4.7)])
def test_the_units_are_hardened(installed, unit, most):
    """Each as docs/operations.md says."""
    path = os.path.join(installed, f"lib/systemd/system/{unit}.service")
    out = subprocess.run(["systemd-analyze", "security", "--offline=true", path], capture_output=True, text=True)
    level = re.search(r"exposure level for .*: ([0-9.]+)", out.stdout)
    assert level, out.stdout + out.stderr
    assert float(level.group(1)) <= most, out.stdout


def test_the_image_is_built_from_sources_alone():
    """What was built on this machine would be taken for what the image's own compiler made."""
    def names(path):
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            return {line.strip().strip("/").removeprefix("**/") for line in f if line.strip() and line[0] != "#"}
    assert names(".gitignore") <= names(".dockerignore")


def test_the_container_has_every_library_the_programs_need(installed):
    with open(os.path.join(ROOT, "deploy/container/Containerfile"), encoding="utf-8") as f:
        containerfile = f.read()
    needed = set()
    for program in ("musterd", "muster-agent", "muster-helper", "muster-train", "muster"):
        out = subprocess.run(["readelf", "-d", os.path.join(installed, "usr/bin", program)], capture_output=True,
                             text=True, check=True).stdout
        needed |= set(re.findall(r"NEEDED.*\[(.+)\]", out))
    for library in sorted(needed):
        owner = subprocess.run(["dpkg", "-S", f"*/{library}"], capture_output=True, text=True).stdout
        packages = {line.split(":")[0] for line in owner.splitlines()}
        assert packages, library
        base = {"libc6", "libgcc-s1", "libgomp1", "libstdc++6"}  # in the image, or needed by what is named
        assert packages & base or any(re.search(rf"\b{re.escape(p)}\b", containerfile) for p in packages), \
            f"{library} comes from {packages}, which the Containerfile does not install"


def stages():
    """Names of the Containerfile's stages in order, each with its instructions."""
    with open(os.path.join(ROOT, "deploy/container/Containerfile"), encoding="utf-8") as f:
        text = re.sub(r"^#.*\n", "", f.read(), flags=re.M).replace("\\\n", " ")
    found = []
    for line in filter(str.strip, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            source, _, name = rest.partition(" AS ")
            found.append((name, source, []))
        elif found:
            found[-1][2].append((word, rest))
    return found


def test_each_stage_of_the_image_takes_from_one_before_it():
    seen = []
    for name, source, instructions in stages():
        assert source in seen or ":" in source or source == "${CUDA_IMAGE}", source
        for word, rest in instructions:
            for other in re.findall(r"(?:--from=|,from=)([\w-]+)", rest):
                assert other in seen, f"{word} {rest}: no stage '{other}' before it"
        seen.append(name)
    assert seen[-1] == ""  # what is built when no target is named


def test_the_image_for_gpus_has_the_library_and_what_it_loads():
    by_name = {name: instructions for name, _, instructions in stages()}
    built = " ".join(rest for _, rest in by_name["build-cuda"])
    with open(os.path.join(ROOT, "compress/cuda_library.c"), encoding="utf-8") as f:
        source = f.read()
    assert "/usr/local/cuda{,-*}/" in source  # where the image puts them
    for soname in re.findall(r'cuda_library_\w+\[\] = \{"(lib\w+)\.so', source):
        assert f"{soname}*.so" in built or f"{soname}.so" in built, soname
    assert "muster-cuda.so" in built
    copies = [rest for word, rest in by_name["cuda"] if word == "COPY"]
    assert copies == ["--from=build-cuda /out/usr /usr"], copies
    assert any("NVIDIA_DRIVER_CAPABILITIES=compute,utility" in rest for word, rest in by_name["cuda"] if word == "ENV")


def check_metrics(expression, what):
    """It asks for metrics that the server exports."""
    source = ""
    for path in glob.glob(os.path.join(ROOT, "server", "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as f:
            source += f.read()
    for metric in re.findall(r"\bmuster_[a-z_]+", expression):
        stem = re.sub(r"_(bucket|sum|count)$", "", metric)
        assert stem in source, f"{what} asks for {metric}, which the server does not export"


def test_the_alerts_use_metrics_that_exist():
    with open(os.path.join(ROOT, "deploy/prometheus/alerts.yml"), encoding="utf-8") as f:
        rules = [rule for group in yaml.safe_load(f)["groups"] for rule in group["rules"]]
    assert len(rules) >= 5
    for rule in rules:
        assert rule["annotations"]["summary"] and rule["labels"]["severity"] in ("warning", "critical")
        check_metrics(rule["expr"], rule["alert"])


POSITION = {"type": "object", "required": ["x", "y", "w", "h"], "additionalProperties": False,
            "properties": {k: {"type": "integer", "minimum": least, "maximum": most}
                           for k, least, most in (("x", 0, 23), ("y", 0, 999), ("w", 1, 24), ("h", 1, 99))}}
TARGET = {"type": "object", "required": ["refId", "expr", "datasource"],
          "properties": {"refId": {"pattern": "^[A-Z]$"}, "expr": {"type": "string", "minLength": 1}}}
PANEL = {"type": "object", "required": ["id", "type", "title", "gridPos"],
         "properties": {"id": {"type": "integer", "minimum": 1}, "type": {"enum": ["row", "stat", "timeseries"]},
                        "title": {"type": "string", "minLength": 1}, "gridPos": POSITION,
                        "targets": {"type": "array", "minItems": 1, "items": TARGET}}}
DASHBOARD = {"type": "object", "required": ["title", "uid", "schemaVersion", "panels", "templating", "time"],
             "properties": {"uid": {"type": "string", "maxLength": 40},
                            "schemaVersion": {"type": "integer", "minimum": 36},
                            "panels": {"type": "array", "minItems": 10, "items": PANEL}}}


def test_the_dashboard_of_grafana_is_one_and_asks_for_metrics_that_exist():
    """By the fields that Grafana's own documentation of the model names; it is as its table prints it."""
    with open(os.path.join(ROOT, "deploy/grafana/muster.json"), encoding="utf-8") as f:
        text = f.read()
    printed = subprocess.run(["/usr/bin/python3", f"{ROOT}/deploy/grafana/make.py"], capture_output=True, text=True,
                             check=True).stdout
    assert text == printed, "run deploy/grafana/make.py > deploy/grafana/muster.json"
    dashboard = json.loads(text)
    jsonschema.validate(dashboard, DASHBOARD)
    panels, taken = dashboard["panels"], set()
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", []):
            assert "muster_" in target["expr"]
            check_metrics(target["expr"], panel["title"])
            assert target["expr"].count("(") == target["expr"].count(")"), target["expr"]
            assert set(re.findall(r"\$\{(\w+)\}", json.dumps(target))) <= variables
