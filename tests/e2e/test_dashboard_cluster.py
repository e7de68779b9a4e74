"""The pages about the cluster: how devices and nodes did, what comes, and what would come otherwise."""
import os
import struct
import time

import pytest

from tests import specs
from tests.cluster import ApiError, Cluster, wait_for
from tests.e2e.browser import Page
from tests.e2e.test_accessible import check


FINE, COARSE, NONE = 5760, 8640, 0xffffffff


def crc32c(data):
    """Of server/store/node_series.c's samples."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def write_series(jobs_dir, node, samples):
    """A file of samples, as a server would have kept it: (seconds, numbers of the node, [(job, use, busy, watts)])."""
    devices = 4
    row = 8 + 8 + 7 * 4 + 4 + devices * 12
    os.makedirs(f"{jobs_dir}/.series", exist_ok=True)
    with open(f"{jobs_dir}/.series/{node}.series", "wb") as f:
        f.truncate(16 + row * (FINE + COARSE))
        f.write(struct.pack("<QII", 0x31736572656e6f64, devices, 7))
        for at, host, of in samples:
            for step, place in ((15, at // 15 % FINE), (300, FINE + at // 300 % COARSE)):
                if step == 300 and at % 300 > 14:
                    continue
                told = b"".join(struct.pack("<IHBBBBBB", job, watts, slot, busy, use, 255, 255, 0)
                                for slot, (job, use, busy, watts) in enumerate(of))
                rest = struct.pack("<Iq7II", len(of), at // step, *host, 0) + told
                f.seek(16 + row * place)
                f.write(struct.pack("<I", crc32c(rest)) + rest)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    c = Cluster(str(tmp_path_factory.mktemp("cluster")), slots=2)
    now = int(time.time()) // 15 * 15
    write_series(c.jobs_dir, "n1", [(now - 15 * i, (40, 2048, 8192, 150, 10, 20, 5000), [
        (7 if i > 100 else 0, 80, 100 if i > 100 else 0, 300), (0, 255, 0, 65535)]) for i in range(1, 241)])
    with c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def jobs(cluster):
    """One that runs with a time limit, and one that waits for it."""
    made = {"runs": cluster.submit(specs.command("exec sleep 100000", devices=2, name="runs",
                                                 limits={"time_s": 3600}))["id"]}
    cluster.wait(made["runs"], "running")
    made["waits"] = cluster.submit(specs.command("exec sleep 100000", name="waits"))["id"]
    wait_for("its estimate", lambda: cluster.job(made["waits"]).get("starts", {}).get("at"))
    yield made
    for job in made.values():
        cluster.action(job, "cancel")
    for job in made.values():
        cluster.wait(job, "cancelled")


def test_a_real_agents_reports_become_series(cluster, jobs):
    def said():
        return cluster.api("GET", "/v1/nodes/n1/series")["nodes"][0]
    node = wait_for("a report", lambda: (n := said()) and n["devices"] and n["devices"][0]["runs"] and n)
    for name in ("memory_mib", "memory_total_mib", "load", "disk_free_mib"):
        assert any(v is not None and v >= 0 for v in node["host"][name]["mean"]), name
    assert [d["runs"][-1]["job"] for d in node["devices"]] == [jobs["runs"]] * 2


def test_the_plan_and_a_what_if_of_a_real_cluster(cluster, jobs):
    plan = {j["job"]: j for j in cluster.api("GET", "/v1/cluster/plan")["jobs"]}
    assert plan[jobs["runs"]]["runs"] and plan[jobs["waits"]]["basis"] == "time-limits"
    assert plan[jobs["waits"]]["after"] == jobs["runs"]
    said = cluster.api("POST", "/v1/cluster/what-if", {"job": jobs["waits"], "add_nodes": {
        "class": plan[jobs["waits"]]["classes"][0], "nodes": 1, "devices": 4}})
    assert said["then"]["starts"] == said["at"] < said["now"]["starts"]
    assert cluster.job(jobs["waits"])["state"] == "queued", "nothing has changed"
    with pytest.raises(ApiError, match="what-if-invalid"):
        cluster.api("POST", "/v1/cluster/what-if", {"job": "j999"})


# --- the pages ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(cluster):
    p = Page(cluster.url)
    p.sign_in(cluster)
    yield p
    faults = p.faults()
    p.close()
    assert not faults, faults


def test_the_cluster_page_shows_use_and_plan(page, cluster, jobs):
    page.run("location.hash = '#/cluster'")
    bar = page.wait("the bar of what comes", lambda: page.find(f'.gbar.planned[href="#/jobs/{jobs["waits"]}"]'))[0]
    had, has = (page.find(f'.gbar[href="#/jobs/{j}"]')[0] for j in ("j7", jobs["runs"]))
    now = page.find(".crow-gantt .now")[0].rect["x"]
    assert had.rect["x"] + had.rect["width"] < now, "a job of before"
    assert has.rect["x"] < now + 3 and abs(has.rect["x"] + has.rect["width"] - bar.rect["x"]) < 6
    assert has.rect["height"] > 1.7 * bar.rect["height"], "two devices beside one"
    heat = page.find(".crow-heat canvas")[0]
    assert "n1: " in heat.get_attribute("aria-label")
    colours = page.run("""
        const c = arguments[0], data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
        for (let i = 0; i < data.length; i += 4)
            seen.add(data.slice(i, i + 4).join());
        return seen.size""", heat)
    assert colours >= 3, "busy, free, and not known"
    assert "time limits of what runs" in page.find('[aria-label="What comes"]')[0].text
    assert check(page, "cluster") == []
    page.find('[data-span="30 d"]')[0].click()
    page.wait("a month", lambda: "in 30 d" in page.find(".page-head")[0].text)
    page.find('[data-span="1 h"]')[0].click()
    assert cluster.job(jobs["waits"])["state"] == "queued"


def test_the_page_of_a_node_has_its_series(page):
    page.run("location.hash = '#/nodes/n1'")
    for title in ("Processors", "Memory", "Power", "Use of the devices"):
        panel = page.wait(title, lambda title=title: page.find(f'.chart[aria-label="{title}"]'))[0]
        page.run("arguments[0].scrollIntoView({ block: 'center' })", panel)  # what nobody sees is not drawn
        said = page.wait(title, lambda title=title: page.find(f'.chart[aria-label="{title}"] [role=img]')[0]
                         .get_attribute("aria-label"))
        if title == "Power":
            assert "device 0 from 300 W" in said and "device 1" not in said
    page.run("document.querySelector('.chart[aria-label=Processors] button').click()")
    assert "40 %" in page.find('.chart[aria-label="Processors"] .chart-table')[0].text
    assert check(page, "node") == []


def test_the_overview_shows_use_waits_and_what_needs_a_look(page, jobs):
    page.run("location.hash = '#/'")
    cells = page.wait("the totals", lambda: page.find(".totals .total"))
    page.wait("the use of 24 hours", lambda: "%" in cells[1].text and cells[1].find_elements("css selector", ".spark"))
    page.wait("the waits", lambda: " s" in cells[2].find_element("css selector", ".value").text)
    looks = page.find('[aria-label="Needs a look"]')[0]
    page.wait("who waits", lambda: f"{jobs['waits']} has waited longest" in looks.text)
    assert check(page, "overview") == []


def test_a_what_if_in_the_browser(page, jobs):
    page.run("location.hash = arguments[0]", f"#/what-if?job={jobs['waits']}")
    page.wait("as it stands", lambda: "As it stands" in page.find('[aria-label="Answer"]')[0].text)
    page.wait("the switch", lambda: page.find("#wi-n"))[0].click()
    page.wait("the gain", lambda: "min" in page.find('[aria-label="Answer"] .total:last-child .value')[0].text)
    assert check(page, "what-if") == []
    page.run("const d = document.querySelector('#wi-devices'); d.value = -1; d.dispatchEvent(new Event('input'))")
    page.wait("the fault", lambda: "'add_nodes' wants" in page.find('[aria-label="Answer"]')[0].text)
