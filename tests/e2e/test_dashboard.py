"""The dashboard in a real browser against a real cluster: sign in, look, follow, cancel, all as a person would."""
import os
import signal

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.e2e.browser import Page
from tests.gpus import Gpus, gpu

@pytest.fixture
def cluster(tmp_path):
    """One for each test: what one leaves behind when it fails is in no other's way."""
    with Cluster(str(tmp_path), slots=4) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture
def corpus(tmp_path):
    return specs.write_corpus(str(tmp_path / "corpus.txt"))


@pytest.fixture(scope="module")
def browser():
    p = Page("")
    yield p
    p.close()


@pytest.fixture
def page(cluster, browser):
    browser.url = cluster.url
    yield browser
    faults = browser.faults()
    browser.anew("")
    assert not faults, faults


@pytest.fixture
def inside(page, cluster):
    page.open(f"/#token={cluster.token()}")
    page.says("Live")
    return page


def test_a_wrong_token_is_refused_in_words_and_a_right_one_is_kept(page, cluster):
    page.open("/")
    page.says("Sign in to Muster")
    page.key("wrong", Keys.ENTER)
    page.says("token is not known")
    field = page.find("#token")[0]
    field.clear()
    field.send_keys(cluster.token(), Keys.ENTER)
    page.says("Devices busy")
    page.says("n1")
    page.driver.refresh()
    page.says("Devices busy")
    page.find("#leave")[0].click()
    page.says("Sign in to Muster")
    page.driver.refresh()
    page.says("Sign in to Muster")


def test_a_token_in_the_address_is_taken_and_hidden(inside, cluster):
    assert cluster.token() not in inside.driver.current_url
    inside.says("Devices busy")


def test_a_training_job_is_followed_from_the_list_to_its_curves(inside, cluster, corpus):
    spec = specs.train(corpus, steps=4000, tp=2, every_steps=20, name="followed")
    spec["train"]["eval"]["every_steps"] = 20
    cluster.hold.at(50, "followed")
    job = cluster.submit(spec)["id"]
    inside.says("followed")  # over the stream of events: nothing was reloaded
    inside.wait("no link", lambda: inside.find(f'a.job-name[href="#/jobs/{job}"]'))[0].click()
    inside.wait("not running", lambda: inside.state() == "running")

    # The curve is drawn, and grows by itself.
    holder = '.chart[aria-label="Loss"] .chart-box'
    points = "return Number(document.querySelector(arguments[0])?.dataset.points ?? 0)"
    inside.wait("no points", lambda: inside.run(points, holder) >= 10)
    painted = inside.run("""
        const c = document.querySelector(arguments[0] + ' canvas');
        const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set();
        for (let i = 0; i < data.length; i += 4)
            if (data[i + 3] > 200)
                seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
        return seen.size""", holder)
    assert painted >= 3, f"{painted} colours on the canvas"
    before = inside.run(points, holder)
    cluster.hold.at(100, "followed")
    inside.wait("the curve does not grow", lambda: inside.run(points, holder) > before + 5)
    inside.says("evaluation loss")
    inside.wait("the plan is forgotten when the list is read again", lambda: (
        facts := inside.find('.number[data-key="plan"]')) and facts[0].is_displayed() and "predicted " in facts[0].text)
    inside.wait("no checkpoint", lambda: inside.find('[aria-label="Checkpoints"] tbody tr'))

    # Its log, one rank at a time.
    inside.wait("no log", lambda: "muster-train" in inside.find(".log")[0].text)
    inside.wait("ranks", lambda: len(inside.find(".log-panel [aria-label=Rank] option")) == 3)
    inside.find('.log-panel [aria-label=Rank] option[value="1"]')[0].click()
    inside.wait("not rank 1", lambda: "rank 1 of 2" in inside.find(".log")[0].text
                and "rank 0 of 2" not in inside.find(".log")[0].text)

    # Cancelled with the keyboard alone: not at the first question, but at the second.
    for answer in ("no", "yes"):
        inside.tab_to('[data-action="cancel"]')
        inside.key(Keys.ENTER)
        inside.wait("no question", lambda: inside.find("dialog[open]"))
        if answer == "yes":  # the focus is on the way back
            inside.tab_to(f'dialog button[value="{answer}"]')
        inside.key(Keys.ENTER)
        inside.wait("the question stays", lambda: not inside.find("dialog[open]"))
        if answer == "no":
            assert cluster.job(job)["state"] == "running"
    inside.wait("not cancelled", lambda: inside.state() == "cancelled")
    assert cluster.wait(job, "cancelled")["state"] == "cancelled"
    assert [b.text for b in inside.find(".actions button") if b.is_displayed()] == ["Run again", "Edit and run"]

    # Read as a whole, the lines of both ranks are in the order of their times.
    inside.driver.refresh()
    lines = inside.wait("not both ranks", lambda: (
        lines := inside.find(".log")[0].text.splitlines()) and {line[:2] for line in lines} == {"0 ", "1 "} and lines)
    times = [line.split()[1] for line in lines if line.split()[1][:2] == "20"]
    assert len(times) > 4 and times == sorted(times), lines


def test_a_log_is_followed_as_it_is_written(inside, cluster):
    more = f"{cluster.folder}/more"
    ticks = f"for i in $(seq 1 20); do echo tick $i; done; until [ -e {more} ]; do sleep 0.05; done; " \
        "for i in $(seq 21 60); do echo tick $i; sleep 0.05; done; exec sleep 100000"
    job = cluster.submit(specs.command(ticks, name="ticks"))["id"]
    inside.open(f"/#/jobs/{job}")
    inside.wait("no ticks", lambda: "tick 20" in inside.find(".log")[0].text)
    box = inside.find(".log")[0]
    assert len(box.text.splitlines()) == 20
    with open(more, "w", encoding="ascii"):
        pass
    inside.wait("the log does not grow", lambda: "tick 60" in box.text)
    assert box.text.split("\n") == [f"tick {i}" for i in range(1, 61)], "each line once and in order"
    cluster.action(job, "cancel")
    inside.wait("not cancelled", lambda: inside.state() == "cancelled")


# Each stream of a log begins only when the log has grown by lines that nobody has been sent.
LATE_STREAMS = """
    const real = window.fetch;
    const read = async (path, options) =>
        (await (await real(path, { headers: { Authorization: options.headers.Authorization } })).json()).lines;
    window.fetch = async (path, options) => {
        const log = path.replace('follow=1', '');
        while (path.includes('logs?follow=1') && !(await read(log, options)).includes('tick 30'))
            await new Promise((done) => setTimeout(done, 20));
        return real(path, options);
    };
"""


def test_a_job_whose_logs_the_server_removed_says_so(page, cluster):
    page.open(f"/#token={cluster.token()}")
    page.says("Live")
    job = cluster.submit(specs.command("true", name="removed"))["id"]
    cluster.wait(job, "succeeded")
    open(f"{cluster.jobs_dir}/.spool/{job}/logs-removed", "w", encoding="ascii").close()  # as the server marks it
    page.open(f"/#/jobs/{job}")
    page.says("Its logs were removed")


def test_a_log_has_no_gap_where_it_grew_before_its_stream_began(page, cluster):
    page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LATE_STREAMS})
    page.open(f"/#token={cluster.token()}")
    page.says("Live")
    gates = [f"{cluster.folder}/{name}" for name in ("begin", "go-on")]
    wait = "until [ -e {} ]; do sleep 0.05; done; ".format
    job = cluster.submit(specs.command(f"{wait(gates[0])} seq -f 'tick %g' 1 30; {wait(gates[1])} "
                                       "seq -f 'tick %g' 31 100", name="late"))["id"]
    page.open(f"/#/jobs/{job}")
    page.says("Nothing written yet.")
    for gate, last in zip(gates, (30, 100)):  # nothing more comes that would tell of those before the stream
        open(gate, "w", encoding="ascii").close()
        page.wait("no end", lambda: f"tick {last}" in page.find(".log")[0].text)
        assert page.find(".log")[0].text.split("\n") == [f"tick {i}" for i in range(1, last + 1)]


def test_each_number_that_a_program_writes_has_a_curve_and_it_is_run_again(inside, cluster):
    go = os.path.join(cluster.folder, "go-on")
    line = '{"step": %s, "loss": 0.%s, "val/f1": 0.5, "none": 0, "word": "x"}\\n'
    script = f"m() {{ printf '{line}' $1 $1 >> $MUSTER_RUN_DIR/metrics.jsonl; }}; m 1; m 2; " \
             f"while ! [ -e {go} ]; do sleep 0.1; done; m 3; m 4"
    job = cluster.submit(specs.command(script, name="own-curves"))["id"]
    inside.open(f"/#/jobs/{job}")
    points = "return Number(document.querySelector(arguments[0])?.dataset.points ?? 0)"
    box = '.chart[aria-label="val/f1"] .chart-box'
    inside.wait("no curve of val/f1", lambda: inside.run(points, box) == 2)
    open(go, "w", encoding="utf-8").close()
    inside.wait("the curve does not grow", lambda: inside.run(points, box) == 4)
    assert [c.get_attribute("aria-label") for c in inside.find(".chart")] == ["loss", "val/f1"]
    inside.wait("its loss is not told", lambda: inside.find('.number[data-key="loss"] dd')[0].text == "0.400")
    inside.wait("no way to run it again", lambda: inside.find('[data-action="again"]')[0].is_displayed())
    inside.find('[data-action="again"]')[0].click()
    inside.wait("no question", lambda: inside.find('dialog[open] button[value="yes"]'))[0].click()
    again = f"j{int(job[1:]) + 1}"
    inside.wait("not the new job's page", lambda: inside.run("return location.hash") == f"#/jobs/{again}")
    assert cluster.wait(again, "succeeded")["spec"] == cluster.job(job)["spec"]


def test_a_failed_job_shows_whose_fault_it_was_and_its_last_lines(inside, cluster):
    job = cluster.submit(specs.command("echo about to fail; exit 3", name="broken"))["id"]
    cluster.wait(job, "failed")
    inside.open(f"/#/jobs/{job}")
    inside.says("The job’s own fault")
    inside.says("exit code 3")
    inside.wait("no last lines", lambda: "about to fail" in inside.find(".tail")[0].text)


def test_a_waiting_job_says_for_what_and_what_would_help(inside, cluster):
    holder = cluster.submit(specs.command("sleep 100000", devices=3, name="holder"))["id"]
    cluster.wait(holder, "running")
    job = cluster.submit(specs.command("true", devices=2, name="waiter"))["id"]
    inside.open(f"/#/jobs/{job}")
    inside.says("more device")
    inside.says("What would help")
    inside.says("Waiting for")
    inside.find(".callout a")[0].click()
    inside.wait("not the holder's page", lambda: inside.find("h1")[0].text == "holder")
    cluster.action(holder, "cancel")
    cluster.wait(job, "succeeded")


def test_nodes_are_drained_and_undrained(inside, cluster):
    inside.open("/#/nodes")
    inside.wait("no node", lambda: inside.find('[data-node="n1"]'))[0].click()
    inside.wait("no question", lambda: inside.find('dialog button[value="yes"]'))[0].click()
    inside.wait("not drained", lambda: inside.find(".node-card .pill")[0].text == "drained")
    assert cluster.nodes()[0]["state"] == "drained"
    inside.find('[data-node="n1"]')[0].click()
    inside.wait("not ready", lambda: inside.find(".node-card .pill")[0].text == "ready")


def test_filters_and_search_narrow_the_list(inside, cluster):
    for name in ("hay", "needle"):
        cluster.wait(cluster.submit(specs.command("true", name=name))["id"], "succeeded")
    inside.says("needle")
    inside.key("/")
    inside.key("needl")
    inside.wait("search", lambda: [a.text for a in inside.find(".job-name")] == ["needle"])
    inside.find('[data-filter="waiting"]')[0].click()
    inside.says("Nothing matches")
    inside.find(".under button")[0].click()
    inside.wait("all", lambda: len(inside.find(".job-name")) > 1)


def test_a_long_list_is_shown_in_parts(inside, cluster):
    cluster.api("POST", "/v1/nodes/n1/drain")  # so that all of them wait
    jobs = [cluster.submit(specs.command("true", name=f"part-{i}"))["id"] for i in range(60)]
    inside.find('input[type="search"]')[0].send_keys("part-")
    inside.says("Show 10 more of 60")
    assert len(inside.find(".jobs tbody tr")) == 50
    inside.find(".rest button")[0].send_keys(Keys.ENTER)
    inside.wait("not all 60", lambda: len(inside.find(".jobs tbody tr")) == 60)
    for job in jobs:
        cluster.action(job, "cancel")
    cluster.api("POST", "/v1/nodes/n1/undrain")


def test_an_array_is_one_row_with_a_bar_and_its_tasks_are_behind_it(inside, cluster, tmp_path):
    script = f'until [ -e {tmp_path}/go.$MUSTER_ARRAY_INDEX ] || [ -e {tmp_path}/go ]; do sleep 0.05; done; ' \
             '[ $MUSTER_ARRAY_INDEX != 1 ]'
    matrix = {"lr": [0.1, 0.2, 0.3], "seed": [1, 2]}
    spec = specs.command(script, name="sweep", array={"matrix": matrix, "max_running": 3})
    cluster.submit(spec)
    inside.says("0 of 6 tasks")
    assert [a.text for a in inside.find(".jobs .job-name")] == ["sweep"], "its tasks are in no row of their own"
    for i in (0, 1):
        (tmp_path / f"go.{i}").touch()
    inside.says("2 of 6 tasks, 1 failed")
    assert inside.find('.jobs [role="progressbar"]')[0].get_attribute("aria-valuenow") == "33"
    inside.find(".jobs .job-name")[0].click()
    inside.wait("six tasks", lambda: len(inside.find(".tasks tbody tr")) == 6)
    assert "lr 0.2, seed 1" in inside.find('.tasks [data-task="2"]')[0].text
    inside.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                  {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True})
    assert inside.run("return document.documentElement.scrollWidth") <= 360
    inside.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    inside.find(".tasks .chip")[4].click()
    inside.wait("the failed one",
                lambda: [r.get_attribute("data-task") for r in inside.find(".tasks tbody tr")] == ["1"])
    inside.find(".tasks .chip")[0].click()
    (tmp_path / "go").touch()
    inside.says("6 of 6 tasks, 1 failed")
    inside.wait("all ended", lambda: len(inside.find(".tasks tbody .pill")) == 6
                and [p.text for p in inside.find(".tasks tbody .pill")].count("succeeded") == 5)
    inside.find('.tasks [data-task="2"] a')[0].click()
    inside.wait("the task's page", lambda: inside.state() == "succeeded" and not inside.find(".tasks"))


def test_it_says_so_when_the_server_is_away_and_comes_back_by_itself(inside, cluster):
    cluster.kill_server()
    inside.says("Reconnecting")
    cluster.start_server()
    inside.says("Live")
    job = cluster.submit(specs.command("true", name="afterwards"))["id"]
    inside.says("afterwards")
    cluster.wait_nodes(["n1"])
    cluster.wait(job, "succeeded")


def test_it_asks_nobody_else(inside, cluster):
    wait_for("resources", lambda: inside.run("return performance.getEntriesByType('resource').length") > 5)
    asked = inside.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith((cluster.url, "data:")) for name in asked), asked


def test_a_narrow_screen_does_not_scroll_sideways(inside, cluster):
    job = cluster.submit(specs.command("true", name="a-job-with-a-name-that-is-longer-than-a-narrow-screen-is"))["id"]
    cluster.wait(job, "succeeded")
    inside.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                  {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True})
    for path in ("/#/", f"/#/jobs/{job}", "/#/nodes", "/#/new"):
        inside.open(path)
        inside.says("Live")
        assert inside.run("return document.documentElement.scrollWidth") <= 360, path


def test_dark_and_light_are_chosen_and_kept(inside):
    background = "return getComputedStyle(document.body).backgroundColor"
    first = inside.run(background)
    inside.find("#theme")[0].click()
    second = inside.run(background)
    assert first != second
    inside.driver.refresh()
    inside.says("Live")
    assert inside.run(background) == second


def test_an_unknown_job_and_an_unknown_page_are_told_in_words(inside):
    inside.open("/#/jobs/j999999")
    inside.says("There is no job j999999")
    inside.open("/#/nowhere")
    inside.says("There is no such page")


def test_a_nodes_gpus_are_shown_with_what_ails_them(inside, cluster, tmp_path):
    gpus = Gpus(str(tmp_path))
    gpus.show(gpu("GPU-a", util=97, used_mib=70 * 1024), gpu("GPU-b"))
    cluster.env.update(gpus.env)
    cluster.start_agent("n2", "gpu")
    cluster.wait_nodes(["n2"])
    gpus.show(gpu("GPU-a", util=97, used_mib=70 * 1024), gpu("GPU-b", lost=True))
    inside.open("/#/nodes")
    inside.says("Device 1 takes no work: the driver has lost it.")
    row = inside.wait("no GPU", lambda: inside.find(".gpus tbody tr"))[0]
    assert [td.text for td in row.find_elements(By.TAG_NAME, "td")] == ["0", "97 %", "70.0 / 80 GiB", "70 W", "31 °C"]


def test_jobs_that_come_and_go_are_shown_without_reading_all_nodes_again(inside, cluster):
    """The stream brings what has changed: with many nodes and many open dashboards all else is too much."""
    reads = "return performance.getEntriesByType('resource').filter((e) => e.name.includes('/v1/nodes')).length"
    inside.says("n1")
    inside.run("performance.clearResourceTimings()")
    before = inside.run("return performance.now()")
    for i in range(10):
        job = cluster.submit(specs.command("true", name=f"short-{i}"))["id"]
        cluster.wait(job, "succeeded")
    inside.wait("all ended", lambda: [p.text for p in inside.find("tr .pill")].count("succeeded") == 10)
    seconds = (inside.run("return performance.now()") - before) / 1000
    assert inside.run(reads) <= 1 + seconds / 10, "no more than a look now and then"


def test_a_rank_that_holds_up_the_others_is_marked_in_a_picture_and_named_in_a_table(inside, cluster, corpus):
    job = cluster.submit(specs.train(corpus, steps=100000, devices=4, tp=2, pp=2))["id"]
    wait_for("enough steps to know the rank's pace",
             lambda: ((cluster.job(job)["progress"] or {}).get("step") or 0) > 20)
    inside.open(f"/#/jobs/{job}")
    inside.says("What does each rank do?")
    inside.find("[data-action=look]")[0].click()
    inside.says("No rank holds up the others for longer than it may.")
    assert len(inside.find(".g-grid .g-rank")) == 4 and not inside.find(".g-grid .d-root")
    os.kill(cluster.rank_pids(job)[2], signal.SIGSTOP)
    inside.wait("the verdict is not shown", lambda: "its process has been stopped" in inside.find(".g-verdict")[0].text)
    assert [r.text for r in inside.find(".g-grid .d-root")] == ["2"]
    assert [r.text for r in inside.find(".g-grid .g-rank")] == ["0", "1", "2", "3"]
    assert [r.text for r in inside.find(".g-grid .g-label")] == ["pp 0", "pp 1"]
    first = inside.find(".g-panel tbody tr")[0].text
    assert first.startswith("2 n1 pp 1") and "at fault" in first, first
    assert "1 at fault" in inside.find(".g-legend")[0].text and "3 waiting" in inside.find(".g-legend")[0].text
    inside.wait("what was seen of the rank", lambda: inside.find(".g-panel details summary"))
    assert len(inside.find(".g-panel details summary")) == 1
    inside.find(".g-panel details summary")[0].click()
    inside.wait("its process", lambda: "T (stopped)" in inside.find(".g-panel details pre")[0].text)
    inside.driver.set_window_size(390, 844)
    assert inside.run("return document.documentElement.scrollWidth <= window.innerWidth")
    for theme in ("light", "dark"):  # colours differ enough to be read
        inside.run("document.documentElement.dataset.theme = arguments[0]", theme)
        if folder := os.environ.get("MUSTER_TEST_PICTURES"):
            for name, width in (("narrow", 390), ("wide", 1400)):
                inside.driver.set_window_size(width, 1100)
                inside.run("document.querySelector('.g-panel').scrollIntoView()")
                inside.driver.save_screenshot(os.path.join(folder, f"diagnosis-{name}-{theme}.png"))
    cluster.api("POST", f"/v1/jobs/{job}/cancel")
    cluster.wait(job, "cancelled")
