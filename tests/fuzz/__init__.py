"""Coverage-guided fuzzing by atheris: ``uv run --group fuzz python -m tests.fuzz.codec -runs=100000``.

Each module is a harness with a small corpus of right inputs, made of the golden records. libFuzzer's flags
are passed on (``-runs=``, ``-max_total_time=``, a folder for the corpus that it finds).

Without atheris: ``uv run python -m tests.fuzz --records 1000000 --seed 1`` sends records, a tenth of them
odd, through every reader on the in-memory log (`tests.fuzz.odd_run`).
"""
