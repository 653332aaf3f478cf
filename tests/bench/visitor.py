"""A visitor without a browser: speaks to a Streamlit server through its websocket, as a page does, and clocks the answers."""

from __future__ import annotations

import asyncio
import re
import time
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

_KEY = re.compile(r"^\$\$ID-[0-9a-f]+-(w:.+)$")


class Visitor:
    """One session. Fragments that ask to be run again are run again, as a browser would.

    Attributes:
        ids: key of a widget that was drawn -> its id on the wire.
        errors: what went wrong, as the page said it.
        n_looks: runs of fragments so far.
    """

    def __init__(self, address: str, page: str, **query: str) -> None:
        """Say which page to open; ``address`` is http://host:port."""
        self._address, self._page, self._query = address, page, urlencode(query)
        self._page_hash = ""
        self._states: dict[str, Any] = {}
        self._fragments: list[asyncio.Task[None]] = []
        self._whole_run = asyncio.Event()
        self.ids: dict[str, str] = {}
        self.errors: list[str] = []
        self.n_looks = 0

    async def __aenter__(self) -> Visitor:
        """Connect and wait for the page."""
        import websockets

        stream = self._address.replace("http", "ws", 1) + "/_stcore/stream"
        self._socket = await websockets.connect(stream, subprotocols=["streamlit"], max_size=None)  # type: ignore[list-item]
        self._listening = asyncio.create_task(self._listen())
        self._listening.add_done_callback(lambda _: self._whole_run.set())  # nothing will come any more
        await self._run_page()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the tab."""
        for looking in self._fragments:
            looking.cancel()
        self._listening.cancel()
        await self._socket.close()

    async def press(self, key: str) -> float:
        """Click a button; returns the seconds until the page has answered."""
        return await self._run_page({self.ids[key]: ("trigger_value", True)})

    async def enter(self, key: str, number: float) -> float:
        """Set a number; returns the seconds until the page has answered."""
        self._states[self.ids[key]] = ("double_value", number)
        return await self._run_page()

    async def open(self, key: str) -> float:
        """Open a closed part of the page; returns the seconds until the page has answered."""
        self._states[self.ids[key]] = ("bool_value", True)
        return await self._run_page()

    async def _run_page(self, pressed: dict[str, Any] | None = None) -> float:
        """Ask for a run of the whole page, and wait for its end."""
        self._whole_run.clear()
        began = time.perf_counter()
        await self._send(pressed or {}, "")
        await self._whole_run.wait()
        if self._listening.done():
            self._listening.result()
            raise ConnectionError("the server has closed the connection")
        return time.perf_counter() - began

    async def _send(self, pressed: dict[str, Any], fragment: str) -> None:
        from streamlit.proto.BackMsg_pb2 import BackMsg

        message = BackMsg()
        run = message.rerun_script
        run.query_string, run.fragment_id = self._query, fragment
        if self._page_hash:
            run.page_script_hash = self._page_hash
        else:
            run.page_name = self._page
        run.is_auto_rerun = bool(fragment)
        for identity, (kind, value) in {**self._states, **pressed}.items():
            widget = run.widget_states.widgets.add(id=identity)
            setattr(widget, kind, value)
        await self._socket.send(message.SerializeToString())

    async def _listen(self) -> None:
        from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

        ids: dict[str, str] = {}
        intervals: dict[str, float] = {}
        async for content in self._socket:
            message = ForwardMsg.FromString(content)  # type: ignore[arg-type]
            kind = message.WhichOneof("type")
            if kind == "new_session":
                ids, intervals = {}, {}
            elif kind == "navigation":
                self._page_hash = message.navigation.page_script_hash
            elif kind == "delta":
                ids |= self._drawn(message.delta)
            elif kind == "auto_rerun":
                intervals[message.auto_rerun.fragment_id] = message.auto_rerun.interval
            elif kind == "script_finished" and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                self.ids = ids
                self._look_again(intervals)
                self._whole_run.set()

    def _drawn(self, delta: Any) -> dict[str, str]:
        """The widget of a message, if it draws one; what a page says went wrong is kept."""
        if delta.WhichOneof("type") == "add_block":
            return _named(delta.add_block.expandable.id)
        element = delta.new_element
        kind = element.WhichOneof("type")
        if kind == "exception":
            self.errors.append(element.exception.message)
        identity = getattr(getattr(element, kind, None), "id", "") if kind else ""
        return _named(identity)

    def _look_again(self, intervals: dict[str, float]) -> None:
        """Only fragments of the page as it is now are run again."""
        for looking in self._fragments:
            looking.cancel()
        self._fragments = [asyncio.create_task(self._look(*item)) for item in intervals.items()]

    async def _look(self, fragment: str, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            self.n_looks += 1
            await self._send({}, fragment)


def _named(identity: str) -> dict[str, str]:
    """A widget's id by the key that the app gave it; nothing where it gave none."""
    found = _KEY.match(identity or "")
    return {found[1]: identity} if found else {}
