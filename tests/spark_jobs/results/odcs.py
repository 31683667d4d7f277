"""What the Open Data Contract Standard accepts as a contract."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema
import yaml
from open_data_contract_standard.model import OpenDataContractStandard

STANDARD = json.loads(resources.files("open_data_contract_standard").joinpath("schema.json").read_text())


def accepted(text: str) -> dict[str, Any]:
    """A contract that the standard accepts, as data."""
    data: dict[str, Any] = yaml.safe_load(text)
    jsonschema.Draft201909Validator(STANDARD).validate(data)
    assert OpenDataContractStandard.from_string(text).apiVersion == "v3.1.0"
    return data


def table_of(data: dict[str, Any], name: str) -> dict[str, Any]:
    """The table of a query in a contract."""
    (found,) = [each for each in data["schema"] if each["name"] == name]
    return dict(found)
