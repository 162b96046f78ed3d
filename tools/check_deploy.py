#!/usr/bin/env python3
"""Checks deploy/ offline: renders and lints the chart with Helm's library, and holds every object
against the Kubernetes schemas; holds the dashboard against the metrics that the source registers.

    HAYATE_BINARY=build/hayate $(tools/test_venv.sh deploy)/bin/python tools/check_deploy.py [FOLDER]

Every flag of every container that runs `hayate` is one of its subcommand's --help.
LeaderWorkerSet and ServiceMonitor are custom resources without a schema there: of the former the pod
templates are checked, of the latter the form alone. Exit 1 with one line a problem.
"""

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml
from helm_python import chart as helm
from helm_python.errors import HelmValuesError

REPOSITORY = Path(__file__).resolve().parent.parent
VERSIONS = ("1.29", "1.34")
CUSTOM = {"LeaderWorkerSet", "ServiceMonitor"}
# Values that reach every branch of the templates.
VALUES = [
    {},
    {
        "apiKeys": {"existingSecret": "keys"},
        "imagePullSecrets": [{"name": "pull"}],
        "gateway": {
            "extraArgs": ["--access-log=-", "--max-concurrent-requests=512"],
            "nodeSelector": {"pool": "cpu"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "podDisruptionBudget": {"enabled": False},
        },
        "worker": {
            "gpus": 0,
            "servedModelName": "m",
            "extraArgs": ["--max-running-requests=64"],
            "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "8Gi"}},
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "podDisruptionBudget": {"enabled": False},
        },
        "serviceMonitor": {"enabled": True},
    },
]
BAD_VALUES = [{"gateway": {"policy": "best"}}, {"gateway": {"replicas": -1}}, {"worker": {"modelPath": ""}}]

BINARY = Path(os.environ.get("HAYATE_BINARY", REPOSITORY / "build" / "hayate"))

problems: list[str] = []


@functools.cache
def flags_of(subcommand: str) -> frozenset[str]:
    text = subprocess.run([BINARY, subcommand, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return frozenset(re.findall(r"--[a-z0-9][a-z0-9-]*", text))


def check_arguments(where: str, arguments: list[str]) -> None:
    """`arguments` begin with the subcommand."""
    for argument in arguments[1:]:
        flag = argument.split("=")[0]
        if flag.startswith("--") and flag not in flags_of(arguments[0]):
            problems.append(f"{where}: hayate {arguments[0]} has no {flag}")


def check_containers(where: str, found: object) -> None:
    """Every container below, wherever it stands."""
    if isinstance(found, list):
        for element in found:
            check_containers(where, element)
    if not isinstance(found, dict):
        return
    command = found.get("command")
    if isinstance(command, list) and command[:1] == ["hayate"]:
        check_arguments(where, [*command[1:], *map(str, found.get("args") or [])])
    for element in found.values():
        check_containers(where, element)


def check_object(where: str, found: dict) -> None:
    kind = found.get("kind", "?")
    check_containers(where, found)
    for key in ("apiVersion", "kind", "metadata"):
        if key not in found:
            problems.append(f"{where}: {key} is missing")
    if kind == "LeaderWorkerSet":
        for role in ("leaderTemplate", "workerTemplate"):
            template = found["spec"]["leaderWorkerTemplate"].get(role)
            if template is None and role == "leaderTemplate":
                continue  # the leader is made as the workers are
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "x", **template["metadata"]},
                "spec": template["spec"],
            }
            check_object(f"{where} {role}", pod)
    if kind in CUSTOM:
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(found, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            problems.append(f"{where} ({kind}, {version}): {'.'.join(map(str, error.path))}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError:
            problems.append(f"{where}: Kubernetes {version} has no {found.get('apiVersion')} {kind}")


def check_chart(folder: Path) -> None:
    report = helm.lint(str(folder), strict=True)
    problems.extend(
        f"lint: {found['path']}: {found['error']}" for found in report["messages"] if found["severity"] >= 2
    )
    with helm.Chart.load(str(folder)) as loaded:
        for values in VALUES:
            rendered = loaded.render(values, name="demo", namespace="models")
            count = 0
            for path, text in rendered.items():
                if not path.endswith(".yaml"):
                    continue
                for found in yaml.safe_load_all(text):
                    if found:
                        count += 1
                        check_object(f"chart {found.get('kind')}", found)
            if count < 6:
                problems.append(f"the chart made {count} objects only")
        for values in BAD_VALUES:
            with contextlib.suppress(HelmValuesError):
                loaded.validate_schema(values)
                problems.append(f"values.schema.json accepts {values}")


def check_compose(path: Path) -> None:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    services = found["services"]
    if "gateway" not in services:
        problems.append(f"{path.name}: no gateway")
        return
    for name, service in services.items():
        check_arguments(f"{path.name}: {name}", service["command"])
    for name in services["gateway"].get("depends_on", []):
        if name not in services:
            problems.append(f"{path.name}: gateway depends on {name}, which is not there")
    for argument in services["gateway"]["command"]:
        host = argument.removeprefix("http://").split(":")[0]
        if argument.startswith("http://") and host not in services:
            problems.append(f"{path.name}: {argument} names no service")


def check_dashboard(path: Path) -> None:
    """Every metric that a panel asks for is one that the source registers; panels do not overlap."""
    source = REPOSITORY / "src"
    text = "".join(file.read_text() for file in source.glob("*/*.cc"))
    registered = set(re.findall(r'"((?:sglang|hayate):[a-z0-9_]+)"', text))
    dashboard = json.loads(path.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        if cells & taken or place["x"] + place["w"] > 24:
            problems.append(f"{path.name}: the panel {panel['title']!r} lies on another or outside")
        taken |= cells
        for target in panel.get("targets", []):
            for name in re.findall(r"(?:sglang|hayate):[a-z0-9_]+", target["expr"]):
                if name not in registered and name.removesuffix("_bucket") not in registered:
                    problems.append(f"{path.name}: {panel['title']!r} asks for {name}, which nothing registers")


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "deploy"
    check_chart(root / "helm" / "hayate")
    for path in sorted((root / "kubernetes").glob("*.yaml")):
        for found in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            check_object(path.name, found)
    check_compose(root / "compose.yaml")
    check_dashboard(root / "grafana" / "hayate.json")
    for problem in problems:
        print(problem)
    print(f"check_deploy: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
