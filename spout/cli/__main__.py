"""``python -m spout.cli`` is ``windhover``."""

from spout.cli.foreign import begin

begin()
