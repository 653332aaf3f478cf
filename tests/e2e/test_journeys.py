"""Two walks through the app, as a teacher and as an agent engineer would take them, and pages at every size and theme."""

import json
import re

import pytest

from offrl_core.figures.theme import contrast
from tests.traces import AIRLINE, shared_trace


def settle(page) -> None:
    """Wait until the script has run and the page has drawn."""
    page.wait_for_selector("h1")
    page.wait_for_function("() => !document.querySelector('[data-testid=stApp][data-test-script-state=running]')")
    page.wait_for_timeout(300)


def see(page, text, timeout=None) -> None:
    """Wait for a text. While a page draws, a text may stand in it twice, which a strict `wait_for` would call an error."""
    page.get_by_text(text).filter(visible=True).first.wait_for(timeout=timeout)


def place_of_cell(page, figure: str, state: str, action: str) -> list[float]:
    """Where on the screen a cell of a map is."""
    chart = page.locator(f"[class*='st-key-w-fig-{figure}'] .js-plotly-plot")
    chart.wait_for()
    chart.scroll_into_view_if_needed()
    return chart.evaluate(
        """(plot, [state, action]) => {
            const cells = plot.data.findIndex(t => t.name === 'cells');
            const trace = plot._fullData[cells];
            const i = trace.customdata.findIndex(pair => pair[0] === state && pair[1] === action);
            const { xaxis, yaxis } = plot._fullLayout;
            const box = plot.getBoundingClientRect();
            return [box.x + xaxis._offset + xaxis.c2p(trace.x[i]), box.y + yaxis._offset + yaxis.c2p(trace.y[i])];
        }""",
        [state, action],
    )


def click_cell(page, figure: str, state: str, action: str) -> None:
    """Click the cell of a map."""
    place = place_of_cell(page, figure, state, action)
    page.mouse.move(*place)
    page.mouse.click(*place)


def tap_cell(page, figure: str, state: str, action: str) -> None:
    """Tap the cell of a map with a finger."""
    page.touchscreen.tap(*place_of_cell(page, figure, state, action))


def test_the_story_from_the_first_screen_to_zero_rows(page):
    page.goto("/")
    settle(page)
    page.get_by_test_id("stCheckbox").get_by_text("Take mul out of the log").click()
    see(page, "Naive FQI wins.")
    page.get_by_text("returns a wrong result", exact=True).click()
    see(page, "luck is gone")
    dial = page.get_by_role("slider")
    dial.focus()
    for _ in range(24):  # from 0 to -1.2
        dial.press("ArrowLeft")
    see(page, "stays inside the log and picks a wrong operation")
    page.wait_for_url(lambda url: "guess=-1.2" in url and "deployment=broken" in url)
    settle(page)
    page.get_by_role("link", name="Q-values").click()
    see(page, "click a cell")
    settle(page)
    click_cell(page, "q_maps", "mul: x, y known", "mul")
    see(page, "0 rows.")
    see(page, "No row of the log speaks for or against it.")


def test_back_and_forward_undo_and_redo_choices_across_pages(page):
    page.goto("/")
    settle(page)
    page.get_by_test_id("stCheckbox").get_by_text("Take mul out of the log").click()
    see(page, "Naive FQI wins.")
    page.wait_for_url(re.compile("edits=drop"))
    settle(page)
    page.get_by_role("link", name="Coverage").click()
    page.wait_for_url(re.compile(r"/coverage\?edits=drop"))
    settle(page)
    page.go_back()
    if "/coverage" in page.url:  # a browser that isn't slow keeps the address that it passed on the way
        page.wait_for_url(re.compile(r"/coverage\?edits=drop"))
        settle(page)
        page.go_back()
    see(page, "Naive FQI wins.")
    settle(page)
    page.go_back()
    see(page, "Both end up equal")
    assert "edits" not in page.url
    settle(page)
    page.go_forward()
    see(page, "Naive FQI wins.")
    settle(page)
    page.go_forward()
    page.get_by_role("heading", name="Coverage", level=1).wait_for()
    page.wait_for_url(re.compile(r"/coverage\?edits=drop"))
    page.go_forward()
    page.wait_for_url(re.compile(r"/coverage\?edits=drop"))


def test_back_and_forward_lose_no_choices_at_addresses_without_any(page):
    page.goto("/coverage")
    settle(page)
    for name in ("Ceiling", "Coverage"):
        page.get_by_role("link", name=name).click()
        page.get_by_role("heading", name=name, level=1).wait_for()
        settle(page)
    page.get_by_test_id("stNumberInputField").fill("88")
    page.get_by_test_id("stNumberInputField").press("Enter")
    page.wait_for_url(re.compile("min_count=88"))
    settle(page)
    page.get_by_role("link", name="Ceiling").click()
    page.wait_for_url(re.compile(r"/ceiling\?min_count=88"))
    settle(page)
    page.go_back()
    page.wait_for_url(re.compile("min_count=88"))
    page.goto("/q_values?min_count=240&guess=-0.7")
    settle(page)
    page.get_by_role("link", name="Evaluate").click()
    page.wait_for_url(re.compile("/evaluate"))
    page.go_back()
    if "/evaluate" in page.url:  # the choices had already come into the address
        page.go_back()
    page.get_by_role("heading", name="Q-values", level=1).wait_for()
    settle(page)
    page.go_forward()
    page.wait_for_url(re.compile(r"/evaluate\?.*min_count=240"))


def test_an_engineers_file_from_upload_to_the_conversation_behind_a_cell(page):
    path = shared_trace(AIRLINE)
    page.goto("/data")
    settle(page)
    page.locator("input[type=file]").set_input_files(path)
    see(page, re.compile(r"2,454 steps in 200 episodes"))
    settle(page)
    page.get_by_role("link", name="Q-values").click()
    see(page, "no exact value")
    settle(page)
    click_cell(page, "q_maps", "get_user_details", "get_reservation_details")
    see(page, "The rows")
    settle(page)
    table = page.locator("[class*='st-key-w-evidence_rows'] canvas").first
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    page.mouse.click(box["x"] + 16, box["y"] + 52)  # the tick box of the first row
    see(page, "The conversation, as it stands in the file")
    see(page, "this decision")
    assert page.get_by_text("→ get_reservation_details").count()


def workbench_files(folder):
    """Twenty short runs of an agent without rewards, and a file that judges nineteen of them and one that isn't there."""
    runs, verdicts = [], ["run,passed"]
    for i in range(20):
        tools = ["search", "open", "answer"] if i % 2 else ["search", "answer"]
        for t, tool in enumerate(tools):
            last = t == len(tools) - 1
            runs.append(
                {"episode_id": f"run-{i}", "t": t, "task": f"task {i % 4}", "terminal": last, "timeout": False}
                | {"action": {"type": "tool_call", "tool": tool, "arguments": {"q": i}}}
            )
        if i:
            verdicts.append(f"run-{i},{'true' if i % 3 else 'false'}")
    verdicts.append("run-99,true")
    traces, rewards = folder / "runs.jsonl", folder / "verdicts.csv"
    traces.write_text("\n".join(json.dumps(step) for step in runs), encoding="utf-8")
    rewards.write_text("\n".join(verdicts), encoding="utf-8")
    return traces, rewards


def open_log_tool(page, name):
    """A page of the menu "Log tools"."""
    page.get_by_text("Log tools").first.click()
    page.get_by_role("menuitem", name=name).click()


def test_the_workbench_from_a_file_without_rewards_to_its_values_and_back(page, tmp_path):
    traces, rewards = workbench_files(tmp_path)
    page.goto("/data")
    settle(page)
    page.locator("input[type=file]").set_input_files(traces)
    see(page, "50 steps in 20 episodes")
    settle(page)
    page.reload()
    see(page, "50 steps in 20 episodes")
    settle(page)
    page.get_by_role("link", name="Report").click()
    see(page, "blocked")
    settle(page)
    open_log_tool(page, "Rewards")
    settle(page)
    page.locator("input[type=file]").set_input_files(rewards)
    see(page, re.compile("matched 19 of 20 episodes", re.I))
    page.get_by_role("button", name="Apply").click()
    see(page, "19 of 20 episodes have a reward now")
    settle(page)
    page.get_by_role("link", name="Framing").click()
    see(page, "pairs of state and action the same action led to different outcomes")
    settle(page)
    table = page.locator("[class*='st-key-w-mixed'] canvas").first
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    page.mouse.click(box["x"] + 16, box["y"] + 52)
    see(page, "The rows")
    settle(page)
    page.get_by_role("link", name="Train").click()
    see(page, "no exact value")
    settle(page)
    page.get_by_role("link", name="Q-values").click()
    see(page, "Click a cell")
    settle(page)
    page.get_by_role("link", name="Data").click()
    settle(page)
    page.get_by_text("Take the log away as a file").click()
    settle(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON lines").click()
    copy = tmp_path / "copy.jsonl"
    download.value.save_as(copy)
    page.locator("input[type=file]").first.set_input_files(copy)
    see(page, "50 steps in 20 episodes")
    settle(page)
    assert page.get_by_text("19 of 20 with a known outcome").count()


def test_a_run_outlives_the_tab_that_started_it(page, browser, server):
    link = "/train?learners=fqi_sampled&edits=keep:0.1:0&seed=11"
    page.goto(link)
    settle(page)
    page.get_by_role("button", name=re.compile("^Train ")).click()
    page.get_by_role("button", name="Stop").wait_for()
    page.goto("about:blank")
    later = browser.new_context(base_url=server).new_page()
    later.goto(link)
    see(later, "episodes solved, exactly", timeout=60_000)
    assert not later.get_by_role("button", name=re.compile("^Train ")).count()
    later.context.close()


def test_a_reloaded_page_may_stop_what_it_started_and_it_goes_on_or_is_kept(page):
    page.goto("/train?learners=cql_neural&data=calculator_without_mul&seeds=1&seed=3&budget=100000")
    settle(page)
    page.get_by_role("button", name=re.compile("^Train ")).click()
    see(page, re.compile("gradient step [0-9,]+ of 100,000"))
    page.goto("/train?learners=cql_neural&data=calculator_without_mul&seeds=1&seed=3&budget=500")
    see(page, re.compile("Also training: Neural CQL, 1 seed, gradient step"))
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(lambda url: "budget=100000" in url)
    see(page, re.compile("gradient step [0-9,]+ of 100,000, "))
    page.reload()
    steps = []
    for _ in range(2):
        page.get_by_role("button", name="Stop").click()
        see(page, "It was stopped at gradient step")
        steps.append(
            int(page.get_by_text("It was stopped at gradient step").inner_text().split(" ")[-3].replace(",", ""))
        )
        page.get_by_role("button", name=re.compile("^Go on with ")).click()
        see(page, re.compile("gradient step [0-9,]+ of 100,000"))
    assert 0 < steps[0] < steps[1], "from where it stood"
    page.get_by_role("button", name="Stop").click()
    keep = page.get_by_role("button", name=re.compile("^Keep [0-9,]+ gradient steps"))
    keep.wait_for()
    settle(page)
    kept = int(re.search("[0-9,]+", keep.inner_text()).group().replace(",", ""))
    assert kept > steps[1]
    keep.click()
    page.get_by_role("button", name="Pin").wait_for()
    page.wait_for_url(lambda url: f"budget={kept}" in url)


def test_eight_networks_are_watched_one_is_stopped_and_the_link_finds_the_others(page, browser, server):
    link = "/train?learners=cql_neural&data=calculator_without_mul&seeds=8&seed=40&budget=2000"
    page.goto(link)
    settle(page)
    page.get_by_role("button", name=re.compile("^Train ")).click()
    curves = "[class*='st-key-w-picture'] svg polyline"
    page.locator(curves).first.wait_for(timeout=60_000)
    picture = page.locator("[class*='st-key-w-picture']").first
    picture.evaluate("place => { place.dataset.here = 'yes'; }")
    seen = {page.locator(curves).last.get_attribute("points")}
    for _ in range(40):
        page.wait_for_timeout(250)
        seen.add(page.locator(curves).last.get_attribute("points"))
        if len(seen) > 2:
            break
    assert len(seen) > 2, "curves move"
    assert picture.get_attribute("data-here") == "yes", "in their place"
    page.get_by_role("button", name="Stop one seed").click()
    page.get_by_role("button", name="seed 41").click()
    see(page, "Seed 41 was stopped")
    page.goto("about:blank")
    later = browser.new_context(base_url=server).new_page()
    later.goto(link)
    see(later, "7 of 8 seeds are done", timeout=60_000)
    later.locator(curves).first.wait_for()  # drawn after the sentence
    assert later.locator(curves).count() > 8
    assert later.get_by_role("button", name="Go on with Neural CQL").count(), "what was stopped can go on"
    later.context.close()


def test_a_triangle_of_a_grid_opens_its_evidence_in_each_of_its_pictures(page):
    page.goto("/q_values?data=generated&gen_world=gridworld&gen_behavior=careful&gen_episodes=200")
    settle(page)
    click_cell(page, "grid-Learned", "row 3, column 1", "right")
    page.get_by_role("heading", name="right in row 3, column 1").wait_for()
    see(page, "0 rows.")
    settle(page)
    click_cell(page, "grid-Visits", "row 3, column 0", "up")
    page.get_by_role("heading", name="up in row 3, column 0").wait_for()


def test_the_dials_of_continuous_show_their_values_when_they_are_opened(page):
    """After a click elsewhere; what is drawn before it is opened would show its least value."""
    page.goto("/continuous?seed=3&cart_episodes=50")
    page.get_by_role("button", name="Learn").click()
    see(page, "gradient steps")
    settle(page)
    page.get_by_role("button", name="More").click()
    dials = page.locator("[data-testid=stPopoverBody] input")
    dials.first.wait_for()
    settle(page)
    assert [dial.input_value() for dial in dials.all()] == ["50", "3", "2.50", "1.00"]


def test_continuous_actions_learn_while_one_looks_and_stop_and_go_on(page):
    page.goto("/continuous?cart_episodes=50")
    page.get_by_role("button", name="Learn").click()
    see(page, "gradient steps")
    page.get_by_role("button", name="Stop").click()
    see(page, re.compile("stopped: [0-9,]+ of 6,000"))
    said = page.get_by_text("gradient steps").inner_text()
    page.get_by_role("button", name="Go on").click()
    page.get_by_text(said.removeprefix("stopped")).wait_for(state="detached")  # a step further


def test_a_click_that_arrives_twice_does_what_one_does(page):
    """Streamlit's browser part sends a click once more where the timer of a fragment comes between, and people click twice."""
    page.add_init_script(
        "let clicked = -1000; addEventListener('click', () => { clicked = performance.now(); }, true);"
        "const { send } = WebSocket.prototype;"
        "WebSocket.prototype.send = function (message) {"
        "  send.call(this, message);"
        "  if (performance.now() - clicked < 200) setTimeout(() => send.call(this, message), 400); };"
    )
    page.goto("/continuous?cart_episodes=50&seed=77")
    page.get_by_role("button", name="Learn").click()
    see(page, "gradient steps")
    page.get_by_role("button", name="Stop").click()
    see(page, "stopped: ")
    page.wait_for_timeout(1500)
    see(page, "stopped: ")

    page.goto("/train?learners=bc_neural&seeds=1&budget=20&edits=keep:0.9:0,keep:0.8:0")
    page.get_by_role("button", name="Train Neural BC").click()
    page.get_by_role("button", name="Pin").click()
    page.get_by_role("button", name="Unpin 1").wait_for()
    page.wait_for_timeout(1500)
    page.get_by_role("button", name="Unpin 1").wait_for()
    page.get_by_role("button", name="90 %").click()
    page.get_by_role("button", name="90 %").wait_for(state="detached")
    page.wait_for_timeout(1500)
    assert "edits=keep%3A0.8%3A0" in page.url
    assert not page.locator("[data-testid=stException]").count()


# Texts of figures in a colour that is neither the page's own nor the black or white of numbers on a coloured cell.
PALE_TEXTS = """() => {
    const inks = ['rgb(0, 0, 0)', 'rgb(255, 255, 255)', getComputedStyle(document.querySelector('h1')).color];
    const texts = [...document.querySelectorAll('.js-plotly-plot text')];
    return texts.filter(t => t.textContent && !inks.includes(getComputedStyle(t).fill)).map(t => t.textContent);
}"""
SCREENS = {
    "light, wide": {"viewport": {"width": 1440, "height": 1000}, "color_scheme": "light"},
    "dark, phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}


@pytest.mark.parametrize("page", SCREENS.values(), ids=list(SCREENS), indirect=True)
def test_every_page_fits_every_screen(page):
    for path in (
        "/",
        "/data",
        "/mapping",
        "/rewards",
        "/report",
        "/framing",
        "/coverage",
        "/ceiling",
        "/train",
        "/q_values",
        "/shift",
        "/continuous",
        "/deadly_triad",
        "/query",
    ):
        page.goto(f"{path}?edits=drop:mul:recollect")
        settle(page)
        assert not page.locator("[data-testid=stException]").count(), path
        width, screen = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert width <= screen, f"{path} is wider than the screen"
        assert not page.evaluate(PALE_TEXTS), path
        for number in page.get_by_test_id("stMetric").all():
            assert number.bounding_box()["width"] <= screen / 2 or screen > 640, (
                f"{path}: a number has a row for itself"
            )


# Colours of text and ground of what is filled with the primary colour, as six hexadecimal digits.
FILLED = """() => [
    ...document.querySelectorAll('[data-testid=stBaseButton-primary]'),
    ...document.querySelectorAll('[data-testid=stMultiSelectTagsContainer] > span > span'),
].map(e => [getComputedStyle(e.querySelector('p') ?? e).color, getComputedStyle(e).backgroundColor].map(
    colour => '#' + colour.match(/[0-9]+/g).slice(0, 3).map(n => (+n).toString(16).padStart(2, '0')).join('')
))"""


@pytest.mark.parametrize("page", SCREENS.values(), ids=list(SCREENS), indirect=True)
def test_what_is_filled_with_the_primary_colour_can_be_read(page):
    page.goto("/train?learners=cql_neural&seed=5")
    page.get_by_role("button", name="Train Neural CQL").wait_for()
    settle(page)
    filled = page.evaluate(FILLED)
    assert len(filled) == 2
    assert min(contrast(ink, ground) for ink, ground in filled) >= 4.5


@pytest.mark.parametrize("page", [{"viewport": {"width": 1280, "height": 720}}], ids=["projector"], indirect=True)
def test_a_projector_shows_both_pictures_of_the_story_and_half_a_screen_of_curves(page):
    page.goto("/?edits=drop:mul:recollect")
    settle(page)
    assert page.locator(".st-key-bar").bounding_box()["height"] < 75, "a chip makes it hardly higher"
    for picture in page.locator(".orl-figure").all():
        box = picture.bounding_box()
        assert box["y"] + box["height"] <= 720
    page.goto("/coverage?edits=drop:mul:recollect")
    settle(page)
    for number in page.get_by_test_id("stMetric").all():
        box = number.bounding_box()
        assert box["y"] + box["height"] <= 720, "what an edit did"
    page.goto("/train?learners=fqi_neural")
    settle(page)
    start = page.get_by_role("button", name=re.compile("^Train ")).bounding_box()
    assert start["y"] + start["height"] <= 360, "curves follow below"
    page.goto("/evaluate")
    see(page, "From the log alone")
    for by_task in (False, True):
        if by_task:
            page.get_by_text("By task", exact=True).click()
        settle(page)
        tables = page.locator("[data-testid=stDataFrame] .dvn-scroller")
        tables.nth(1).wait_for()  # the browser fetches what draws tables when it meets the first one
        assert tables.count() == 2
        for table in tables.all():
            width, room = table.evaluate("scroller => [scroller.scrollWidth, scroller.clientWidth]")
            assert width <= room, "no column is cut"


def test_the_first_page_is_found_by_its_name_too(page):
    page.goto("/overview?edits=drop:mul:recollect")
    see(page, "Naive FQI wins.")
    settle(page)
    assert not page.get_by_text("Page not found").count()
    assert page.get_by_role("link", name="Overview").count() == 1
    page.get_by_role("link", name="Coverage").click()
    page.get_by_role("heading", name="Coverage", level=1).wait_for()


def swipe(page, start, end) -> None:
    """A finger on its way from one place to another; Playwright itself only knows taps."""
    touch = page.context.new_cdp_session(page)
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": start[0], "y": start[1]}]})
    for i in range(1, 11):
        x, y = (a + (b - a) * i / 10 for a, b in zip(start, end, strict=True))
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x, "y": y}]})
        page.wait_for_timeout(16)
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(500)


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize("page", [PHONE], ids=["phone"], indirect=True)
def test_a_finger_scrolls_over_maps_and_opens_their_cells(page):
    page.goto("/q_values")
    see(page, "Click a cell")
    frame = page.locator("[class*='st-key-w-fig-q_maps']")
    frame.locator(".nsewdrag").first.wait_for()
    settle(page)
    frame.evaluate("frame => frame.scrollIntoView({ block: 'start' })")
    place = "frame => [frame.scrollLeft, document.querySelector('[data-testid=stMain]').scrollTop]"
    left, top = frame.evaluate(place)
    swipe(page, (300, 400), (150, 400))
    swipe(page, (200, 300), (200, 500))
    assert "A tap on a cell names its state" in frame.evaluate("frame => getComputedStyle(frame, '::before').content")
    moved_left, moved_top = frame.evaluate(place)
    assert moved_left > left + 50
    assert moved_top < top - 50
    tap_cell(page, "q_maps", "mul: x, y known", "mul")
    page.get_by_role("heading", name="mul in mul: x, y known").wait_for()
    frame.locator(".hovertext").get_by_text("mul: x, y known").wait_for()  # its name has been scrolled away


def test_the_first_visitor_of_a_server_may_come_by_a_deep_link(browser, fresh_server):
    """Nobody has seen the first page yet; the link still opens its page, bar and all, and nothing says "not found"."""
    page = browser.new_context(base_url=fresh_server).new_page()
    page.goto("/q_values?edits=drop:mul:recollect")
    page.get_by_role("heading", name="Q-values").wait_for()
    page.locator(".st-key-bar").wait_for()
    page.wait_for_timeout(1000)
    assert not page.get_by_text("Page not found").count()
    page.context.close()


def test_a_deep_link_reproduces_the_page_for_a_new_visitor(page, browser, server):
    page.goto("/q_values?edits=drop:mul:recollect&guess=-0.5&cell_state=mul: x, y known&cell_action=mul")
    settle(page)
    see(page, "0 rows.")
    see(page, "-0.5000")


def test_texts_of_a_file_are_shown_and_not_obeyed(page, tmp_path):
    """Images don't load, links don't live, scripts don't run; the fixture fails on any request to another host."""
    evil = (
        "![x](http://example.org/a.png) <img src='http://example.org/b.png'> [k](http://example.org) "
        "http://example.org www.example.org <script>window.hit=1</script>"
        "\n\n# HEAD\n\n![y](http://example.org/c.png)\r\r[l](http://example.org)"
    )
    lines = [
        {
            "episode_id": evil,
            "t": t,
            "task": evil,
            "action": {"type": "tool_call", "tool": evil, "arguments": {"q": evil}},
        }
        | {"observation": {"tool_result": evil, "error": evil}, "reward": float(t), "done": t == 1}
        for t in range(2)
    ]
    path = tmp_path / "evil.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    page.goto("/data")
    settle(page)
    page.locator("input[type=file]").set_input_files(path)
    see(page, re.compile("2 steps in 1 episode"))
    for name in ("Coverage", "Train", "Q-values", "Query"):
        if name == "Query":
            open_log_tool(page, name)
        else:
            page.get_by_role("link", name=name).click()
        settle(page)
        assert page.evaluate("window.hit") is None
        assert not page.locator("a[href*='example.org'], img[src*='example.org']").count(), name
