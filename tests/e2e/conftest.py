"""A real server and a real Chromium. Without a Chromium the browser tests skip and say so; in CI they must run."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Streamlit looks for its endpoints under the page's own path first; those misses are its normal way of finding itself.
HARMLESS = ("_stcore/host-config", "_stcore/health")


def browser_path() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        message = "browser tests need Chromium (Debian: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


@contextmanager
def running_server() -> Iterator[str]:
    """Address of a new server; what it printed is shown when it doesn't start."""
    browser_path()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless=true", f"--server.port={port}"]
    caches = tempfile.TemporaryDirectory()  # stored runs and saved mappings of nobody else
    process = subprocess.Popen(
        [*command, "--server.address=127.0.0.1", "--server.fileWatcherType=none"],
        cwd=ROOT,
        env={**os.environ, "OFFRL_RUNS": caches.name, "XDG_CACHE_HOME": caches.name},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            if process.poll() is not None:
                pytest.fail(f"the server ended: {process.stdout.read().decode()}")
            try:
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
                break
            except OSError:
                time.sleep(0.25)
        yield address
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
        caches.cleanup()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The server that most tests share."""
    with running_server() as address:
        yield address


@pytest.fixture
def fresh_server() -> Iterator[str]:
    """A server that nobody has visited yet."""
    with running_server() as address:
        yield address


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=browser_path(),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, server, request):
    """A page of a fresh visitor; fails the test on any console error or failed request of ours."""
    options = getattr(request, "param", {})
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 1000}, "base_url": server, **options})
    page = context.new_page()
    page.set_default_timeout(30_000)
    problems: list[str] = []
    page.on(
        "console", lambda m: problems.append(f"{m.text} ({m.location.get('url', '')})") if m.type == "error" else None
    )
    page.on("pageerror", lambda error: problems.append(str(error)))
    outside: list[str] = []
    page.on(
        "request", lambda r: outside.append(r.url) if not r.url.startswith((server, "data:", "blob:", "ws:")) else None
    )
    yield page
    context.close()
    assert not [p for p in problems if not any(name in p for name in HARMLESS)]
    assert not outside, "the app asked another host for something"
