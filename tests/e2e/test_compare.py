"""Jobs compared in a real browser: curves over each other, results, what differs, and the tasks of a sweep."""
import pytest

from tests import specs
from tests.cluster import Cluster
from tests.e2e.browser import Page

LINE = r'{"v":1,"step":%d,"t":%d,"loss":%.4f}\n'.replace('"', r'\"')


def curve(scale, steps=40):
    return f"awk 'BEGIN {{ for (i = 1; i <= {steps}; i++) printf \"{LINE}\", i, 1700000000 + i, {scale} / i }}' " \
        ">> $MUSTER_RUN_DIR/metrics.jsonl"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("compare")), slots=4) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def jobs(cluster):
    made = [cluster.submit(specs.command(curve(scale), name=f"scale-{scale}", priority=priority))["id"]
            for scale, priority in ((1, 50), (2, 50), (4, 60))]
    return [made, *[cluster.wait(job, "succeeded") for job in made]][0]


@pytest.fixture(scope="module")
def page(cluster):
    p = Page(cluster.url)
    p.sign_in(cluster)
    yield p
    faults = p.faults()
    p.close()
    assert not faults, faults


def cells(page, title):
    return [[c.text for c in row.find_elements("css selector", "th, td")]
            for row in page.find(f'section[aria-label="{title}"] tbody tr')]


def test_jobs_are_chosen_in_the_list_and_their_curves_lie_over_each_other(page, jobs):
    page.open("/#/")
    for job in jobs[::-1]:
        page.wait("its row", lambda: page.find(f'input[aria-label$=", {job}"]'))[0].click()
    page.says("3 chosen")
    page.find(".chosen a")[0].click()
    page.says("Compare 3 jobs")
    words = page.wait("the curves", lambda: page.find('.chart[aria-label="loss"] canvas')
                      and page.find('.chart[aria-label="loss"] .chart-plot')[0].get_attribute("aria-label"))
    assert [f"{job} scale-{scale} from {scale}" in words for job, scale in zip(jobs, (1, 2, 4))] == [True] * 3, words


def test_results_are_sorted_by_what_one_clicks_and_the_best_is_marked(page, jobs):
    page.open(f"/#/compare?jobs={','.join(jobs)}")
    page.wait("losses", lambda: [row[3] for row in cells(page, "Results")] == ["0.0250", "0.0500", "0.100"])
    assert [td.text for td in page.find('section[aria-label="Results"] td.best')].count("0.0250") == 1
    button = [b for b in page.find('section[aria-label="Results"] .sort') if b.text.startswith("Loss")][0]
    button.click()
    page.wait("the other way", lambda: [row[3] for row in cells(page, "Results")] == ["0.100", "0.0500", "0.0250"])


def test_only_fields_that_differ_are_listed(page, jobs):
    page.open(f"/#/compare?jobs={','.join(jobs)}")
    page.says("What differs")
    rows = page.wait("fields", lambda: cells(page, "What differs"))
    assert [r[0] for r in rows] == ["command.argv", "priority"]
    assert rows[1][1:] == ["50", "50", "60"]


def test_a_job_is_left_out_and_added(page, jobs):
    page.open(f"/#/compare?jobs={','.join(jobs)}")
    page.wait("the jobs", lambda: page.find(f'[aria-label="Leave {jobs[1]} out"]'))[0].click()
    page.says("Compare 2 jobs")
    page.find(".add input")[0].send_keys(jobs[1], "\n")
    page.says("Compare 3 jobs")
    page.open("/#/compare?jobs=j999")
    page.wait("what is wrong", lambda: "j999" in page.find(".problem")[0].text)


def test_a_sweep_has_parallel_coordinates_and_the_curves_of_its_best(page, cluster):
    array = {"matrix": {"lr": [0.001, 0.1], "kind": ["a", "b"]}}
    script = curve("${{param.lr}}", 5)
    made = cluster.submit(specs.command(script, name="sweep", array=array))["id"]
    cluster.wait(made, "succeeded")
    page.open(f"/#/compare?array={made}")
    page.wait("a line each", lambda: len(page.find(".parallel polyline")) == 4)
    assert [t.text for t in page.find(".parallel text:not(.tick)")] == ["lr (log)", "kind", "loss (log)"]
    rows = cells(page, "Tasks")
    assert [row[1] for row in rows] == ["0.001", "0.001", "0.1", "0.1"], "the lowest loss stands first"
    page.find('section[aria-label="Tasks"] .panel-head a')[0].click()
    page.says("Compare 4 jobs")
    page.wait("their curves", lambda: page.find(".chart canvas"))
