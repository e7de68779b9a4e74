"""The documentation as a site: built whole, served by musterd, searched in a browser, true where it lists things."""
import glob
import os
import re
import subprocess

import pytest
import requests

from tests.cluster import ROOT, Cluster
from tests.e2e.browser import Page
from tests.patience import PATIENCE_S

LIMITS = {  # a row of the table of limits: the header and the constant that hold it
    "a spec": ("api/spec.h", "SPEC_TEXT_MAX"),
    "faults of a spec reported at once": ("api/spec.h", "SPEC_FAULTS_MAX"),
    "jobs that have not ended": ("server/control/table.h", "TABLE_JOBS_MAX"),
    "tasks of an array": ("api/spec_array.h", "SPEC_TASKS_MAX"),
    "jobs that one comes after": ("api/spec.h", "SPEC_AFTER_MAX"),
    "ranks of a training job": ("scheduler/plan/layout.h", "PLAN_RANKS_MAX"),
    "ranks of a command that share a device": ("api/spec.h", "SPEC_RANKS_MAX"),
    "labels of a job": ("api/spec.h", "SPEC_LABELS_MAX"),
    "a time limit": ("api/spec.h", "SPEC_TIME_S_MAX"),
    "nodes": ("server/cluster/cluster.h", "CLUSTER_NODES_MAX"),
    "devices of a node": ("server/cluster/slots.h", "SLOTS_MAX"),
    "device classes of a cluster": ("server/cluster/classes.h", "CLASSES_MAX"),
    "tokens of people": ("server/control/auth.h", "AUTH_TOKENS_MAX"),
    "members of a project": ("server/cluster/project.h", "PROJECT_MEMBERS_MAX"),
    "streams that are followed": ("server/control/events.h", "EVENTS_FOLLOWERS_MAX"),
    "files of an upload": ("api/bundle.h", "BUNDLE_FILES_MAX"),
    "uploads of a user": ("server/store/bundle_store.h", "BUNDLE_STORE_MAX"),
    "incidents kept of a job": ("api/protocol/incident.h", "INCIDENTS_MAX"),
    "body of a request of people": ("server/http/http.h", "HTTP_BODY_MAX"),
    "body of an agent's report": ("server/http/http.h", "HTTP_AGENT_BODY_MAX"),
}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def section(page, title):
    return read(page).split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = str(tmp_path_factory.mktemp("site") / "docs")
    built = subprocess.run(["/usr/bin/python3", f"{ROOT}/docs/site/build.py", out], capture_output=True, text=True,
                           timeout=PATIENCE_S, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return out


@pytest.fixture(scope="module")
def cluster(site, tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("docs")), slots=1, server_args=["--docs", site]) as made:
        yield made


def test_each_page_of_docs_is_in_the_site_and_in_its_list(site):
    with open(f"{site}/index.html", encoding="utf-8") as f:
        first = f.read()
    for path in glob.glob(f"{ROOT}/docs/*.md"):
        name = os.path.basename(path)[:-3]
        assert os.path.exists(f"{site}/{name}.html"), name
        assert f'href="{name}.html"' in first, f"{name} is in no list: docs/site/mkdocs.yml"
    for page in glob.glob(f"{site}/*.html"):
        with open(page, encoding="utf-8") as f:
            assert not re.findall(r'(?:src|href)="https?:', f.read()), f"{page} needs another host"


def test_the_server_shows_it_to_everybody_and_nothing_else_of_its_disk(cluster, site):
    first = requests.get(f"{cluster.url}/docs", timeout=PATIENCE_S)
    assert first.url.endswith("/docs/index.html") and "first job run" in first.text
    assert "script-src 'self';" in first.headers["Content-Security-Policy"]
    again = requests.get(first.url, headers={"If-None-Match": first.headers["ETag"]}, timeout=PATIENCE_S)
    assert again.status_code == 304
    with open(f"{site}/search/search_index.json", "rb") as f:
        assert requests.get(f"{cluster.url}/docs/search/search_index.json", timeout=PATIENCE_S).content == f.read()
    for path in ("/docs/none.html", "/docs/..%2ftoken", "/docs/images/..%2f..%2ftoken", "/docs/images", "/docs/%00"):
        answer = requests.get(f"{cluster.url}{path}", timeout=PATIENCE_S)
        assert answer.status_code in (400, 404), path


def test_a_server_without_it_says_how_it_is_made(tmp_path):
    os.mkdir(tmp_path / "none")
    with Cluster(str(tmp_path / "c"), slots=0, server_args=["--docs", str(tmp_path / "none")]) as made:
        answer = requests.get(f"{made.url}/docs/index.html", timeout=PATIENCE_S)
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:muster:problem:no-documentation")
        assert "make docs" in answer.json()["detail"]


def test_each_reading_call_of_the_rest_page_is_one_that_the_server_knows(cluster, site):
    """As it stands there; what it names may be missing."""
    with open(f"{site}/rest.html", encoding="utf-8") as f:
        page = f.read()
    calls = re.findall(r"<h3[^>]*>GET ([^ <]+).*?<pre><code>(.*?)</code>", page, re.S)
    assert len(calls) > 30
    env = dict(os.environ, MUSTER_SERVER=cluster.url, MUSTER_TOKEN=cluster.token())
    script = "\n".join(f"{call.strip()} -m 5 -o /dev/null -w '%{{http_code}} {path}\\n' || true" for path, call in calls
                       if not re.search(r"/v1/agents/|/exec", path)).replace("&quot;", '"')
    said = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=PATIENCE_S,
                          check=False)
    for line in said.stdout.splitlines():
        status, path = line.split(" ", 1)
        assert status in ("200", "302", "404", "409", "422"), line
        assert status != "404" or "{" in path, f"{line}: no such resource"
    assert len(said.stdout.splitlines()) == script.count("\n") + 1, said.stderr


def test_each_symptom_is_what_a_program_says():
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "*.c", "*.h"], capture_output=True, text=True,
                           check=True).stdout.split()
    said = "\n".join(re.sub(r'"\s*\n\s*"', "", read(name)) for name in names if not name.startswith("tests/"))
    said = re.sub(r'%[-+ 0-9.*]*(?:ll|z|h)?[a-zA-Z]|"\s*PRI\w+\s*"', "…", said)
    headings = re.findall(r"^### (.*)$", read("docs/symptoms.md"), re.M)
    assert len(headings) >= 30
    for heading in headings:
        for part in heading.split("…"):
            part = part.strip(" '();:,")
            assert len(part) < 8 or part in said, f"'{heading}': no program says '{part}'"


def test_the_metrics_listed_are_those_that_there_are(cluster):
    text = requests.get(f"{cluster.url}/metrics", headers={"Authorization": f"Bearer {cluster.token()}"},
                        timeout=PATIENCE_S).text
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.M))
    there = {(name, kinds[name], words) for name, words in re.findall(r"^# HELP (\S+) (.*)", text, re.M)}
    listed = set(re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", section("docs/reference.md", "Metrics"), re.M))
    assert there <= listed
    sources = "".join(read(os.path.relpath(p, ROOT)) for p in glob.glob(f"{ROOT}/server/**/*.c", recursive=True))
    for name, _, _ in listed:
        assert name in sources, f"{name} is of no program"


def test_the_events_listed_are_those_of_the_interface():
    interface = re.search(r"type: \{type: string, enum: \[(submitted[^\]]*)\]", read("api/openapi.yaml")).group(1)
    listed = re.findall(r"^\| ((?:`\w+` ?)+)\|", section("docs/reference.md", "Events"), re.M)
    assert sorted(re.findall(r"\w+", " ".join(listed))) == sorted(interface.replace(",", " ").split())


def test_the_limits_listed_are_those_that_hold():
    rows = re.findall(r"^\| ([^|]*) \| ([0-9,]+)( MiB| s)? \|$", section("docs/reference.md", "Limits"), re.M)
    assert {row[0] for row in rows} == set(LIMITS)
    for of, number, unit in rows:
        header, name = LIMITS[of]
        value = re.search(rf"#define {name} \(?([0-9 <]+)\)?", read(header)).group(1)
        base, _, shift = value.partition("<<")
        assert int(base) << int(shift or 0) == int(number.replace(",", "")) << (20 if unit == " MiB" else 0), of


def test_the_search_finds_a_message_and_leads_to_it(cluster):
    page = Page(cluster.url)
    try:
        page.open("/docs")
        page.find("#mkdocs-search-query")[0].send_keys("killed by the kernel")
        page.wait("the page on symptoms is not found", lambda: page.find("#mkdocs-search-results a[href*=symptoms]"))
        page.find("#mkdocs-search-results a[href*=symptoms]")[0].click()
        page.wait("the page is not shown", lambda: page.find("h1")[0].text.startswith("Symptoms"))
        was = page.find("#theme")[0].text
        page.find("#theme")[0].click()
        assert {was, page.find("#theme")[0].text} == {"Dark", "Light"}
        assert not [e for e in page.driver.get_log("browser") if e["level"] == "SEVERE"]
    finally:
        page.close()
