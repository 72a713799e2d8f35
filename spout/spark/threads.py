"""What threads of the driver have to heed that are not its main one."""

from __future__ import annotations

import signal
import threading


def leave_sigint_to_the_main_thread() -> None:
    """Block SIGINT in this thread, unless it is the main one, as long as it lives.

    Python acts on a signal in the main thread, which waits in `awaitTermination` and wakes up
    only if it takes the signal itself. Linux gives it to the first thread that looks for one. A
    thread looks when it starts others, as one that publishes does for its Kafka clients, and
    when its mask changes. So the mask stays, and a process that the sink's function starts
    inherits it.
    """
    if threading.current_thread() is not threading.main_thread():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
