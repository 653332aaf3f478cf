"""A browser is recognised after a reload: its trainings are its own, and the log it brought is still there."""

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.web.server.starlette.starlette_app_utils import generate_xsrf_token_string

from pages._ui import browser
from tests.core.helpers import episode, make_log
from tests.pages.conftest import APP, open_page, texts

TOKEN, OTHER = bytes(range(16)), bytes(16)


def recognised(cookie, monkeypatch):
    monkeypatch.setattr(browser, "_cookie", lambda: cookie)
    return browser._recognised()


def test_a_browser_is_the_same_whatever_mask_its_cookie_wears(monkeypatch):
    """The cookie that Streamlit's own code writes, anew in each answer."""
    cookies = [generate_xsrf_token_string(TOKEN, 1) for _ in range(3)]
    assert len(set(cookies)) == 3
    known = {recognised(cookie, monkeypatch) for cookie in (*cookies, f'"{cookies[0]}"')}
    assert len(known) == 1
    assert not known & {"", TOKEN.hex(), recognised(generate_xsrf_token_string(OTHER, 1), monkeypatch)}


@pytest.mark.parametrize("odd", ["", "2|||", "2|xy|zz|1", "1|2|3", "2|00000000||1"])
def test_a_cookie_of_another_form_is_nobodys(odd, monkeypatch):
    assert recognised(odd, monkeypatch) == ""


def test_a_log_is_there_after_a_reload_for_the_browser_that_brought_it(app, monkeypatch):
    monkeypatch.setattr(browser, "_cookie", lambda: generate_xsrf_token_string(TOKEN))
    log = make_log(episode("e", ("s", "a", 1.0), ("t", "b", 2.0)), name="mine")
    open_page(app, "data")
    app.session_state["uploads"] = {log.fingerprint: log}
    app.session_state["data"] = f"upload:{log.fingerprint}"
    app.run()
    again = open_page(AppTest.from_file(APP, default_timeout=120), "coverage", data=f"upload:{log.fingerprint}")
    assert again.session_state["data"] == f"upload:{log.fingerprint}"
    assert "**2** steps · 1 episode" in texts(again)
    monkeypatch.setattr(browser, "_cookie", lambda: generate_xsrf_token_string(OTHER))
    stranger = open_page(AppTest.from_file(APP, default_timeout=120), "coverage", data=f"upload:{log.fingerprint}")
    assert stranger.session_state["data"] == "calculator"


def after_a_reload(data: str):
    """Data in a new session, as the address asks for it."""
    return open_page(AppTest.from_file(APP, default_timeout=120), "data", data=data)


def test_files_can_be_read_another_way_after_a_reload(app, monkeypatch):
    monkeypatch.setattr(browser, "_cookie", lambda: generate_xsrf_token_string(TOKEN))
    open_page(app, "data")
    app.file_uploader[0].set_value(("a.jsonl", b'{"episode_id": "a", "t": 0, "action": "go"}', "text/plain")).run()
    data = app.session_state["data"]
    assert data.startswith("upload:")
    again = after_a_reload(data)
    again.selectbox(key="w:read_as").set_value("step_table").run()
    assert not again.exception, again.exception
    assert "chosen by hand" in texts(again)
    app.run()
    assert app.selectbox(key="w:read_as").value == "", "the first tab reads its files as before"
    assert after_a_reload(data).selectbox(key="w:read_as")


def test_where_only_the_log_is_left_the_files_are_asked_for_again(app, monkeypatch):
    monkeypatch.setattr(browser, "_cookie", lambda: generate_xsrf_token_string(TOKEN))
    open_page(app, "data")
    log = make_log(episode("e", ("s", "a", 1.0)), name="mine")
    browser.cloakroom().keep(browser._recognised(), log)
    again = after_a_reload(f"upload:{log.fingerprint}")
    assert not [box for box in again.selectbox if box.key == "w:read_as"]
    assert "Drop them again to read them as another format" in texts(again)


def test_files_stay_with_their_log_when_it_is_looked_at():
    log, room = make_log(episode("e", ("s", "a", 1.0))), browser.Cloakroom()
    room.keep("me", log, "files")
    room.keep("me", log)
    assert room.find("me", log.fingerprint).files == "files"


def test_logs_are_kept_for_a_while_and_only_so_many(monkeypatch):
    logs = [make_log(episode("e", ("s", "a", float(i)))) for i in range(4)]
    room, now = browser.Cloakroom(), [0.0]
    monkeypatch.setattr(browser.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(browser, "MOST_KEPT", 3)

    def there():
        found = [room.find("me", log.fingerprint) for log in logs]
        return [kept is not None and kept.log is log for kept, log in zip(found, logs, strict=True)]

    for log in logs[:3]:
        room.keep("me", log)
    assert room.find("you", logs[0].fingerprint) is None
    now[0] = browser.KEPT_SECONDS
    room.keep("me", logs[0])
    room.keep("me", logs[3])
    assert there() == [True, False, True, True], "the one that was not looked at for longest has gone"
    now[0] += 1
    assert there() == [True, False, False, True]
