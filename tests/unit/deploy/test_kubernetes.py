"""deploy/kubernetes: each overlay is built by Kustomize and checked without a cluster.

Kubernetes' own kinds are checked by `kubernetes_validate` in its strict form, which refuses unexpected keys;
those of Strimzi and of the Prometheus operator by their published schemas in tests/data/crds, made strict.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from acker.config.topics import Topics, load_topics
from acker.kafka.port import Operation, Resource, Right
from acker.provisioning.roles import Role, rights
from spout.cli.main import app
from tests.support.lacking import lacking

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("plain", "strimzi", "prometheus-operator")
OLDEST = "1.30"
SERVICES = ("acker", "replay", "page")
ROLES = {
    "windhover-acker": Role.ACKER,
    "windhover-replay": Role.REPLAY,
    "windhover-page": Role.OBSERVER,
    "windhover-topics": Role.OPERATOR,
    "windhover-query": Role.SPOUT,
}

Manifest = dict[str, Any]


@cache
def built(overlay: str) -> list[Manifest]:
    return build(KUBERNETES / "overlays" / overlay)


def build(folder: Path) -> list[Manifest]:
    """Return what Kustomize makes of a folder."""
    if shutil.which("kustomize"):
        command = ["kustomize", "build"]
    elif shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    else:
        lacking("neither kustomize nor kubectl is installed")
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "Kustomize warns"
    return list(yaml.safe_load_all(done.stdout))


def crds() -> dict[str, Mapping[str, Any]]:
    found = [json.loads(path.read_text()) for path in (ROOT / "tests" / "data" / "crds").glob("*.json")]
    return {f"{one['apiVersion']} {one['kind']}": one["schema"] for one in found}


def strictly(schema: Any) -> Any:
    """Refuse keys that a schema does not name; what it leaves open (metadata, labels) stays open."""
    if isinstance(schema, list):
        return [strictly(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: strictly(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        strict.setdefault("additionalProperties", False)
    return strict


def check_manifest(manifest: Manifest, version: str) -> None:
    custom = crds().get(f"{manifest['apiVersion']} {manifest['kind']}")
    if custom is None:
        kubernetes_validate.validate(manifest, version, strict=True)
    else:
        jsonschema.validate(manifest, strictly(custom))


def named(overlay: str, kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in built(overlay) if each["kind"] == kind}


def pods(overlay: str) -> dict[str, Manifest]:
    """Return the pod of each Deployment and Job."""
    return {
        name: each["spec"]["template"]["spec"]
        for kind in ("Deployment", "Job")
        for name, each in named(overlay, kind).items()
    }


def container(pod: Manifest) -> Manifest:
    (only,) = pod["containers"]
    return dict(only)


def topics_of(overlay: str) -> Topics:
    """Load topics.yaml of the ConfigMap with the variables that every container has."""
    (text,) = [each["data"]["topics.yaml"] for each in named(overlay, "ConfigMap").values()]
    names = [{variable["name"] for variable in container(pod)["env"]} for pod in pods(overlay).values()]
    every = set.intersection(*names)
    folder = KUBERNETES / "base" / "topics.yaml"
    assert text == folder.read_text()
    return load_topics(folder, dict.fromkeys(every, "kafka:9093"))


@pytest.mark.parametrize("overlay", ["plain", "strimzi"])
def test_an_image_that_is_named_by_its_digest_is_what_each_pod_runs(overlay: str, tmp_path: Path) -> None:
    """D2903: with the line that the page of deployment shows."""
    digest = f"sha256:{'0123456789abcdef' * 4}"
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text()
    [line] = [line for line in page.splitlines() if "digest:" in line and "newName" in line]
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    folder = tmp_path / "kubernetes" / "overlays" / overlay
    text = (folder / "kustomization.yaml").read_text()
    [former] = [former for former in text.splitlines() if "newTag" in former]
    changed = text.replace(former, line.replace("sha256:...", digest))
    (folder / "kustomization.yaml").write_text(changed)

    manifests = [manifest for manifest in build(folder) if manifest["kind"] in ("Deployment", "Job")]
    images = [container(manifest["spec"]["template"]["spec"])["image"] for manifest in manifests]
    assert set(images) == {f"registry.example.com/windhover@{digest}"}
    assert len(images) == len(pods(overlay))


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_manifest_is_valid_strictly(overlay: str, version: str) -> None:
    assert built(overlay)
    for manifest in built(overlay):
        check_manifest(manifest, version)


@pytest.mark.parametrize("kind", ["Deployment", "PodDisruptionBudget", "NetworkPolicy", "Job", "KafkaUser"])
def test_a_key_that_is_misspelled_is_found(kind: str) -> None:
    manifest = json.loads(json.dumps(next(iter(named("strimzi", kind).values()))))
    manifest["spec"]["replicaz"] = 2
    with pytest.raises((kubernetes_validate.ValidationError, jsonschema.ValidationError)):
        check_manifest(manifest, OLDEST)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ackers_and_replay_workers_run_twice_and_one_of_them_always_stays(overlay: str) -> None:
    budgets = named(overlay, "PodDisruptionBudget")
    for name in ("windhover-acker", "windhover-replay"):
        deployment = named(overlay, "Deployment")[name]
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["replicas"] == 2
        assert budgets[name]["spec"]["minAvailable"] == 1
        for selector in (budgets[name]["spec"]["selector"], deployment["spec"]["selector"]):
            assert selector["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_pod_has_a_right_that_it_does_not_need(overlay: str) -> None:
    for pod in pods(overlay).values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(pod)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {each["name"] for each in pod["volumes"] if "emptyDir" in each}
        for mount in container(pod)["volumeMounts"]:
            assert mount.get("readOnly", False) is (mount["name"] not in writable)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_says_what_it_needs_and_a_service_has_more_time_to_end_than_it_takes(overlay: str) -> None:
    topics = topics_of(overlay)
    for name, pod in pods(overlay).items():
        resources = container(pod)["resources"]
        assert resources.keys() == {"requests", "limits"}
        assert all(each.keys() == {"cpu", "memory"} for each in resources.values()), name
    for part, limits in (("acker", topics.acker.limits), ("replay", topics.replay.limits)):
        grace_s = pods(overlay)[f"windhover-{part}"]["terminationGracePeriodSeconds"]
        assert grace_s * 1_000 > limits.stop_ms


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_port_that_a_pod_listens_on_lets_in_labelled_pods_alone(overlay: str) -> None:
    """D2901: the page, and the metrics of both services."""
    closed: dict[str, set[str]] = {}
    for policy in named(overlay, "NetworkPolicy").values():
        spec = policy["spec"]
        assert spec["policyTypes"] == ["Ingress"]
        for rule in spec["ingress"]:
            assert all(source["podSelector"]["matchLabels"] for source in rule["from"])
        ports = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
        for name, deployment in named(overlay, "Deployment").items():
            if is_selected(spec["podSelector"], deployment["spec"]["template"]["metadata"]["labels"]):
                closed.setdefault(name, set()).update(ports)
    listening = {
        name: {port["name"] for port in container(pod)["ports"]}
        for name, pod in pods(overlay).items()
        if container(pod).get("ports")
    }
    assert closed == listening


def is_selected(selector: Manifest, labels: Mapping[str, str]) -> bool:
    """Whether a selector of pods fits labels; all of its expressions say In."""
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] == "In" for expression in expressions)
    return all(labels.get(expression["key"]) in expression["values"] for expression in expressions)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes_and_the_service_meet_the_port_on_which_the_process_listens(overlay: str) -> None:
    for part in SERVICES:
        one = container(pods(overlay)[f"windhover-{part}"])
        (port,) = one["ports"]
        option = "--port" if part == "page" else "--metrics-port"
        assert one["args"][one["args"].index(option) + 1] == str(port["containerPort"])
        assert one["livenessProbe"]["httpGet"] == {"path": "/livez", "port": port["name"]}
        assert one["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
    service = named(overlay, "Service")["windhover-page"]["spec"]
    page = named(overlay, "Deployment")["windhover-page"]["spec"]["template"]
    (port,) = container(page["spec"])["ports"]
    assert [each["targetPort"] for each in service["ports"]] == [port["name"]]
    assert service["selector"].items() <= page["metadata"]["labels"].items()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_arguments_of_every_container_are_those_of_the_command(overlay: str) -> None:
    """With `--help` behind them: an option that does not exist is refused all the same."""
    for pod in pods(overlay).values():
        arguments = container(pod)["args"]
        result = CliRunner().invoke(app, [*arguments, "--help"])
        assert result.exit_code == 0, result.output
        options = {each for each in arguments if each.startswith("--")}
        assert all(option in result.output for option in options), (options, result.output)
        assert "/etc/windhover/topics.yaml" in arguments


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_topics_yaml_loads_with_the_variables_of_the_containers_and_no_secret_is_written_anywhere(
    overlay: str,
) -> None:
    topics = topics_of(overlay)
    assert topics.kafka["sasl.password"] == "kafka:9093"
    assert not named(overlay, "Secret")
    for pod in pods(overlay).values():
        sources = {each["name"]: each for each in container(pod)["env"]}
        assert sources["KAFKA_PASSWORD"]["valueFrom"].keys() == {"secretKeyRef"}
        (config,) = [each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each]
        assert config in named(overlay, "ConfigMap")


def test_an_overlay_replaces_topics_yaml_as_the_guide_says(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "operate" / "deploy.md").read_text()
    (block,) = [each for each in guide.split("```yaml\n") if each.startswith("configMapGenerator")]
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    mine = tmp_path / "kubernetes" / "overlays" / "plain"
    with (mine / "kustomization.yaml").open("a") as written:
        written.write(block.partition("```")[0])
    (mine / "topics.yaml").write_text("inputs: {orders: {id: 7, group: billing}}\n")
    (config,) = [each for each in build(mine) if each["kind"] == "ConfigMap"]
    assert config["data"] == {"topics.yaml": "inputs: {orders: {id: 7, group: billing}}\n"}
    names = {config["metadata"]["name"], *named("plain", "ConfigMap")}
    assert len(names) == 2, "pods are replaced when the file changes"


def acls_of(user: Manifest) -> Iterator[Right]:
    for acl in user["spec"]["authorization"]["acls"]:
        resource = acl["resource"]
        kind = Resource(resource["type"][0].upper() + resource["type"][1:])
        assert "patternType" not in resource, "each resource is granted by its whole name"
        for operation in acl["operations"]:
            yield Right(Operation(operation), kind, resource["name"])


def test_the_users_of_strimzi_have_exactly_the_rights_of_their_roles() -> None:
    topics = topics_of("strimzi")
    users = named("strimzi", "KafkaUser")
    assert users.keys() == ROLES.keys()
    for name, role in ROLES.items():
        assert sorted(map(str, acls_of(users[name]))) == sorted(map(str, rights(topics, role))), name


def test_every_process_signs_in_at_strimzi_as_the_user_of_its_own_name() -> None:
    for kind in ("Deployment", "Job"):
        for name, each in named("strimzi", kind).items():
            sources = {one["name"]: one for one in container(each["spec"]["template"]["spec"])["env"]}
            assert name in named("strimzi", "KafkaUser")
            assert sources["KAFKA_USER"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.labels['app']"}}
            assert each["spec"]["template"]["metadata"]["labels"]["app"] == name
            assert sources["KAFKA_PASSWORD"]["valueFrom"] == {
                "secretKeyRef": {"name": name, "key": "password"}
            }


def test_the_prometheus_operator_scrapes_ackers_replay_workers_and_the_page() -> None:
    (monitor,) = named("prometheus-operator", "PodMonitor").values()
    endpoints = {each["port"] for each in monitor["spec"]["podMetricsEndpoints"]}
    for part in ("acker", "replay", "page"):
        template = named("prometheus-operator", "Deployment")[f"windhover-{part}"]["spec"]["template"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        ports = {port["name"] for port in container(template["spec"])["ports"]}
        assert len(endpoints & ports) == 1


def test_the_alerts_become_a_rule_of_the_prometheus_operator_as_the_guide_says(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "operate" / "deploy.md").read_text()
    (script,) = [
        block for block in guide.split("```") if block.startswith("sh\n") and "PrometheusRule" in block
    ]
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    subprocess.run(["sh", "-e", "-c", script.removeprefix("sh\n")], cwd=tmp_path, check=True, timeout=60)
    rule = yaml.safe_load((tmp_path / "windhover-rules.yaml").read_text())
    check_manifest(rule, OLDEST)
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    rule["spec"]["groups"][0]["rules"][0]["exprr"] = "up"
    with pytest.raises(jsonschema.ValidationError, match="exprr"):
        check_manifest(rule, OLDEST)
