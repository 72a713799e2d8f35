"""``python3 -m spout.doctor`` in a checkout: ``windhover doctor --pre`` without an installation."""

import os
import sys

MINIMUM = (3, 11)
"""What the other modules need to be imported at all."""

if sys.version_info < MINIMUM:
    version = ".".join(map(str, sys.version_info[:3]))
    sys.stdout.write(f"failed   WH001 Python: {version}; expected is 3.11 to 3.13: uv python install 3.12\n")
    sys.exit(1)

from spout.local.foreign_packages import OURS, foreign_packages  # noqa: E402  # an older Python cannot import it

foreign = foreign_packages()
if foreign:  # our own would be hidden by them; what they are is said below
    sys.path.insert(0, str(OURS))

from acker.terminal import replace_unwritable  # noqa: E402  # the same
from spout.doctor.codes import CheckHealth, closing_line  # noqa: E402  # the same
from spout.doctor.machine import judge_foreign, judge_machine, machine_facts  # noqa: E402  # the same

replace_unwritable(sys.stdout)
results = [*judge_machine(machine_facts(os.environ)), *judge_foreign(foreign)]
for result in results:
    sys.stdout.write("\n".join(result.lines()) + "\n")
sys.stdout.write(closing_line(results) + "\n")
sys.exit(any(result.health is CheckHealth.FAILED for result in results))
