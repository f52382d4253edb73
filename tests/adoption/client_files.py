"""A home folder with the files of every client."""

from dataclasses import dataclass, field
from pathlib import Path

from portico.adoption import adoption_plan
from portico.adoption.adoption_plan import AdoptionCandidate, ExistingConfig, PlannedFiles
from portico.adoption.clients import UserEnvironment, find_client, list_locations
from portico.adoption.discovery import DiscoveredServers, discover_servers
from portico.config_file import LoadedConfig, load

FIXTURES = Path(__file__).parents[1] / "fixtures" / "clients" / "adopt"
USER = {
    "claude-desktop": "claude-desktop.json",
    "claude-code": "claude-code.json",
    "cursor": "cursor.json",
    "vscode": "vscode.json",
    "windsurf": "windsurf.json",
    "codex": "codex.toml",
    "gemini": "gemini.json",
    "zed": "zed.json",
    "cline": "cline.json",
}
PROJECT = {"claude-code": "claude-code-project.json", "vscode": "vscode-project.json"}


@dataclass
class ClientHome:
    """A home folder, a project in it, and the path of a configuration."""

    home: Path
    platform: str = "linux"
    environ: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.cwd = self.home / "project"
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.config = self.home / "settings" / "portico.yaml"

    @property
    def context(self) -> UserEnvironment:
        system = self.home / "system"
        return UserEnvironment(self.home, self.cwd, self.platform, self.environ, system)

    def path(self, name: str, scope: str = "user") -> Path:
        """Where a client keeps its file."""
        known = list_locations(find_client(name), self.home, self.cwd, self.platform, self.environ)
        return next(place.path for place in known if place.scope == scope and not place.legacy)

    def put(self, name: str, data: str | bytes, scope: str = "user") -> Path:
        path = self.path(name, scope)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def put_all(self) -> None:
        for scope, files in (("user", USER), ("project", PROJECT)):
            for name, file in files.items():
                data = (FIXTURES / file).read_bytes().replace(b"@CWD@", str(self.cwd).encode())
                self.put(name, data, scope)

    def discover(self, *wanted: str) -> DiscoveredServers:
        return discover_servers(self.context, wanted)

    def load_existing(self) -> ExistingConfig:
        return adoption_plan.load_existing(self.config, self.environ)

    def candidates(self, *wanted: str) -> dict[str, AdoptionCandidate]:
        found = adoption_plan.list_candidates(
            self.discover(*wanted), self.load_existing(), self.environ
        )
        return {candidate.name: candidate for candidate in found}

    def files(self) -> PlannedFiles:
        return adoption_plan.plan_files(
            self.load_existing(), self.candidates().values(), self.environ
        )

    def write(self) -> PlannedFiles:
        """What `portico adopt --yes` writes, without its questions."""
        files = self.files()
        assert files.config is not None
        self.config.parent.mkdir(exist_ok=True)
        self.config.write_bytes(files.config)
        if files.env is not None:
            files.env_path.write_bytes(files.env)
        return files

    def load(self) -> LoadedConfig:
        return load([self.config], environ=self.environ, cwd=self.config.parent)
