"""A headless Chromium and the few gestures of the tests."""
import shutil
import tempfile

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.patience import PATIENCE_S


class Page:
    """A browser with nothing in it, and the few gestures of the tests."""

    def __init__(self, url):
        self.profile = tempfile.mkdtemp()
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
                         "--disable-background-networking", "--disable-component-update", "--window-size=1400,1000",
                         f"--user-data-dir={self.profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.url = url

    def close(self):
        self.driver.quit()
        shutil.rmtree(self.profile, ignore_errors=True)

    def anew(self, url):
        """For another server, as when it was started: a new tab, and nothing of what the last server's pages kept."""
        self.driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": self.url, "storageTypes": "all"})
        last = self.driver.current_window_handle
        self.driver.switch_to.new_window("tab")
        this = self.driver.current_window_handle
        self.driver.switch_to.window(last)
        self.driver.close()
        self.driver.switch_to.window(this)
        self.driver.set_window_size(1400, 1000)
        self.url = url

    def open(self, path):
        self.driver.get(self.url + path)

    def find(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def wait(self, what, check, seconds=PATIENCE_S):
        def tried(_):
            try:
                return check()
            except (StaleElementReferenceException, IndexError):  # not there, or not any more
                return False
        return WebDriverWait(self.driver, seconds, poll_frequency=0.1).until(
            tried, f"{what}; the page says:\n{self.text()}")

    def text(self):
        return self.find("body")[0].text

    def says(self, words, seconds=PATIENCE_S):
        self.wait(f"'{words}' is not shown", lambda: words in self.text(), seconds)

    def key(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    def state(self):
        return self.find(".job-title .pill")[0].text

    def run(self, script, *args):
        return self.driver.execute_script(script, *args)

    def tab_to(self, css):
        """Reach an element with the tab key alone, as someone without a mouse does."""
        for _ in range(60):
            if self.run("return document.activeElement.matches(arguments[0])", css):
                return
            self.key(Keys.TAB)
        raise AssertionError(f"the tab key does not reach {css}")

    def faults(self):
        """Errors of scripts and breaches of the page's policy since the last time."""
        return [e["message"] for e in self.driver.get_log("browser")
                if e["level"] == "SEVERE" and "Failed to load resource" not in e["message"]]

    def sign_in(self, cluster):
        self.open(f"/#token={cluster.token()}")
        self.says("Live")
