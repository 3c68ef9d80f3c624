"""The pages in a real browser: what scripts do, what hostile names do not, the keyboard, narrow screens,
accessibility, 2,000 groups."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from browser import Browser, browsing, why_not
from http_endpoint import Opened, opened
from kafka_clients import wait_until
from page_world import HOSTILE, PageWorld, named_offset
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from table_batches import Batch, append, group, offset

from streaming.common.times import DAY_MS, MINUTE_MS, now_ms
from streaming.model.progress import PartitionProgress, Reached, Retention
from streaming.serve.page.asked import fingerprint
from streaming.serve.page.cells import name_text
from streaming.tables.tables import Tables

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]

CROWD = 2_000
OF_RETURNED = "group=returned&topic=orders&partition=0"
PAGES = [
    *("/", "/events", "/groups", "/group?group=returned", "/group/history?group=returned&span=hour"),
    *(f"/offset?{OF_RETURNED}", f"/offset/history?{OF_RETURNED}&span=hour", "/topics", "/topic?topic=orders"),
    *("/leftovers", "/expiring", "/removed", "/alerts", "/status"),
]
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> PageWorld:
    return PageWorld(tmp_path_factory.mktemp("browser") / "tables", now_ms(), crowd=CROWD)


@pytest.fixture(scope="module")
def endpoint(world: PageWorld) -> Iterator[Opened]:
    with opened(world.tables, every_s=1) as endpoint:
        yield endpoint
        assert endpoint.said == []


@pytest.fixture(scope="module")
def one_browser(endpoint: Opened) -> Iterator[Browser]:
    with browsing(f"http://127.0.0.1:{endpoint.endpoint.port}") as browser:
        yield browser


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """The browser of the module; its console must have said nothing at the end of each test."""
    one_browser.resized(1400)
    one_browser.prefers("light")
    one_browser.complaints()
    yield one_browser
    assert one_browser.complaints() == []


def loaded(browser: Browser) -> None:
    """Wait for the parts that load later."""
    browser.wait(
        lambda: browser.run(
            "return [...document.querySelectorAll('[data-part]')].every(e => e.dataset.loaded)"
        ),
        "the parts of the page",
    )


def groups(browser: Browser) -> list[str]:
    return browser.texts("tbody tr td:first-child a")


# --- every page ------------------------------------------------------------------------------------------

OF_COLOURS = ("color-contrast", "link-in-text-block")
"""The rules that find more or less in the dark."""

FEW_ROWS = "for (const row of document.querySelectorAll('tbody tr:nth-child(n+16)')) row.remove()"
"""What leaves axe-core less to do: the rows of a list are alike."""

TOO_WIDE = """
return document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll('main *, header *, footer *')]
    .filter((one) => !one.closest('.scroll, pre') && one.getBoundingClientRect().right > innerWidth + 1)
    .map((one) => one.outerHTML.slice(0, 120)).slice(0, 3)
"""


def test_no_page_has_errors_findings_or_is_wider_than_a_phone(browser: Browser) -> None:
    """Errors of scripts and of the content security policy; axe-core in light and dark; 360 pixels."""
    wrong = []
    for path in PAGES:
        browser.prefers("light")
        browser.go(path)
        loaded(browser)
        browser.resized(360)
        if browser.all(".uplot"):  # charts follow a little later
            browser.wait(lambda: browser.run(TOO_WIDE) == [], f"{path} to fit into 360 px")
        wrong += [f"{path} at 360 px: {one}" for one in browser.run(TOO_WIDE)]
        browser.resized(1400)
        browser.run(FEW_ROWS)
        wrong += [f"{path}: {one}" for one in [*browser.complaints(), *browser.findings()]]
        browser.prefers("dark")
        wrong += [f"{path} in the dark: {one}" for one in browser.findings(*OF_COLOURS)]
    assert wrong == []


@pytest.mark.more
def test_charts_are_drawn_and_say_what_they_show(browser: Browser) -> None:
    browser.go(f"/offset?{OF_RETURNED}")
    loaded(browser)
    assert browser.run("return document.querySelectorAll('.uplot canvas').length") >= 1
    assert (
        browser.one(".chart svg").get_attribute("aria-label").startswith("Committed offset between log start")
    )
    browser.resized(360)
    browser.wait(lambda: browser.run(TOO_WIDE) == [], "the chart to become narrower")
    browser.resized(1400)
    wide = "return document.querySelector('.uplot').getBoundingClientRect().width > 1000"
    browser.wait(lambda: browser.run(wide), "the chart to become wider")
    browser.one(".switch a").click()
    browser.shows("orders:0", "h1")
    browser.wait(lambda: browser.text(".switch a[aria-current]") == "hour", "the other span")
    assert urlsplit(browser.driver.current_url).path == "/offset"


# --- lists -----------------------------------------------------------------------------------------------


def test_groups_are_searched_sorted_and_paged(browser: Browser) -> None:
    browser.go("/")
    search = browser.one(".search input")
    search.send_keys("console-consumer-0199")
    browser.leaves(lambda: search.send_keys(Keys.ENTER))
    assert groups(browser) == [f"console-consumer-0199{number}" for number in range(10)]
    browser.leaves(browser.driver.find_element(By.LINK_TEXT, "Group").click)
    assert groups(browser)[0] == "console-consumer-01999"
    assert browser.one("th[aria-sort]").get_attribute("aria-sort") == "descending"
    browser.leaves(browser.driver.find_element(By.LINK_TEXT, "Show all").click)
    assert len(groups(browser)) == 100
    pages = (CROWD + len(HOSTILE) + 99) // 100
    assert int(browser.text(".pages span").split("of ")[1].split()[0]) in range(pages - 2, pages + 3)
    first = groups(browser)
    browser.leaves(browser.one("[rel=next]").click)
    assert set(first).isdisjoint(groups(browser))
    browser.leaves(browser.one("[rel=prev]").click)
    assert groups(browser) == first
    assert "console-consumer-*" in browser.text(".patterns")
    browser.one("select[name=state]").send_keys("Empty")
    browser.leaves(browser.one(".filters button").click)
    assert set(browser.texts("tbody td:nth-child(2)")) == {"Empty"}


# --- the past --------------------------------------------------------------------------------------------


@pytest.mark.more
def test_the_slider_leads_to_the_past_and_back(browser: Browser, world: PageWorld) -> None:
    browser.go("/group?group=dead")
    before = browser.texts("tbody td:nth-child(2)")[0]
    then = world._now - 22 * MINUTE_MS
    slider = "const one = document.getElementById('as_of');"
    browser.run(f"{slider} one.value = arguments[0]; one.dispatchEvent(new Event('input'))", then)
    shown = browser.text("[data-moment-shown]")
    assert shown.endswith("UTC")
    browser.leaves(browser.one(".past button").click)
    asked = parse_qs(urlsplit(browser.driver.current_url).query)
    assert asked["group"] == ["dead"]
    assert abs(int(asked["as_of"][0]) - then) <= MINUTE_MS
    assert browser.text(".as-of strong").startswith("As of 20")
    assert browser.texts("tbody td:nth-child(2)")[0] != before
    assert not browser.one(".live").is_displayed()
    browser.leaves(browser.driver.find_element(By.LINK_TEXT, "Back to now").click)
    assert parse_qs(urlsplit(browser.driver.current_url).query) == {"group": ["dead"]}
    assert browser.texts("tbody td:nth-child(2)")[0] == before


# --- hostile names ---------------------------------------------------------------------------------------


@pytest.mark.more
def test_hostile_names_do_nothing(browser: Browser) -> None:
    others = "document.querySelectorAll('iframe, object, base').length"
    ours = f"return [document.scripts.length, document.images.length, {others}]"
    browser.go("/status")
    expected = browser.run(ours)
    for name in (
        *("<script>alert(1)</script>", "</title><script>alert(1)</script>", '"><img src=x onerror=alert(1)>'),
        *("' onmouseover='alert(1)", "</script><svg onload=alert(1)>", "<!--", "\u202eright to left\u2069"),
    ):
        key = named_offset(name)
        for path in (f"/group?{urlencode({'group': name})}", f"/offset?{urlencode(key)}"):
            browser.go(path)
            loaded(browser)
            assert browser.run(ours) == expected, path
            assert name_text(name) in browser.text("h1")
    for path in ("/", "/events", "/removed", "/alerts", "/topics", "/groups?q=%3C"):
        browser.go(path)
        loaded(browser)
        assert browser.run(ours) == expected, path


@pytest.mark.more
def test_links_of_odd_names_lead_to_them_and_their_forms_too(browser: Browser) -> None:
    for name in ("nul\0", "two\nlines\r\nof text", "é" * 16_383 + "z", "a&group=b", "return\rhere", ""):
        if name not in HOSTILE:
            name = next(other for other in HOSTILE if other.startswith("NUL "))
        long = {"group_sha256": fingerprint(name)} if len(name) > 500 else {"group": name}
        browser.go(f"/group?{urlencode(long)}")
        assert browser.text("h1") == " ".join(f"Group {name_text(name)}".split())
        browser.leaves(browser.one(".past button").click)
        assert browser.text("h1") == " ".join(f"Group {name_text(name)}".split())
        assert "as_of=" in browser.driver.current_url


# --- updates ---------------------------------------------------------------------------------------------


ASK_NOW = "document.dispatchEvent(new Event('visibilitychange'))"
"""What a page asks after at once, if it is visible and updates are on."""


def requests(browser: Browser) -> int:
    """How often the page was asked for by its script."""
    count: int = browser.run(
        "return performance.getEntriesByType('resource').filter(e => e.initiatorType == 'fetch').length"
    )
    return count


@pytest.mark.more
def test_changes_appear_without_a_reload_but_not_under_the_pointer(browser: Browser, tables: Tables) -> None:
    """In tables of their own, which change quickly; also a removed offset, and no updates when stopped."""

    def write(committed: int | None) -> None:
        now = now_ms()
        partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
        row = (
            None
            if committed is None
            else offset(source_partition=0, committed_offset=committed, commit_timestamp=now)
        )
        rest = {"g": group(source_partition=0), ("g", "t", 1): offset(source_partition=0)}
        append(tables, {**rest, ("g", "t", 0): row}, now=now, partitions={0: partition})

    write(101)
    with opened(tables, every_s=0.2) as endpoint, browser.at(endpoint.endpoint.port):
        browser.go("/group?group=g")
        browser.run("window.isSame = true; performance.setResourceTimingBufferSize(10000)")
        write(202)
        browser.shows("202", "tbody td:nth-child(2)")
        pointer = ActionChains(browser.driver)

        def soon(text: str, css: str = "tbody td:nth-child(2)") -> None:
            """Wait for a text, without the pauses of some seconds between updates."""
            browser.wait(lambda: browser.run(ASK_NOW) or text in browser.text(css), f"{text} in {css}")

        def switch() -> None:
            browser.one("[data-live-switch]").click()
            pointer.move_to_element(browser.one("h1")).perform()  # off what may be below the switch now

        pointer.move_to_element(browser.one("tbody tr")).perform()
        write(303)
        soon("new data: shown when the pointer leaves", "[data-live-state]")
        assert "202" in browser.text("tbody td:nth-child(2)")
        pointer.move_to_element(browser.one("h1")).perform()
        browser.shows("303", "tbody td:nth-child(2)")
        assert browser.text("[data-live-state]") == ""
        switch()
        assert browser.text("[data-live-switch]") == "Live updates: off"
        write(404)
        asked = requests(browser)
        browser.wait(lambda: endpoint.tailer.current.progress.sequence == 4, "the tables")
        browser.run(ASK_NOW)
        assert (requests(browser), "303" in browser.text("tbody")) == (asked, True)
        switch()
        soon("404")
        browser.run(
            "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})"
        )
        asked = requests(browser)
        browser.run(ASK_NOW)
        write(505)
        browser.wait(lambda: endpoint.tailer.current.progress.sequence == 5, "the tables")
        assert requests(browser) - asked <= 1  # one may have been under way
        assert "404" in browser.text("tbody td:nth-child(2)")
        browser.run("delete document.visibilityState")
        soon("505")
        assert browser.run("return window.isSame")
        browser.go("/offset?group=g&topic=t&partition=0")
        browser.shows("505", ".tiles")
        write(None)
        soon("There is no committed offset at this moment.", "main")
        assert browser.complaints() == []
        assert endpoint.said == []


@pytest.mark.more
def test_an_expiry_passes_by_the_clock_alone(browser: Browser, tables: Tables) -> None:
    """Nothing is written and nothing reloaded: what will expire is due some seconds later."""
    now, kept_ms = now_ms(), 7 * DAY_MS
    retention = Retention(
        retention_ms=kept_ms, check_interval_ms=600_000, source="broker", read_at=now, known_since=now - 1
    )
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    since = now - kept_ms
    batch: Batch = {("g", "t", 0): offset(source_partition=0, commit_timestamp=since)}
    with opened(tables, every_s=0.2) as endpoint, browser.at(endpoint.endpoint.port):
        batch["g"] = group(source_partition=0, state="Empty", state_timestamp=now_ms() - kept_ms + 7_000)
        append(tables, batch, now=now_ms(), partitions={0: partition}, retention=retention)
        wait_until(lambda: endpoint.ask("/offset?group=g&topic=t").status == 200, "the group")
        wait_until(lambda: b"classic empty" in endpoint.ask("/offset?group=g&topic=t").body, "its expiry")
        browser.go("/offset?group=g&topic=t")
        assert "Expiresin " in browser.text(".tiles")
        browser.run("window.isSame = true")
        browser.shows("Expiresdue", ".tiles")
        assert browser.run("return window.isSame")
        browser.go("/expiring")
        assert browser.text("tbody td:first-child") == "due"


# --- keyboard, scripts, sign-in --------------------------------------------------------------------------


@pytest.mark.more
def test_the_keyboard_reaches_everything_and_shows_where_it_is(browser: Browser) -> None:
    browser.go("/groups?q=returned")
    keys = ActionChains(browser.driver)
    keys.send_keys(Keys.TAB).perform()
    skip = browser.driver.switch_to.active_element
    assert (skip.text, skip.is_displayed()) == ("Skip to the content", True)
    skip.send_keys(Keys.ENTER)
    assert browser.run("return document.activeElement.id") == "main"
    controls = "main a, main input:not([type=hidden]), main select, main button, main summary"
    wanted = len(browser.all(controls))
    reached = []
    for _ in range(wanted + 5):
        keys.send_keys(Keys.TAB).perform()
        tag, is_in, outline = browser.run(
            "const e = document.activeElement; return [e.tagName + (e.getAttribute('href') ?? e.name ?? ''),"
            " document.getElementById('main').contains(e), getComputedStyle(e).outlineStyle]"
        )
        if not is_in:
            break
        reached.append(tag)
        assert outline != "none", tag
    assert len([tag for tag in reached if not tag.startswith("DIV")]) == wanted
    browser.one("tbody a").send_keys(Keys.ENTER)
    browser.shows("Group returned", "h1")


@pytest.mark.more
def test_the_keyboard_opens_what_words_mean_and_it_stays_open(browser: Browser) -> None:
    browser.go("/groups?q=returned")
    keys = ActionChains(browser.driver)
    keys.move_to_element(browser.one("h1")).perform()

    def is_at_notes() -> bool:
        return bool(browser.run("return document.activeElement.matches('.notes summary')"))

    for _ in range(60):
        keys.send_keys(Keys.TAB).perform()
        if is_at_notes():
            break
    meaning = browser.one(".notes dd")
    assert not meaning.is_displayed()
    keys.send_keys(Keys.ENTER).perform()
    assert meaning.is_displayed()
    assert browser.findings() == []
    browser.run("document.querySelector('.notes').isOld = true")
    browser.wait(
        lambda: browser.run(f"{ASK_NOW}; return !document.querySelector('.notes').isOld"), "newer content"
    )
    assert (browser.one(".notes dd").is_displayed(), is_at_notes()) == (True, True)


@pytest.mark.more
def test_pages_work_without_scripts(endpoint: Opened) -> None:
    with browsing(f"http://127.0.0.1:{endpoint.endpoint.port}", scripts=False) as browser:
        driver = browser.driver
        for path in ("/", "/removed", "/topics", "/status", f"/offset?{OF_RETURNED}"):
            browser.go(path)
            assert driver.find_element(By.TAG_NAME, "main").text.startswith("As of"), path
        browser.go("/groups")
        driver.find_element(By.CSS_SELECTOR, ".filters [name=q]").send_keys("returned")
        driver.find_element(By.CSS_SELECTOR, ".filters button").click()
        browser.wait(lambda: "q=returned" in driver.current_url, "the search")
        driver.find_element(By.LINK_TEXT, "returned").click()
        assert driver.find_element(By.TAG_NAME, "h1").text == "Group returned"
        assert not driver.find_element(By.CSS_SELECTOR, ".live").is_displayed()
        slider = driver.find_element(By.ID, "as_of")
        slider.send_keys(Keys.ARROW_LEFT)
        driver.find_element(By.CSS_SELECTOR, ".past button").click()
        browser.wait(lambda: "as_of=" in driver.current_url, "the past")
        browser.go("/group?group=returned")
        driver.find_element(By.LINK_TEXT, "Show the history of the group").click()
        assert driver.find_element(By.CSS_SELECTOR, ".chart svg path").is_displayed()
        driver.find_element(By.LINK_TEXT, "The group").click()
        assert driver.find_element(By.TAG_NAME, "h1").text == "Group returned"


@pytest.mark.more
def test_viewers_sign_in_with_the_token_and_out(browser: Browser, world: PageWorld) -> None:
    with opened(world.tables, token=TOKEN) as endpoint, browser.at(endpoint.endpoint.port):
        endpoint.telling.pages.has_login = True  # as the settings of the process say
        browser.go("/groups?q=returned")
        assert [one for one in browser.findings() if "document-title" not in one] == []
        browser.one("#token").send_keys("wrong")
        browser.leaves(browser.one("button").click)
        assert browser.text("[role=alert]") == "This is not the token of this server."

        def signs_in() -> bool:
            browser.one("#token").send_keys(TOKEN)
            browser.leaves(browser.one("button").click)
            return browser.driver.current_url.endswith("/groups?q=returned")

        browser.wait(signs_in, "a right token to be taken again after a wrong one")
        assert groups(browser) == ["returned"]
        browser.leaves(browser.one("tbody a").click)
        loaded(browser)
        browser.leaves(browser.one("footer form button").click)
        assert urlsplit(browser.driver.current_url).path == "/login"
        browser.go("/groups")
        assert browser.all("tbody") == []
        browser.complaints()  # of refused requests
