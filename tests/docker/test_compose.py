"""The compose file, checked without Docker: the public schema, and what a deployment must not get wrong."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from airflow.api_fastapi.core_api.datamodels.monitor import HealthInfoResponse

from spark_jobs.engine.configuration import PYTHON_MEMORY

DOCKER = Path(__file__).resolve().parents[2] / "docker"
SECRETS = ("PASSWORD", "SECRET", "FERNET", "DSN", "SQL_ALCHEMY_CONN")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    # The compose specification's own schema, as the package check-jsonschema carries it.
    file = files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json")
    return json.loads(file.read_text())


def test_is_valid_by_the_compose_specification(compose: dict[str, Any], schema: dict[str, Any]) -> None:
    jsonschema.Draft7Validator(schema).validate(compose)


def test_the_schema_refuses_a_misspelt_key(compose: dict[str, Any], schema: dict[str, Any]) -> None:
    wrong = {**compose, "services": {"postgres": {"image": "postgres:17", "helthcheck": {}}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate(wrong)


def test_has_airflows_components_and_a_spark_cluster(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {
        *("postgres", "volumes-init", "airflow-init", "airflow-apiserver", "airflow-scheduler"),
        *("airflow-dag-processor", "airflow-triggerer", "spark-master", "spark-worker", "spark-history"),
    }


def test_images_are_pinned_to_a_full_version(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values()]
    for file in ("Dockerfile.airflow", "Dockerfile.spark"):
        images += re.findall(r"^FROM (\S+)", (DOCKER / file).read_text(), re.MULTILINE)
    assert len(images) == len(compose["services"]) + 4
    for image in images:
        assert re.search(r":\d+\.\d+(\.\d+)?(-|$)", image), image


def test_nothing_that_stays_up_runs_as_root(compose: dict[str, Any]) -> None:
    roots = {name for name, service in compose["services"].items() if service.get("user") in (None, "root", "0:0")}
    # It only hands the volumes over, without a network, and ends.
    assert roots == {"volumes-init"}
    assert compose["services"]["volumes-init"]["network_mode"] == "none"
    for file, user in (("Dockerfile.airflow", "airflow"), ("Dockerfile.spark", "spark")):
        assert re.findall(r"^USER (\S+)", (DOCKER / file).read_text(), re.MULTILINE)[-1] == user


def test_every_service_that_stays_up_has_a_health_check(compose: dict[str, Any]) -> None:
    ending = {"volumes-init", "airflow-init"}
    for name, service in compose["services"].items():
        assert ("healthcheck" in service) == (name not in ending), name


def test_secrets_come_from_the_environment_and_have_no_default(compose: dict[str, Any]) -> None:
    seen = set()
    for service in compose["services"].values():
        for name, value in (service.get("environment") or {}).items():
            if any(word in name for word in SECRETS) and not name.endswith("PASSWORDS_FILE"):
                assert re.search(r"\$\{[A-Z_]+:\?", value), name
                plain = re.sub(r"\$\{[^}]*\}", "", value)
                assert not re.search(r":[^@/]+@", plain), f"{name} holds a plain password"
                seen.add(name)
    assert {"POSTGRES_PASSWORD", "AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__CORE__FERNET_KEY"} <= seen
    contents = "".join(config["content"] for config in compose["configs"].values())
    stated = re.findall(r"(?:PASSWORD '|secret +)(.*)", contents)
    assert len(stated) == 3 and all(re.match(r"\$\{[A-Z_]+:\?", value) for value in stated)


def test_the_example_names_every_variable_and_no_secret(compose: dict[str, Any]) -> None:
    text = (DOCKER / ".env.example").read_text()
    variables = dict(re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE))
    compose_text = (DOCKER / "compose.yaml").read_text()
    assert set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", compose_text)) == set(variables)
    required = set(re.findall(r"\$\{([A-Z_]+):\?", compose_text))
    assert required and all(variables[name] == "" for name in required)


def test_only_loopback_is_published(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports and all(str(port).startswith("127.0.0.1:") for port in ports)


def test_the_volumes_that_services_share_are_declared(compose: dict[str, Any]) -> None:
    used = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
        if not volume.startswith("$")
    }
    assert used == set(compose["volumes"])


def default_of(text: str) -> str:
    """What Docker makes of a value whose variable is not set."""
    return re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", text)


def test_your_own_queries_are_mounted_and_no_demo_is_in_the_images(compose: dict[str, Any]) -> None:
    for name in ("airflow-scheduler", "airflow-dag-processor", "spark-worker"):
        volumes = [default_of(volume) for volume in compose["services"][name]["volumes"]]
        assert "./project:/opt/heddle/project:ro" in volumes, name
    image = (DOCKER / "Dockerfile.airflow").read_text()
    assert "HEDDLE_STREAMS=/opt/heddle/project/streams.yaml" in image
    assert "HEDDLE_WORKLOAD=/opt/heddle/project/queries/*.sql" in image
    for file in ("Dockerfile.airflow", "Dockerfile.spark"):
        assert "demo" not in re.findall(r"for e in \((.*?)\)", (DOCKER / file).read_text())
        assert not re.search(r"^COPY .*\b(dags|plugins)\b", (DOCKER / file).read_text(), re.MULTILINE)


def test_dependencies_are_a_layer_that_no_line_of_heddle_invalidates() -> None:
    for file in ("Dockerfile.airflow", "Dockerfile.spark"):
        last_stage = (DOCKER / file).read_text().rpartition("\nFROM ")[2]
        before = last_stage.partition("--requirement requirements.txt --constraint constraints.txt")[0]
        assert before != last_stage
        copied = re.findall(r"^COPY (?:--chown=\S+ )?(.+)$", before, re.MULTILINE)
        assert copied == ["pyproject.toml constraints.txt ./"]
        assert "--no-deps /opt/heddle/wheel/*.whl" in last_stage


def test_driver_and_executors_have_one_version_of_python_and_their_own_paths(compose: dict[str, Any]) -> None:
    driver = re.findall(r"^FROM apache/airflow:\S+-python([\d.]+)$", (DOCKER / "Dockerfile.airflow").read_text(), re.M)
    workers = re.findall(r"^FROM python:(\d+\.\d+)\S*$", (DOCKER / "Dockerfile.spark").read_text(), re.M)
    environment = compose["services"]["airflow-scheduler"]["environment"]
    assert driver == [workers[-1]]
    assert environment["PYSPARK_PYTHON"] == f"/usr/local/bin/python{workers[-1]}"
    assert environment["PYSPARK_DRIVER_PYTHON"] == f"python{driver[0]}"
    # neither has the other's folders
    assert "HEDDLE_SPARK_CODE=installed" in (DOCKER / "Dockerfile.airflow").read_text()


def bytes_of(text: str) -> float:
    matched = re.fullmatch(r"(\d+)([mg])", text)
    assert matched is not None, text
    return int(matched[1]) * {"m": 1 << 20, "g": 1 << 30}[matched[2]]


def test_a_worker_has_memory_for_its_python_workers(compose: dict[str, Any]) -> None:
    worker, airflow = compose["services"]["spark-worker"], compose["services"]["airflow-scheduler"]["environment"]
    cores = int(default_of(worker["environment"]["SPARK_WORKER_CORES"]))
    heap = bytes_of(default_of(worker["environment"]["SPARK_WORKER_MEMORY"]))
    task = bytes_of(default_of(airflow["HEDDLE_TASK_MEMORY"]))
    assert heap + cores * (task + PYTHON_MEMORY) + (1 << 30) <= bytes_of(default_of(worker["mem_limit"]))


def test_health_checks_start_no_command_line_of_airflow(compose: dict[str, Any]) -> None:
    checks = [
        str(service["healthcheck"]["test"]) for service in compose["services"].values() if "healthcheck" in service
    ]
    assert not [check for check in checks if "airflow jobs" in check or "python" in check]
    # the text that they look for is what the API server answers
    status = {"status": "healthy", "latest_heartbeat": None}
    answer = HealthInfoResponse.model_validate(
        {
            "metadatabase": {"status": "healthy"},
            "scheduler": status | {"latest_scheduler_heartbeat": None},
            "triggerer": status | {"latest_triggerer_heartbeat": None},
            "dag_processor": status | {"latest_dag_processor_heartbeat": None},
        }
    ).model_dump_json()
    looked_for = [match for check in checks for match in re.findall(r'grep -qF \'?\\?\'?("[^\']+")', check)]
    assert len(looked_for) == 2 and all(text in answer for text in looked_for)


def test_logs_are_rotated(compose: dict[str, Any]) -> None:
    assert all("max-size" in service["logging"]["options"] for service in compose["services"].values())


def test_airflow_and_the_lease_have_a_role_and_a_database_each(compose: dict[str, Any]) -> None:
    environment = compose["services"]["airflow-scheduler"]["environment"]
    airflow, lease = environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"], environment["HEDDLE_LEASE_DSN"]
    assert re.search(r"//airflow:.*@postgres/airflow$", airflow)
    assert re.search(r"//heddle_lease:.*@postgres/heddle_lease$", lease)
    script = re.sub(r"\$\{([A-Z_]+):\?[^}]*\}", r"\1", compose["configs"]["databases"]["content"])
    for name in ("airflow", "heddle_lease"):
        assert f"CREATE ROLE {name} LOGIN PASSWORD" in script and f"CREATE DATABASE {name} OWNER {name};" in script
    assert "SUPERUSER" not in script
