"""What is done with a job in a real browser: its checkpoints, its devices and priority."""
import json
import os
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.e2e.browser import Page
from tests.e2e.test_accessible import check


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("job")), slots=2) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def trained(cluster):
    """A job of six steps with a checkpoint each three."""
    corpus = specs.write_corpus(f"{cluster.folder}/corpus.txt", documents=40)
    job = cluster.submit(specs.train(corpus, steps=6, every_steps=3, name="trained"))["id"]
    cluster.wait(job, "succeeded")
    return job


@pytest.fixture(scope="module")
def browser(cluster):
    p = Page(cluster.url)
    p.sign_in(cluster)
    yield p
    faults = p.faults()
    p.close()
    assert not faults, faults


def rows(page):
    return [[td.text for td in tr.find_elements("css selector", "th, td")]
            for tr in page.find('[aria-label="Checkpoints"] tbody tr')]


def open_step(page, job, step):
    if page.run("return location.hash") != f"#/jobs/{job}":
        page.open(f"/#/jobs/{job}")
    page.wait("its checkpoints", lambda: page.find(f'[aria-label="Checkpoint of step {step}"]'))
    page.wait("the checkpoint", lambda: (page.find(f'[aria-label="Checkpoint of step {step}"]')[0].click(),
                                         page.find("dialog[open] h2"))[1])


def page_is_free(page):
    page.run("document.querySelectorAll('dialog[open]').forEach((d) => d.close())")


def press(page, verb):
    page.find(f'dialog [data-verb="{verb}"]')[0].click()


def done(page, words):
    """The row that says so."""
    return page.wait(words, lambda: words in " | ".join(" ".join(li.text.split()) for li in page.find(".doings li")))


def test_a_jobs_checkpoints_are_those_on_the_disk(browser, trained):
    open_step(browser, trained, 3)
    assert [(r[0], r[2], r[3], r[5]) for r in rows(browser)] == [(step, "one rank", "none", "complete")
                                                                 for step in ("6", "3")]
    assert "step-00000003" in browser.find("dialog code")[0].text
    assert browser.run("return document.activeElement.textContent") == "Back", "the focus is on the way back"
    page_is_free(browser)


def test_the_time_of_a_step_is_one_chart_with_what_it_waited(browser, trained):
    browser.open(f"/#/jobs/{trained}")
    browser.wait("the chart", lambda: browser.find('.chart[aria-label="Step time"] canvas'))
    said = browser.find('.chart[aria-label="Step time"]')[0].text
    assert "a step" in said and "ms" in said
    assert not browser.find('.chart[aria-label^="Bytes"]'), "one rank sends nothing"


def test_a_checkpoint_is_verified_exported_and_sampled(browser, cluster, trained):
    for verb in ("verify", "export", "sample"):
        page_is_free(browser)
        open_step(browser, trained, 6)
        press(browser, verb)
    for verb in ("Verify", "Export", "Sample"):
        done(browser, f"{verb} step 6 succeeded")
    assert os.path.exists(f"{cluster.job(trained)['dir']}/exports/step-00000006-f32/model.safetensors")
    browser.wait("the text", lambda: browser.find(".sample")[0].text.strip())


def test_a_new_job_goes_on_from_a_checkpoint_with_the_same_bits(browser, cluster, trained):
    open_step(browser, trained, 3)
    press(browser, "resume")
    browser.wait("its page", lambda: browser.find("h1")[0].text == "trained-from-3")
    made = cluster.wait(browser.run("return location.hash").split("/")[-1], "succeeded")
    init = made["spec"]["train"]["init"]
    assert init["from"].endswith(f"/{trained}/checkpoints:3") and init["resume"]

    def losses(job):
        with open(f"{cluster.job(job)['dir']}/metrics.jsonl", encoding="ascii") as f:
            return {m["step"]: m["loss"] for m in map(json.loads, f)}
    whole, rest = losses(trained), losses(made["id"])
    assert sorted(rest) == [3, 4, 5] and rest == {step: whole[step] for step in rest}


def test_a_checkpoint_is_deleted_after_a_question(browser, cluster, trained):
    open_step(browser, trained, 3)
    press(browser, "delete")
    browser.wait("the question", lambda: browser.find('dialog button[value="yes"]'))[0].click()
    done(browser, "Delete step 3 succeeded")
    browser.wait("it is gone", lambda: [r[5] for r in rows(browser)] == ["complete", "removed"])
    assert not os.path.exists(f"{cluster.job(trained)['dir']}/checkpoints/step-00000003")


def test_devices_and_priority_of_a_job_are_changed(browser, cluster):
    job = cluster.submit(specs.command("exec sleep 100000", name="changed", priority=50))["id"]
    browser.open(f"/#/jobs/{job}")
    browser.wait("the button", lambda: browser.find('[data-action="change"]')[0].is_displayed())
    browser.find('[data-action="change"]')[0].click()
    for name, value in (("priority", 70), ("min", 3), ("max", 2)):
        browser.run("document.querySelector(`dialog [name=${arguments[0]}]`).value = arguments[1]", name, value)
    browser.find("dialog .primary")[0].click()
    browser.wait("the fault", lambda: "devices.max" in browser.find("dialog .warn")[0].text)
    browser.run("document.querySelector('dialog [name=min]').value = 1")
    browser.find("dialog .primary")[0].click()
    wait_for("the change", lambda: cluster.job(job)["priority"] == 70 and cluster.job(job)["devices"]["max"] == 2)
    browser.wait("it is shown", lambda: "priority 70" in browser.find(".id")[0].text)
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")


def test_where_a_steps_time_goes_is_shown_by_rank_and_stage(browser, cluster):
    corpus = specs.write_corpus(f"{cluster.folder}/corpus.txt", documents=40)
    job = cluster.submit(specs.train(corpus, steps=1000000, pp=2, every_steps=0, name="parts"))["id"]
    wait_for("its steps", lambda: cluster.job(job)["state"] == "running" and all(
        r["parts"]["step_ms"] for r in cluster.api("GET", f"/v1/jobs/{job}/ranks")["ranks"]))
    printed = subprocess.run([f"{BIN}/muster", "show", job, "--ranks"], env=dict(cluster.env, MUSTER_SERVER=cluster.url,
                             MUSTER_TOKEN=cluster.token()), capture_output=True, text=True,
                             check=True).stdout
    assert printed.count("█") > 8 and "STAGE" in printed
    browser.open(f"/#/jobs/{job}")
    panel = browser.wait("the parts", lambda: [p for p in browser.find('.r-panel') if p.is_displayed()])[0]
    assert "compute" in browser.find(".r-chart")[0].get_attribute("aria-label")
    assert len(browser.find(".r-panel .stages li")) == 2
    ranks = browser.find(".r-rank")
    assert [r.get_attribute("aria-label").split(",")[0] for r in ranks] == ["rank 0 on n1", "rank 1 on n1"]
    ranks[1].click()
    browser.wait("the rank's own", lambda: browser.find('.r-rank[aria-pressed="true"] b')[0].text == "1")
    assert browser.find(".r-panel select")[0].get_attribute("value") == "rank=1"
    panel.find_element("css selector", "summary").click()
    assert panel.find_elements("css selector", "tbody td")[1].text in ("stage 0", "stage 1")
    assert check(browser, "parts of a step") == []
    cluster.action(job, "cancel")
    cluster.wait(job, "cancelled")
    browser.wait("what has ended has no ranks", lambda: not browser.find('.r-panel')[0].is_displayed())


def test_a_commands_page_has_its_step_its_words_and_its_checkpoints_once_it_tells_of_them(browser, cluster):
    job = cluster.submit(specs.command("""
tell() { echo "$1" >> "$MUSTER_RUN_DIR/events.jsonl"; }
wait_for() { while [ ! -e "$MUSTER_JOB_DIR/$1" ]; do sleep 0.02; done; }
tell '{"type":"config","config":{"lr":0.125}}'
echo '{"v":1,"step":7,"loss":2}' >> "$MUSTER_RUN_DIR/metrics.jsonl"
wait_for saves
mkdir -p "$MUSTER_JOB_DIR/checkpoints"
tell '{"type":"checkpoint","step":7,"path":"'"$MUSTER_JOB_DIR/checkpoints/step-00000007"'"}'
wait_for ends
tell '{"type":"summary","accuracy":0.75}'
""", name="told"))["id"]

    def panel(name):
        return [e for e in browser.find(f'[aria-label="{name}"]') if e.is_displayed()]

    def told(title):
        return [e for e in browser.find("details.spec") if e.is_displayed() and title in e.text]

    def go_on(name):
        with open(os.path.join(cluster.job(job)["dir"], name), "w", encoding="ascii"):
            pass
    browser.open(f"/#/jobs/{job}")
    browser.wait("its step", lambda: [e.text for e in browser.find('[data-key="step"] dd')] == ["7"])
    details = browser.wait("what it was given", lambda: told("Configuration"))[0]
    details.find_element("css selector", "summary").click()
    assert json.loads(details.find_element("css selector", "pre").text) == {"lr": 0.125}
    assert not panel("Checkpoints") and not told("Summary")
    go_on("saves")
    browser.wait("its checkpoints", lambda: panel("Checkpoints"))
    assert [c.text for c in browser.find('[aria-label="Checkpoints"] th[scope="col"]')][:2] == ["Step", "Size"]
    assert rows(browser)[0][0] == "7" and len(rows(browser)[0]) == 5, "no layout and no codec, which it does not tell"
    go_on("ends")
    browser.wait("what it came to", lambda: told("Summary"))
    cluster.wait(job, "succeeded")
    assert check(browser, "a command's page") == []
