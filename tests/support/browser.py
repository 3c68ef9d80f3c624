"""A real browser for tests of pages: Debian's chromium, without a window."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kafka_clients import wait_until
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

_CHROMIUM: Final = Path("/usr/bin/chromium")
_DRIVER: Final = Path("/usr/bin/chromedriver")
_AXE: Final = Path(__file__).parents[1] / "data" / "axe-core-4.14.1" / "axe.min.js"
_HEIGHT: Final = 1_000


def why_not() -> str | None:
    """Return why there is no browser; None: there is one."""
    missing = [str(path) for path in (_CHROMIUM, _DRIVER) if not path.exists()]
    return (
        f"not installed: {', '.join(missing)} (apt-get install chromium chromium-driver)" if missing else None
    )


class Browser:
    """A browser at the pages of one address."""

    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver, self.address = driver, address

    def go(self, path: str) -> None:
        self.driver.get(self.address + path)

    @contextmanager
    def at(self, port: int) -> Iterator[None]:
        """Look at the pages of another server within a block."""
        before, self.address = self.address, f"http://127.0.0.1:{port}"
        try:
            yield
        finally:
            self.driver.get("about:blank")  # asks for nothing when the server has ended
            self.address = before

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def texts(self, css: str) -> list[str]:
        """The texts of elements, shown or not; one script, since each call takes milliseconds."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", css
        )
        return found

    def text(self, css: str = "main") -> str:
        return " ".join(" ".join(self.texts(css)).split())

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            try:
                return condition()
            except StaleElementReferenceException:
                return False

        wait_until(holds, what, timeout_s=60)

    def shows(self, text: str, css: str = "main") -> None:
        self.wait(lambda: text in self.text(css), f"{text!r} in {css}")

    def leaves(self, act: Callable[[], object]) -> None:
        """Do what leads to another page, and wait for that."""
        self.run("document.documentElement.dataset.left = 'no'")
        act()
        self.wait(
            lambda: self.run(
                "return document.readyState == 'complete' && !document.documentElement.dataset.left"
            ),
            "the next page",
        )

    def complaints(self) -> list[str]:
        """What the console says of errors and warnings since the last time."""
        entries: list[dict[str, str]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [f"{one['level']}: {one['message']}" for one in entries]

    def resized(self, width: int, height: int = _HEIGHT) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefers(self, scheme: str) -> None:
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def findings(self, *rules: str) -> list[str]:
        """The serious and critical findings of axe-core on this page, by some rules or all."""
        if not self.run("return 'axe' in window"):
            self.run(_AXE.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "const [rules, done] = arguments;"
            "const only = rules.length ? {runOnly: {type: 'rule', values: rules}} : {};"
            "axe.run(document, {resultTypes: ['violations'], ...only}).then((all) => done(all.violations))",
            rules,
        )
        return [
            f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:3]
        ]


@contextmanager
def browsing(address: str, *, scripts: bool = True) -> Iterator[Browser]:
    """Start a browser for the length of a block."""
    options = ChromeOptions()
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *("--disable-extensions", "--disable-background-networking", "--no-first-run", "--lang=en"),
        f"--window-size=1400,{_HEIGHT}",
    ):
        options.add_argument(argument)
    if not scripts:
        options.add_argument("--blink-settings=scriptEnabled=false")
    options.binary_location = str(_CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(str(_DRIVER)))
    try:
        driver.set_script_timeout(120)
        yield Browser(driver, address)
    finally:
        driver.quit()
