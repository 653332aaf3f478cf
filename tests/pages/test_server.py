"""Many visitors at once: runs take turns, none waits for ever, and answers leave at once."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import tomllib

import pytest

from pages._ui import server
from tests.bench.browser import ROOT
from tests.pages.conftest import open_page


def test_short_runs_come_one_after_the_other(monkeypatch):
    monkeypatch.setattr(server, "TURN_SECONDS", 60.0)
    monkeypatch.setattr(server, "PATIENCE_SECONDS", 60.0)
    turns, inside, most = server.Turns(), 0, 0

    def run():
        nonlocal inside, most
        for _ in range(20):
            with turns.one():
                inside += 1
                most = max(most, inside)
                threading.Event().wait(0.0005)  # lets the others try
                inside -= 1

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 1


@pytest.mark.parametrize(("turn", "patience"), [(0.01, 60.0), (60.0, 0.01)], ids=["a long run", "no patience"])
def test_nobody_waits_for_a_run_that_takes_long(monkeypatch, turn, patience):
    monkeypatch.setattr(server, "TURN_SECONDS", turn)
    monkeypatch.setattr(server, "PATIENCE_SECONDS", patience)
    turns, finished = server.Turns(), threading.Event()

    def long_run():
        with turns.one():
            began.set()
            finished.wait(60)

    began = threading.Event()
    long = threading.Thread(target=long_run)
    long.start()
    began.wait(60)
    with turns.one():
        assert long.is_alive()
    finished.set()
    long.join(60)
    with turns.one():  # and the order is restored
        pass


def test_a_run_that_fails_leaves_its_turn(monkeypatch):
    monkeypatch.setattr(server, "TURN_SECONDS", 60.0)
    monkeypatch.setattr(server, "PATIENCE_SECONDS", 60.0)
    turns = server.Turns()
    with contextlib.suppress(ZeroDivisionError), turns.one():
        raise ZeroDivisionError
    with turns.one():
        pass


def test_answers_leave_at_once_on_connections_old_and_new():
    def waits(connection):
        return not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    with socket.socket() as listening, socket.socket() as old, socket.socket() as new:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        old.connect(listening.getsockname())
        n_open = len(os.listdir("/dev/fd"))
        with listening.accept()[0] as there:
            assert waits(there)  # what Streamlit's server does, and why this is needed
            server.send_at_once.clear()
            server.send_at_once()
            assert len(os.listdir("/dev/fd")) == n_open + 1  # the connection, and nothing else
            new.connect(listening.getsockname())
            with listening.accept()[0] as to_come:
                assert not waits(there)
                assert not waits(to_come)
                old.sendall(b"still open")
                assert there.recv(10) == b"still open"


def test_a_connection_that_closes_meanwhile_costs_nothing(monkeypatch):
    gone = socket.socket()
    gone.close()
    monkeypatch.setattr(server, "_sockets", lambda: iter([gone]))
    server.send_at_once.clear()
    assert server.send_at_once()


def test_nothing_of_a_visitor_is_kept_from_the_collector(app):
    frozen = gc.get_freeze_count()  # by other tests of this process
    open_page(app, "train")
    assert gc.get_freeze_count() <= frozen


def test_the_collector_of_cycles_is_not_run_after_each_rerun():
    assert tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["runner"]["postScriptGC"] is False
