"""Real kills: a broker, ackers, replay workers and a Spark driver that are hurt at random, and judged."""
