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
        *("airflow-dag-processor", "airflow-triggerer", "spark-master", "spark-worker"),
    }


def test_images_are_pinned_to_a_full_version(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values()]
    for file in ("Dockerfile.airflow", "Dockerfile.spark"):
        images += re.findall(r"^FROM (\S+)", (DOCKER / file).read_text(), re.MULTILINE)
    assert len(images) == len(compose["services"]) + 2
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
    used = {volume.split(":")[0] for service in compose["services"].values() for volume in service.get("volumes", [])}
    assert used == set(compose["volumes"])
