"""The app as a visitor meets it: a real server, a real Chromium, times taken by the page's own clock."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from offrl_core.worlds import WORLDS

from .measure import Line, cost

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REPETITIONS, STARTS, BAR_MS = 20, 5, 300
EMPTY_APP = 'import streamlit as st\nst.title("Empty")\n'
STORY = "/?edits=drop:mul:recollect"

# Resolves with milliseconds from the next input to the last change of paragraph or figures; 400 ms of rest end it.
WATCH = """() => new Promise(resolve => {
  const look = () => [...document.querySelectorAll('.orl-figure, [data-testid=stMarkdown] p')]
    .filter(e => e.getClientRects().length)
    .map(e => e.tagName === 'P' ? e.textContent : e.innerHTML).join('|');
  let seen = look(), input = null, last = null, rest = null;
  const start = event => { if (input === null) input = event.timeStamp; };
  const kinds = ['pointerdown', 'keydown'];
  kinds.forEach(kind => window.addEventListener(kind, start, {capture: true}));
  const watch = new MutationObserver(() => {
    if (input === null) return;
    const now = look();
    if (now === seen) return;
    seen = now;
    last = performance.now();
    clearTimeout(rest);
    rest = setTimeout(() => {
      watch.disconnect();
      kinds.forEach(kind => window.removeEventListener(kind, start, {capture: true}));
      resolve(last - input);
    }, 400);
  });
  const changes = {subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ['style']};
  watch.observe(document.body, changes);
  window.watching = true;
})"""


def browser_path() -> str | None:
    """A Chromium on this machine."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@contextmanager
def running_server(script: Path, **variables: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Streamlit server of a script, with these environment variables: its address once it answers, and the process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"headless": "true", "port": port, "address": "127.0.0.1", "fileWatcherType": "none"}
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--browser.gatherUsageStats=false"]
    command += [f"--server.{name}={value}" for name, value in options.items()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    process = subprocess.Popen(
        command, cwd=script.parent, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/_stcore/health", process)
        yield address, process
    finally:
        process.terminate()
        process.wait(10)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Until the server answers."""
    while process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1)
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError("the server ended before it answered")


def browser_lines() -> list[Line]:
    """All lines that need a browser, or one that says why there are none."""
    path = browser_path()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        return [Line("app in the browser", "not measured: needs Playwright and Chromium")]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            return [*interaction_lines(chromium), *first_screen_lines(chromium)]
        finally:
            chromium.close()


def interaction_lines(chromium: Any) -> list[Line]:
    """Input to new picture on Overview, and that no torch is in the server that drew it."""
    with running_server(ROOT / "app.py") as (address, process):
        page = chromium.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(address + STORY)
        ready(page, plots=2)
        titles = [deployment.title for deployment in WORLDS["calculator"].deployments.values()]
        toggle = page.get_by_test_id("stCheckbox").first
        dial = page.get_by_role("slider").first
        inputs: dict[str, Callable[[int], None]] = {
            "what `mul` does once deployed": lambda i: page.get_by_text(
                titles[(i + 1) % len(titles)], exact=True
            ).first.click(),
            "take `mul` out of the log, or put it back": lambda i: toggle.locator("label").click(),
            "a step of the dial": lambda i: dial.press("ArrowLeft"),
        }
        lines = []
        for what, act in inputs.items():
            times = [answer_time(page, act, i) for i in range(REPETITIONS)]
            median, slowest = statistics.median(times), max(times)
            met = median < BAR_MS
            lines.append(
                Line(
                    f"Overview, {what}: input to new picture",
                    f"{median:.0f} ms (slowest {slowest:.0f})",
                    "",
                    "",
                    f"< {BAR_MS} ms",
                    met,
                )
            )
        page.close()
        return [*lines, torch_line(process.pid)]


def answer_time(page: Any, act: Callable[[int], None], i: int) -> float:
    """Milliseconds from one input to the last change it causes."""
    page.evaluate("() => { window.watching = false; }")
    page.evaluate(f"() => {{ window.answer = ({WATCH})(); }}")
    page.wait_for_function("window.watching")
    act(i)
    return page.evaluate("() => window.answer")


def torch_line(pid: int) -> Line:
    """Whether the server has mapped any file of torch."""
    maps = Path(f"/proc/{pid}/maps")
    if not maps.exists():
        return Line("torch in the server after drawing Overview", "not measured: needs /proc")
    loaded = "/torch/" in maps.read_text()
    return Line(
        "torch in the server after drawing Overview",
        "loaded" if loaded else "not loaded",
        "",
        "",
        "not loaded",
        not loaded,
    )


def first_screen_lines(chromium: Any) -> list[Line]:
    """Ours against an empty app: from the start of the server, and from a visitor's click on the link."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.py"
        empty.write_text(EMPTY_APP, encoding="utf-8")
        ours, peer = [], []
        for _ in range(STARTS):
            ours.append(first_screen(chromium, ROOT / "app.py", plots=2))
            peer.append(first_screen(chromium, empty, plots=0))
    (our_cold, our_new, our_warm), (cold, new, warm) = (
        [statistics.median(column) for column in zip(*runs, strict=True)] for runs in (ours, peer)
    )
    name = "empty Streamlit app"
    return [
        cost("first useful screen, from starting the server", our_cold, cold, name, 3.5),
        cost("the same, server up, first visitor", our_new, new, name, 3.5),
        cost("the same, next visitor", our_warm, warm, name, 3.5),
    ]


def first_screen(chromium: Any, script: Path, plots: int) -> tuple[float, float, float]:
    """Seconds to the first useful screen: from the start of the process; once it answers; for the next visitor."""
    start = time.perf_counter()
    with running_server(script) as (address, _):
        up = time.perf_counter()
        visit(chromium, address, plots)
        done = time.perf_counter()
        visit(chromium, address, plots)
        return done - start, done - up, time.perf_counter() - done


def visit(chromium: Any, address: str, plots: int) -> None:
    """A visitor with an empty cache opens the page and waits for heading and plots."""
    context = chromium.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.goto(address)
    ready(page, plots)
    context.close()


def ready(page: Any, plots: int) -> None:
    """Wait for the heading and so many pictures."""
    page.wait_for_selector("h1")
    page.wait_for_function(f"() => document.querySelectorAll('.orl-figure').length >= {plots}")
