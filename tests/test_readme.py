"""The README's examples are run, not believed."""

import re
from pathlib import Path

import pytest

from portico.cli.commands import app
from portico.config_file import keys, load
from portico.config_file.reference import filled_in

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "RESULTS.md"]


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize(
    ("name", "text"),
    [*(("portico.yaml", text) for text in blocks("yaml")), *((".mcp.json", text) for text in blocks("json"))],
)
def test_every_configuration_in_the_readme_loads(name: str, text: str, tmp_path: Path):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    loaded = load([file], environ={"GITHUB_TOKEN": "t"})
    assert loaded.config.servers or loaded.config.profiles or loaded.warnings


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^\$ portico (\w+)", README, re.MULTILINE))))
def test_every_command_in_the_readme_exists(command: str):
    assert command in set(app)


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m ((?:benchmarks|tests)\.\w+)", README))))
def test_every_measurement_in_the_readme_can_be_run(module: str):
    path = ROOT.joinpath(*module.split("."))
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_between_documents_leads_somewhere(document: Path):
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def test_the_example_in_the_configuration_reference_loads_without_a_warning(tmp_path: Path):
    (example,) = blocks("yaml", CONFIGURATION)
    (tmp_path / "portico.yaml").write_text(example, encoding="utf-8")
    loaded = load([tmp_path / "portico.yaml"], environ={"GITHUB_TOKEN": "t"})
    assert (set(loaded.config.servers), loaded.warnings) == ({"github", "docs", "billing"}, ())


def test_the_configuration_reference_is_as_the_models_are():
    written_anew = filled_in(CONFIGURATION)
    assert written_anew == CONFIGURATION, "run: python -m portico.config_file.reference docs/configuration.md"
    for key in keys():
        assert f"**`{key.dotted}`**" in CONFIGURATION
        assert key.environment is None or f"`{key.environment}`" in CONFIGURATION
