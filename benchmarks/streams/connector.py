"""The jars of Spark's own Kafka connector, a contestant of the benchmarks; Windhover itself needs none of it.

The newest connector that Maven Central has may be older than the installed Spark; it then runs on that Spark.
"""

from __future__ import annotations

import os
from typing import Final

from spout.local.jars import Repository, parse_lock

VERSION: Final = "4.2.0"

LOCK: Final = """
64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705  \
org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar
641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c  \
org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.2.0/spark-token-provider-kafka-0-10_2.13-4.2.0.jar
014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8  \
org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar
f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f  \
org/apache/commons/commons-pool2/2.13.1/commons-pool2-2.13.1.jar
"""
"""The connector and what it needs beside the jars of Spark, each with its SHA-256."""


def connector_settings() -> dict[str, str]:
    """Fetch the jars once; return the setting of a SparkSession that has the connector.

    Raises:
        Unreachable: no Maven repository answers.
        UsageError: it delivers other jars.
    """
    jars = parse_lock(LOCK)
    folder = Repository.of(os.environ).fetch(jars)
    return {"spark.jars": ",".join(str(folder / jar.file) for jar in jars)}
