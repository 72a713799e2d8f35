"""The page beside a broker of this machine, as `windhover up` and the demo start it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from acker.errors import Unreachable
from spout.local.broker_settings import HOST
from spout.local.embedded import free_port, is_free
from spout.runtime.child import Child
from spout.ui.serve import UI_PORT, missing_libraries


def announce_page(say: Callable[[str], None]) -> int | None:
    """Choose a port for the page and name its address; None: there is no page, since a library is missing."""
    if missing := missing_libraries():
        say(f"no page: {', '.join(missing)} not installed; run `pip install 'windhover[ui]'`")
        return None
    port = UI_PORT if is_free(UI_PORT) else free_port()
    say(f"page: http://{HOST}:{port}/ answers as soon as Kafka runs")
    return port


def start_page(
    stack: ExitStack, port: int | None, config: Path, environ: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Start the page in a process that `stack` ends. Where it does not start, the rest goes on without it."""
    if port is None:
        return
    program = ("-m", "spout.cli", "ui", "--config", str(config.resolve()), "--port", str(port))
    page = stack.enter_context(Child("ui", config, environ=environ, program=program))
    try:
        page.wait_ready()
    except Unreachable as error:
        say(f"no page: {error}")
        return
    say(f"page is ready (process {page.pid}, log {page.log})")
