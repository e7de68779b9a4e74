"""Webhooks in a real browser: added, tested, their deliveries seen, switched off and deleted."""
import json

import pytest

from tests.attack.test_webhooks import Receiver
from tests.cluster import Cluster
from tests.e2e.browser import Page
from tests.e2e.test_accessible import check


@pytest.fixture(scope="module")
def receiver():
    made = Receiver("127.0.0.1")
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("notices")), slots=0,
                 server_args=["--webhook-http", "--webhook-allow", "127.0.0.1/32"]) as c:
        yield c
    assert not c.leftovers()


@pytest.fixture(scope="module")
def page(cluster):
    p = Page(cluster.url)
    p.sign_in(cluster)
    yield p
    faults = p.faults()
    p.close()
    assert not faults, faults


def press(page, label):
    page.wait(label, lambda: page.find(f'[aria-label="{label}"]'))
    page.run("document.querySelector(arguments[0]).click()", f'[aria-label="{label}"]')


def test_a_webhook_is_added_tested_switched_off_and_deleted(page, cluster, receiver):
    page.run("location.hash = '#/notices'")
    page.says("No webhook yet")
    form = page.find('[aria-label="New webhook"]')[0]
    name, url = (form.find_element("css selector", f"[name={n}]") for n in ("name", "url"))
    name.send_keys("oncall")
    url.send_keys("ftp://nowhere")
    form.find_element("css selector", "[type=submit]").click()
    page.wait("why not", lambda: "http" in form.find_element("css selector", "[role=alert]").text)
    url.clear()
    url.send_keys(f"{receiver.url}/ok")
    form.find_element("css selector", "[type=submit]").click()
    page.wait("its secret", lambda: "whsec_" in form.text)
    assert [w["name"] for w in cluster.api("GET", "/v1/webhooks")["webhooks"]] == ["oncall"]
    press(page, "Send a test: oncall")
    page.wait("what became of it", lambda: "200 after" in page.find('[aria-label="Deliveries"]')[0].text)
    assert json.loads(receiver.got[0]["body"])["type"] == "webhook.test"
    assert check(page, "notices") == []
    press(page, "Switch off: oncall")
    page.wait("it is off", lambda: page.find('[aria-label="Switch on: oncall"]'))
    assert not cluster.api("GET", "/v1/webhooks/oncall")["enabled"]
    press(page, "Delete…: oncall")
    page.wait("the question", lambda: page.find("dialog[open] .danger"))[0].click()
    page.says("No webhook yet")
    assert cluster.api("GET", "/v1/webhooks")["webhooks"] == []
