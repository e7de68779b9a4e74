"""A job is written in the browser: completed, checked at its lines, planned, sent, and taken from another job."""
import pytest
from selenium.webdriver.common.keys import Keys

from tests import specs
from tests.cluster import Cluster
from tests.e2e.browser import Page


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("submit")), slots=2) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def page(cluster):
    p = Page(cluster.url)
    p.sign_in(cluster)
    p.open("/#/new")
    p.wait("the editor", lambda: p.find("textarea"))
    yield p
    faults = p.faults()
    p.close()
    assert not faults, faults


def write(page, text):
    """As if it was pasted."""
    page.run("const a = document.querySelector('textarea'); a.value = arguments[0];"
             "a.setSelectionRange(a.value.length, a.value.length); a.dispatchEvent(new InputEvent('input'))", text)
    page.find("textarea")[0].send_keys("")
    page.run("document.querySelector('textarea').focus()")


def area(page):
    return page.find("textarea")[0].get_property("value")


def offered(page):
    return [li.text.split()[0] for li in page.find(".words li")]


def is_checked(page):
    return page.find('[data-action="submit"]')[0].is_enabled()


def test_fields_and_values_are_completed_from_the_schema(page):
    write(page, "train:\n")
    page.key("  opti")
    page.wait("what it could be", lambda: offered(page) == ["optimizer"])
    page.key(Keys.TAB)
    assert area(page) == "train:\n  optimizer: "
    write(page, "parallel:\n  cp_mode: ")
    page.key(Keys.CONTROL, " ")
    page.wait("its values", lambda: offered(page) == ["zigzag", "ulysses"])
    page.key(Keys.NULL, Keys.ARROW_DOWN, Keys.ENTER)
    assert area(page) == "parallel:\n  cp_mode: ulysses"
    page.key(Keys.ENTER)
    assert area(page).endswith("ulysses\n  "), "the next line goes on where this one began"


def test_a_fault_is_shown_at_its_line(page):
    write(page, "name: faulty\ndevices:\n  min: 3\n  max: 2\nprioriti: 5\ncommand: {argv: [x]}\n")
    page.wait("both", lambda: len(page.find(".faults li")) == 2)
    assert [b.text for b in page.find(".faults button")] == ["Line 4", "Line 5"]
    assert [s.text for s in page.find(".numbers-of-lines .bad")] == ["4", "5"]
    assert not is_checked(page)
    page.find(".faults button")[1].click()
    chosen = "const a = document.activeElement; return a.value.slice(a.selectionStart, a.selectionEnd)"
    assert page.run(chosen) == "prioriti: 5"
    write(page, "name: faulty\ndevices: {min: 1\n")
    page.wait("the syntax", lambda: [b.text for b in page.find(".faults button")] in (["Line 2"], ["Line 3"]))


def test_the_plan_is_shown_with_the_memory_of_each_stage(page, cluster):
    corpus = specs.write_corpus(f"{cluster.folder}/corpus.txt", documents=40)
    write(page, f"""name: planned
devices: {{min: 2, max: 2}}
train:
  model: gpt2-tiny
  data: {{path: {corpus}, format: text}}
  steps: 50
parallel: {{pp: 2, tp: 1}}
""")
    page.wait("its stages", lambda: len(page.find(".stages li")) == 2)
    assert page.find(".stages .stack-bar")[0].get_attribute("aria-label").startswith("stage 0: weights ")
    said = page.find('[aria-label="Plan"]')[0].text
    assert "at once" in said and "pp2" in said and "A step takes" in said and "50 steps" in said


def test_the_text_is_a_command_line_and_a_job(page, cluster):
    write(page, "name: typed\ncommand:\n  argv: [/bin/sh, -c, 'echo typed']\n")
    page.wait("no fault", lambda: is_checked(page))
    page.find('[data-action="cli"]')[0].click()
    assert page.find(".as-cli code")[0].text.startswith("muster submit - <<'END'\nname: typed\n")
    page.find('[data-action="submit"]')[0].click()
    page.wait("its page", lambda: page.find("h1")[0].text == "typed")
    job = page.run("return location.hash").split("/")[-1]
    assert cluster.wait(job, "succeeded")["spec"]["command"]["argv"] == ["/bin/sh", "-c", "echo typed"]


def test_another_jobs_spec_is_edited_and_run(page, cluster):
    job = cluster.submit(specs.command("echo 'a: b'\nexit 0\n", name="first", priority=60))["id"]
    cluster.wait(job, "succeeded")
    page.open(f"/#/jobs/{job}")
    page.wait("the button", lambda: page.find('[data-action="edit"]')[0].is_displayed())
    page.find('[data-action="edit"]')[0].click()
    page.wait("its spec", lambda: "name: first" in area(page))
    assert "priority: 60" in area(page) and "project" not in area(page), "what is the default is left out"
    write(page, area(page).replace("name: first", "name: second"))
    page.wait("no fault", lambda: is_checked(page))
    page.find('[data-action="submit"]')[0].click()
    page.wait("its page", lambda: page.find("h1")[0].text == "second")
    made = cluster.wait(page.run("return location.hash").split("/")[-1], "succeeded")["spec"]
    assert {**made, "name": "first"} == cluster.job(job)["spec"]
