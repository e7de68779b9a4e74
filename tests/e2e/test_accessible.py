"""Every page of the dashboard, light and dark, is held to axe-core, the usual checker of accessibility."""
import os

import pytest

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.e2e.browser import Page

AXE = os.path.join(os.path.dirname(__file__), "node_modules", "axe-core", "axe.min.js")
LINE = r'{"v":1,"step":%d,"loss":0.%d,"lr":1e-3}\n'
CURVE = f"for i in 1 2 3; do printf '{LINE}' $i $i; done >> $MUSTER_RUN_DIR/metrics.jsonl"

RUN = """
    const done = arguments[0];
    axe.run(document, { resultTypes: ['violations'] }).then((r) => done(r.violations.map((v) => [v.id, v.help,
        v.nodes.slice(0, 5).map((n) => `${n.target.join(' ')}: ${n.failureSummary}`)])), (e) => done([String(e)]));
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("accessible")), slots=2) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def jobs(cluster):
    """One of each kind of page: with curves, failed, waiting, an array."""
    made = {name: cluster.submit(specs.command(script, name=name, **more))["id"] for name, script, more in (
        ("curves", f"{CURVE}; printf '\\033[31mred\\033[0m\\n'", {}), ("failed", "echo Oh; exit 3", {}),
        ("array", CURVE, {"array": {"matrix": {"lr": [0.1, 0.2]}}}))}
    for job in made.values():
        wait_for("its end", lambda: cluster.job(job)["state"] in ("succeeded", "failed"))
    corpus = specs.write_corpus(f"{cluster.folder}/corpus.txt", documents=40)
    made["trained"] = cluster.submit(specs.train(corpus, steps=6, every_steps=3))["id"]
    cluster.wait(made["trained"], "succeeded")
    made["holder"] = cluster.submit(specs.command("exec sleep 100000", devices=2, name="holder"))["id"]
    cluster.wait(made["holder"], "running")
    made["waiting"] = cluster.submit(specs.command("true", name="waiting"))["id"]
    yield made
    cluster.action(made["holder"], "cancel")
    cluster.wait(made["waiting"], "succeeded")


@pytest.fixture(scope="module")
def page(cluster):
    p = Page(cluster.url)
    yield p
    faults = p.faults()
    p.close()
    assert not faults, faults


def check(page, name):
    """What the checker says of the page as it is, in both themes."""
    if not page.run("return !!window.axe"):
        with open(AXE, encoding="utf-8") as f:
            page.run(f.read())
    found = []
    for theme in ("light", "dark"):
        page.run("document.documentElement.dataset.theme = arguments[0];"
                 "document.dispatchEvent(new Event('muster-theme'))", theme)
        found += [(name, theme, v) for v in page.driver.execute_async_script(RUN)]
    return found


def test_no_page_has_a_violation(page, cluster, jobs):
    page.open("/")
    page.says("Sign in to Muster")
    found = check(page, "sign-in")
    page.sign_in(cluster)
    for name, path, words in (("overview", "/", "waiting"), ("nodes", "/nodes", "n1"),
                              ("nowhere", "/nowhere", "no such page"),
                              ("no job", "/jobs/j999", "There is no job"),
                              ("a trained job", f"/jobs/{jobs['trained']}", "More metrics"),
                              ("a job's curves", f"/jobs/{jobs['curves']}", "Smoothing"),
                              ("a failed job", f"/jobs/{jobs['failed']}", "exit code 3"),
                              ("a waiting job", f"/jobs/{jobs['waiting']}", "What would help"),
                              ("a running job", f"/jobs/{jobs['holder']}", "Cancel"),
                              ("notices", "/notices", "No webhook yet"),
                              ("a new job", "/new", "No fault"),
                              ("an array", f"/jobs/{jobs['array']}", "2 of 2 tasks"),
                              ("compare", f"/compare?jobs={jobs['curves']},{jobs['failed']}", "What differs"),
                              ("a sweep", f"/compare?array={jobs['array']}", "Values and results")):
        page.run("location.hash = arguments[0]", path)
        page.says(words)
        found += check(page, name)
    assert not found, "\n".join(map(str, found))


def test_a_question_has_no_violation(page, cluster, jobs):
    page.sign_in(cluster)
    page.run("location.hash = arguments[0]", f"/jobs/{jobs['holder']}")
    page.wait("the button", lambda: page.find('[data-action="cancel"]')[0].is_displayed())
    page.find('[data-action="cancel"]')[0].click()
    page.wait("the question", lambda: page.find("dialog[open]"))
    assert check(page, "question") == []
