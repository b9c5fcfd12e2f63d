"""The manifest of docs/integrations.md, against the schemas that Kubernetes publishes, by kubernetes-validate (Apache-2.0)."""

import re

import pytest
import readers
from exported import ROOT

VERSIONS = ("1.28", "1.31", "1.34", "1.37")


@pytest.fixture(scope="module")
def validate():
    place = readers.install("kubernetes-validate==1.37.0")
    script = """
import sys, yaml, kubernetes_validate as k
for document in yaml.safe_load_all(sys.argv[1]):
    for version in sys.argv[2:]:
        try:
            print(document["kind"], version, k.validate(document, version, strict=True) and "fits")
        except k.ValidationError as error:
            print(document["kind"], version, error.message)
"""
    return lambda text: readers.run(place, "-c", script, text, *VERSIONS).splitlines()


@pytest.fixture(scope="module")
def manifest():
    page = (ROOT / "docs" / "integrations.md").read_text()
    (text,) = re.findall(r"```yaml\n(apiVersion: .*?)```", page, re.S)
    return text


def test_the_manifest_fits_each_version_and_no_field_is_unknown(validate, manifest):
    assert validate(manifest) == [f"{kind} {version} fits" for kind in ("Service", "Job") for version in VERSIONS]


@pytest.mark.parametrize("right, wrong, says", [
    ("restartPolicy: Never", "restartpolicy: Never", "'restartpolicy' was unexpected"),
    ("completions: 2", "completions: two", "'two' is not of type 'integer'"),
    ("nvidia.com/gpu: 8", "nvidia.com/gpu: [8]", "[8] is not")])
def test_a_mistake_would_be_seen(validate, manifest, right, wrong, says):
    assert manifest.count(right) == 1
    assert all(says in line for line in validate(manifest.replace(right, wrong))[len(VERSIONS):])
