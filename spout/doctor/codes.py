"""What `windhover doctor` checks: one declaration for each code, and the result of one check; pure.

It uses the standard library alone, so that a machine can be judged before anything is installed.
The page docs/operate/doctor.md has a section for each code, and a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from acker.redaction import cut
from spout.distribution import DISTRIBUTION

PAGE: Final = "docs/operate/doctor.md"


class CheckHealth(StrEnum):
    """What a check has found out."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CheckCode:
    """A check: what must be the case, and a command as a cure; a result may replace both."""

    code: str
    title: str
    expected: str
    cure: str

    @property
    def docs(self) -> str:
        """Return the page and the anchor that explain the check."""
        return f"{PAGE}#{self.code.lower()}"

    def ok(self, subject: str, observed: str) -> CheckResult:
        """Return the result of a check that holds."""
        return CheckResult(self, CheckHealth.OK, subject, observed, self.expected)

    def unknown(self, subject: str, reason: str) -> CheckResult:
        """Return the result of a check that could not be made, with the reason."""
        observed = f"could not tell: {reason}"
        return CheckResult(self, CheckHealth.UNKNOWN, subject, observed, self.expected)

    def warning(self, subject: str, observed: str, *, expected: str = "", cure: str = "") -> CheckResult:
        """Return a result that does harm under some conditions only; empty: as the check has it."""
        expected = expected or self.expected
        cure = cure or self.cure
        return CheckResult(self, CheckHealth.WARNING, subject, observed, expected, cure)

    def failed(self, subject: str, observed: str, *, expected: str = "", cure: str = "") -> CheckResult:
        """Return a result with which something does not work, or loses records."""
        as_warning = self.warning(subject, observed, expected=expected, cure=cure)
        return replace(as_warning, health=CheckHealth.FAILED)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found out about one object; `cure` is empty where there is nothing to cure."""

    code: CheckCode
    health: CheckHealth
    subject: str
    observed: str
    expected: str
    cure: str = ""

    def row(self) -> dict[str, Any]:
        """Return the result as JSON and YAML have it."""
        return {
            "code": self.code.code,
            "title": self.code.title,
            "health": str(self.health),
            "object": cut(self.subject),
            "observed": cut(self.observed),
            "expected": self.expected,
            "cure": cut(self.cure),
            "docs": self.code.docs,
        }

    def lines(self) -> list[str]:
        """Return the result for people: one line, and more with a cure if something is wrong."""
        first_line, *more_lines = cut(self.observed).splitlines() or [""]
        check = f"{self.code.code} {self.code.title}"
        if self.cure:
            more_lines += [
                f"expected: {self.expected}",
                f"cure: {cut(self.cure)}",
                f"docs: {self.code.docs}",
            ]
        return [
            f"{self.health:<8} {check}, {cut(self.subject)}: {first_line}",
            *(f"         {line}" for line in more_lines),
        ]


def closing_line(results: Iterable[CheckResult]) -> str:
    """Return the last line of a report: how many checks were ok, a warning, failed or unknown."""
    counts = Counter(result.health for result in results)
    counts_text = ", ".join(f"{counts[health]} {health}" for health in CheckHealth)
    checks = "1 check" if counts.total() == 1 else f"{counts.total()} checks"
    return f"{checks}: {counts_text}"


SET_TOPIC: Final = (
    "kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics"
    " --entity-name {topic} --add-config {setting}"
)

ADD_REPLICAS: Final = (
    "kafka-reassign-partitions.sh --bootstrap-server {bootstrap} --execute"
    " --reassignment-json-file copies.json"
)
"""Only this adds copies to a topic; the page of the check says what copies.json has."""

UNDER_REPLICATED: Final = (
    "kafka-topics.sh --bootstrap-server {bootstrap} --describe --under-replicated-partitions"
)
"""It prints nothing when the broker that was missing has caught up."""

PYTHON: Final = CheckCode("WH001", "Python", "Python 3.11, 3.12 or 3.13", "uv python install 3.12")
PLATFORM: Final = CheckCode(
    "WH002", "platform", "Linux on a 64-bit processor", "docker run --rm -it python:3.12 bash"
)
JAVA: Final = CheckCode("WH003", "Java", "Java 17, 21 or 25", "apt-get install openjdk-17-jre-headless")

TOPICS_FILE: Final = CheckCode("WH010", "topics.yaml", "a file without problems", "windhover validate {file}")
SPARK: Final = CheckCode("WH011", "Spark", "PySpark 4.0 to 4.3", "pip install 'pyspark>=4.0,<4.4'")
NAMES: Final = CheckCode(
    "WH012",
    "import names",
    "spout, acker and replay belong to windhover alone",
    # what is uninstalled takes files of the same names away
    f"pip uninstall {{other}} && pip install --force-reinstall --no-deps {DISTRIBUTION}",
)
HORIZON: Final = CheckCode(
    "WH013",
    "replay horizon",
    "records may be needed for 7 days at most, Kafka's default retention",
    "windhover doctor --only live",
)

CLIENT: Final = CheckCode(
    "WH014", "Kafka settings", "settings that each kind of client takes", "windhover validate {file}"
)
DISK: Final = CheckCode(
    "WH015", "disk", "10 GiB free, or a tenth of the disk, and a file can be made", "df -h {folder}"
)
CHECKPOINT: Final = CheckCode(
    "WH016",
    "checkpoint",
    "a folder that this user reads and writes, of a query of this file",
    "ls -la {folder}",
)

REACHABLE: Final = CheckCode(
    "WH020", "broker", "a broker that answers", "windhover up --port {port}  # or start your own: {bootstrap}"
)
LOGIN: Final = CheckCode(
    "WH021", "login", "the broker accepts us, and we accept its certificate",
    "kafka-configs.sh --bootstrap-server {bootstrap} --describe --entity-type users",
)  # fmt: skip
REQUESTS: Final = CheckCode(
    "WH022", "broker features", "the requests of Kafka 2.8 or later",
    "kafka-broker-api-versions.sh --bootstrap-server {bootstrap}",
)  # fmt: skip
RIGHTS: Final = CheckCode(
    "WH023", "rights", "the rights of `windhover acls`",
    "windhover acls {file} --role {role} --principal User:NAME",
)  # fmt: skip
TOPICS: Final = CheckCode("WH024", "topics", "as topics.yaml has them", "windhover topics create {file}")
RETENTION: Final = CheckCode("WH025", "retention", "records stay as long as they may be needed", SET_TOPIC)
REPLICAS: Final = CheckCode(
    "WH026", "min.insync.replicas", "each write is on two of three brokers", SET_TOPIC
)
SIZES: Final = CheckCode("WH027", "message sizes", "each topic takes what is written to it", SET_TOPIC)
CLOCKS: Final = CheckCode("WH028", "clocks", "within 2 s of this machine's", "chronyc tracking")
GROUPS: Final = CheckCode(
    "WH029", "users of a group", "no consumer beside Windhover's",
    "kafka-consumer-groups.sh --bootstrap-server {bootstrap} --describe --members --group {group}",
)  # fmt: skip

EXECUTORS: Final = CheckCode(
    "WH030", "executors", "a cluster that gives executors, which run a task",
    "spark-submit --master {master} --class org.apache.spark.examples.SparkPi"
    " $SPARK_HOME/examples/jars/spark-examples_*.jar 10",
)  # fmt: skip
EXECUTOR_PYTHON: Final = CheckCode(
    "WH031", "Python of an executor", "the driver's Python, by its first two numbers",
    "ssh {host} uv venv --clear --python {python} /opt/windhover",
)  # fmt: skip
EXECUTOR_PACKAGES: Final = CheckCode(
    "WH032", "packages of an executor", "the driver's windhover and pyspark, and all that they import",
    "scp dist/{wheel} {host}:/tmp/ && ssh {host} uv pip install --python {python} /tmp/{wheel}",
)  # fmt: skip
EXECUTOR_REACH: Final = CheckCode(
    "WH033",
    "an executor's way to Kafka",
    "a TCP connection to each broker",
    "ssh {host} nc -vz {server} {port}",
)
EXECUTOR_CLOCKS: Final = CheckCode(
    "WH034", "clock of an executor", "within 2 s of the driver's", "ssh {host} chronyc tracking"
)

SERVICES: Final = CheckCode(
    "WH040",
    "ackers and replay workers",
    "they run with this topics.yaml and this version",
    "windhover machinery --config {file}",
)

CODES: Final = tuple(value for value in list(vars().values()) if isinstance(value, CheckCode))
"""Every check, by its number."""
