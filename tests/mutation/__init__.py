"""A mutation tester: it writes small bugs into the product by rule, and counts those that no test sees.

`tests.mutants` plants bugs that somebody thought of. Here nobody thinks: each comparison, operator, number,
condition and effect of a function is changed once (`edits`), and the tests that run the changed line are run
(`coverage_map`), until one falls. What no test sees is a *survivor*: a test is missing, or the two programs
are equivalent, which `equivalent.toml` then says with a reason.

A run starts pytest once for each job (`host`), collects the tests, and judges each edit in a fork in which
the code of the edited function is swapped (`swap`): nothing is imported again, so that a verdict costs some
0.1 s. What runs at import (constants, defaults of arguments, bodies of classes) cannot be swapped and is not
edited.
"""
