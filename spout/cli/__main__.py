"""``python -m spout.cli`` is ``windhover``."""

from spout.cli.main import main

main()
