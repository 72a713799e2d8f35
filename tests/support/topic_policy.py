"""A policy for a real broker, by which it refuses settings of topics as hosted clusters do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spout.local.embedded import SMALL_JVM, EmbeddedBroker

WORDS: Final = "this cluster does not let you set it"

_POLICY: Final = f"""
import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

public class RefusesSettings implements CreateTopicPolicy {{
  private String[] names = {{}};

  // The way onto the broker's class path: an agent's jar is added to it.
  public static void premain(String arguments) {{}}

  public void configure(Map<String, ?> settings) {{
    names = settings.get("refused.settings").toString().split(";");
  }}

  public void validate(RequestMetadata topic) {{
    for (String name : names)
      if (topic.configs().containsKey(name)) throw new PolicyViolationException("{WORDS}");
  }}

  public void close() {{}}
}}
"""


def can_compile() -> bool:
    """Return whether this machine has a JDK; a Java runtime alone makes no class."""
    return shutil.which("javac") is not None and shutil.which("jar") is not None


def broker_that_refuses(settings: Sequence[str], folder: Path) -> EmbeddedBroker:
    """Return a broker, not started yet, that makes no topic with one of these settings."""
    _, jars = EmbeddedBroker()._java_and_jars
    source, manifest, jar = folder / "RefusesSettings.java", folder / "manifest.txt", folder / "policy.jar"
    source.write_text(_POLICY)
    manifest.write_text("Premain-Class: RefusesSettings\n")
    subprocess.run(["javac", "--release", "17", "-cp", f"{jars}/*", source], check=True)
    subprocess.run(["jar", "cfm", jar, manifest, "-C", folder, "RefusesSettings.class"], check=True)
    return EmbeddedBroker(
        jvm=(*SMALL_JVM, f"-javaagent:{jar}"),
        settings={
            "create.topic.policy.class.name": "RefusesSettings",
            "refused.settings": ";".join(settings),
        },
    )
