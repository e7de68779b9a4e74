"""The charts of a job's page in a real browser: their toolbar, zoom and files, of one cluster and one browser."""
import os

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests import specs
from tests.cluster import Cluster, wait_for
from tests.e2e.browser import Page

STEPS = 3000
PEAK = 1234

# A program of two attempts: the first fails at step 2000, the second goes on from step 1500, and waits before its end.
LINE = r'{{"v":1,"step":%d,"t":%d,"loss":%.5f,"eval/f1":%s,"eval/spike":%d}}\n'.replace('"', r'\"')
PROGRAM = r"""
[ $MUSTER_ATTEMPT = 1 ] && first=1 last=2000 || first=1500 last={steps}
m=$MUSTER_RUN_DIR/metrics.jsonl
echo "this is attempt $MUSTER_ATTEMPT"; printf '\033[31ma red word\033[0m and others\n'
awk -v a=$first -v b=$last 'BEGIN {{ for (i = a; i <= b; i++)
    printf "LINE", i, 1700000000 + 10 * i, 10 / i, i % 2 ? "0.5" : "-0.5", i == {peak} ? 900 : 1 }}' >> $m
[ $MUSTER_ATTEMPT != 1 ] || exit 3
until [ -e {go} ]; do sleep 0.05; done
printf "LINE" {more} 1700099999 0.001 1 1 >> $m
until [ -e {end} ]; do sleep 0.05; done
""".replace("LINE", LINE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("charts")), slots=2) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def browser(cluster):
    p = Page(cluster.url)
    p.sign_in(cluster)
    yield p
    faults = p.faults()
    p.close()
    assert not faults, faults


@pytest.fixture(scope="module")
def job(cluster):
    go, end = (f"{cluster.folder}/{name}" for name in ("go", "end"))
    script = PROGRAM.format(steps=STEPS, peak=PEAK, more=STEPS + 1, go=go, end=end)
    name = cluster.submit(specs.command(script, name="charted", retry={"user": 1}))["id"]
    wait_for("both attempts", lambda: cluster.api("GET", f"/v1/jobs/{name}/series")["last"] == STEPS)
    yield name
    for gate in (go, end):
        open(gate, "w", encoding="ascii").close()
    cluster.wait(name, "succeeded")


@pytest.fixture
def page(browser, job):
    """The job's page as one finds it first."""
    browser.open("/#/")
    browser.open(f"/#/jobs/{job}")
    browser.wait("its charts", lambda: len(browser.find(".chart canvas")) == 3)
    return browser


def words(page, title):
    return page.find(f'.chart[aria-label="{title}"] .chart-plot')[0].get_attribute("aria-label")


def drag(page, title, begin, end):
    """Over a chart, from a share of its width to another."""
    over = page.find(f'.chart[aria-label="{title}"] .u-over')[0]
    width = over.size["width"]
    ActionChains(page.driver).move_to_element_with_offset(over, int(width * (begin - 0.5)), 0).click_and_hold() \
        .move_to_element_with_offset(over, int(width * (end - 0.5)), 0).release().perform()


def test_each_number_has_a_chart_in_the_group_of_its_name(page):
    assert [c.get_attribute("aria-label") for c in page.find(".chart")] == ["loss", "eval/f1", "eval/spike"]
    assert [s.text for s in page.find(".more summary")] == ["eval"]
    page.find('input[type="search"]')[0].send_keys("f1")
    page.wait("the others are there", lambda: [c.get_attribute("aria-label") for c in page.find(".chart")
                                               if c.is_displayed()] == ["eval/f1"])


def test_the_least_and_the_most_of_each_bucket_are_shown(page):
    page.find('[aria-label="Table of eval/spike"]')[0].click()
    assert "eval/spike from 1 to 1" in words(page, "eval/spike")
    ends = page.find("input.step")
    ends[0].send_keys(str(PEAK - 20))
    ends[1].send_keys(str(PEAK + 20), Keys.TAB)
    rows = page.wait("each step", lambda: [r.text.split() for r in page.find(".chart-table tbody tr")
                                           if r.text.startswith("1,234")])
    assert rows == [["1,234", "900"]], "a range has every step"


def test_a_zoom_is_of_all_charts_stays_when_points_come_and_a_double_click_ends_it(page, cluster, job):
    drag(page, "loss", 0.25, 0.5)
    page.wait("the zoom", lambda: all("step 7" in words(page, t) for t in ("loss", "eval/f1")))
    zoomed = words(page, "loss")
    assert "from=" in page.run("return location.hash") and "to=" in page.run("return location.hash")
    open(f"{cluster.folder}/go", "w", encoding="ascii").close()
    wait_for("one more point", lambda: cluster.api("GET", f"/v1/jobs/{job}/series")["last"] == STEPS + 1)
    page.wait("the point in the page's numbers", lambda: page.find('.number[data-key="loss"] dd')[0].text == "0.0010")
    assert words(page, "loss") == zoomed
    over = page.find('.chart[aria-label="eval/f1"] .u-over')[0]
    ActionChains(page.driver).double_click(over).perform()
    page.wait("all of it again, with the point", lambda: "to 3,001" in words(page, "loss"))
    assert "from=" not in page.run("return location.hash")


def test_smoothing_axes_and_range_are_in_the_address_and_come_from_it(page, job):
    page.open("/#/")
    page.open(f"/#/jobs/{job}?smooth=0.9&log=1&by=t")
    page.wait("time", lambda: "time " in words(page, "loss"))
    assert page.find(".toolbar output")[0].text == "0.90"
    assert page.find('[data-way="log"]')[0].get_attribute("aria-pressed") == "true"
    page.find('[data-way="linear"]')[0].click()
    page.find('[data-way="step"]')[0].click()
    page.wait("steps", lambda: "step " in words(page, "loss"))
    assert page.run("return location.hash") == f"#/jobs/{job}?smooth=0.9"
    slider = page.find('.toolbar input[type="range"]')[0]
    slider.send_keys(Keys.HOME)
    page.wait("no smoothing", lambda: page.run("return location.hash") == f"#/jobs/{job}")
    page.open("/#/")
    page.open(f"/#/jobs/{job}?from=100&to=200")
    page.wait("the range of the address", lambda: "step 100 to 200" in words(page, "loss"))


def test_a_restart_is_marked_and_told(page):
    assert "attempt 2 at 1,500" in words(page, "loss")
    page.find('.toolbar input[type="checkbox"]')[0].click()
    page.wait("no marks", lambda: "attempt" not in words(page, "loss"))


def test_the_pointer_finds_the_value_below_it(page):
    over = page.find('.chart[aria-label="eval/f1"] .u-over')[0]
    ActionChains(page.driver).move_to_element(over).perform()
    tip = page.wait("what is below it", lambda: (t := page.find(".chart-tip")) and t[0].is_displayed() and t[0])
    assert "step 1," in tip.text and "eval/f1" in tip.text and "-0.5 to 0.5" in tip.text
    ActionChains(page.driver).move_to_element(page.find("h1")[0]).perform()
    page.wait("it goes", lambda: not tip.is_displayed())


def test_numbers_and_pictures_are_taken_home(page, job, tmp_path):
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.find('[data-action="csv"]')[0].click()
    page.find('[aria-label="loss as a PNG picture"]')[0].click()
    table, picture = tmp_path / f"{job}.csv", tmp_path / f"{job}-loss.png"
    wait_for("both files", lambda: table.exists() and picture.exists())
    head, first = table.read_text(encoding="ascii").splitlines()[:2]
    assert head.startswith('"job","step","lines","t"') and '"loss","loss least","loss most"' in head
    assert first.startswith(f'"{job}",')
    assert picture.read_bytes()[:4] == b"\x89PNG" and picture.stat().st_size > 2000


def test_a_log_has_attempts_colours_a_search_and_a_file(page, job, tmp_path):
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    box = page.find(".log")[0]
    page.wait("the newest attempt", lambda: box.text.splitlines() == ["this is attempt 2", "a red word and others"])
    assert [e.text for e in page.find(".log .ansi-bad")] == ["a red word"]
    page.find('[aria-label="Find in the log"]')[0].send_keys("RED")
    page.wait("only what was looked for", lambda: box.text.splitlines() == ["a red word and others"])
    page.says("1 line found.")
    page.find('[aria-label="Find in the log"]')[0].clear()
    page.find('[aria-label="Find in the log"]')[0].send_keys(" ")
    page.find('[aria-label="Attempt"] option[value="1"]')[0].click()
    page.wait("the first attempt", lambda: box.text.startswith("this is attempt 1"))
    page.find('[data-action="download-log"]')[0].click()
    wait_for("the file", (tmp_path / f"{job}.log").exists)
    assert (tmp_path / f"{job}.log").read_text(encoding="ascii").splitlines()[0] == "this is attempt 1"
