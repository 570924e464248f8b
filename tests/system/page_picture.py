"""A picture of a web page after some clicks: Chromium without a window, driven over the WebDriver protocol."""

import base64
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from free_ports import free_port
from system.otel_parts import running, wait_until

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Page:
    """One browser window of `size` (width, height) pixels, showing one page."""

    def __init__(self, driver: str, profile: str, size: tuple[int, int]) -> None:
        width, height = size
        flags = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": {"args": flags}}}
        self._driver, self._session = driver, ""
        self._session = f"/session/{self._call('/session', capabilities=wanted)['sessionId']}"

    def _call(self, path: str, **arguments: object) -> dict[str, str]:
        request = urllib.request.Request(self._driver + path, json.dumps(arguments).encode())
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def open(self, url: str) -> None:
        """Go to an address."""
        self._call(f"{self._session}/url", url=url)

    def click(self, selector: str, *, count: int) -> None:
        """Wait until `count` elements match the CSS selector, and click each."""
        wait_until(lambda: len(self._matching(selector)) == count, f"{count} of {selector}")
        self._run("document.querySelectorAll(arguments[0]).forEach(e => e.click())", selector)

    def wait_for(self, selector: str, *, count: int) -> None:
        """Wait until `count` elements match the CSS selector."""
        wait_until(lambda: len(self._matching(selector)) == count, f"{count} of {selector}")

    def _matching(self, selector: str) -> Sequence[str]:
        return self._run("return [...document.querySelectorAll(arguments[0])].map(e => e.tagName)", selector)

    def _run(self, script: str, *arguments: str) -> Sequence[str]:
        return self._call(f"{self._session}/execute/sync", script=script, args=arguments)

    def picture(self) -> bytes:
        """Return what the window shows, as PNG."""
        request = f"{self._driver}{self._session}/screenshot"
        with urllib.request.urlopen(request, timeout=60) as answer:
            return base64.b64decode(json.load(answer)["value"])

    def close(self) -> None:
        request = urllib.request.Request(self._driver + self._session, method="DELETE")
        urllib.request.urlopen(request, timeout=60).close()


@contextmanager
def page(size: tuple[int, int]) -> Iterator[Page]:
    """Open a browser with a new profile; everything ends with the block."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        port = free_port()
        driver = stack.enter_context(
            running(
                ["chromedriver", f"--port={port}"],
                Path(folder) / "log",
                environment={"HOME": folder},
                ports={"DRIVER": port},
            )
        )
        wait_until(lambda: "started successfully" in driver.text(), "chromedriver ready", alive=driver)
        shown = Page(driver.url("DRIVER"), f"{folder}/profile", size)
        stack.callback(shown.close)
        yield shown
