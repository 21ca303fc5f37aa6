"""Finding an app through its pyproject: its components, its settings, how many nodes it asks for."""

from __future__ import annotations

import importlib
import sys
import tomllib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedsim.checks import is_int
from fedsim.errors import InvalidInput
from fedsim.flower import flwr_names as flwr
from fedsim.text import short_repr, short_str


@dataclass(frozen=True)
class Description:
    """What an app's pyproject says; of two objects, nothing."""

    name: str
    folder: Path | None
    components: tuple[str, str]
    settings: dict[str, Any]
    nodes: int | None


AppSource = str | Path | tuple[Any, Any]  # a folder, or (server_app, client_app)


def describe(app: AppSource, given: Mapping[str, Any]) -> Description:
    """Read the app's description and merge its settings with those that were given."""
    if isinstance(app, tuple):
        return Description("app", None, ("", ""), dict(given), None)
    folder = Path(app).expanduser().absolute()
    file = folder / "pyproject.toml"
    if not file.is_file():
        raise InvalidInput(f"{folder} has no pyproject.toml; give the folder of a Flower app, made by: flwr new")
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} is no TOML: {error}") from None
    table = _table(_table(_table(project, "tool"), "flwr"), "app")
    components = _table(table, "components")
    for name in ("serverapp", "clientapp"):
        reference = components.get(name)
        if not isinstance(reference, str) or reference.count(":") != 1:
            raise InvalidInput(
                f"{file}: [tool.flwr.app.components] has no {name}; write {name} = "
                f'"package.module:app" (it is {short_repr(reference)})'
            )
    settings = _flat(_table(table, "config"))
    for name, value in given.items():
        if name not in settings:
            known = ", ".join(sorted(settings)) or "none"
            raise InvalidInput(f"{folder.name} has no setting {short_str(name)}; its settings are: {known}")
        settings[name] = value
    name = project.get("project", {}).get("name", folder.name)
    return Description(
        str(name), folder, (components["serverapp"], components["clientapp"]), settings,
        _nodes(_table(_table(project, "tool"), "flwr")),
    )  # fmt: skip


def load(app: Any, description: Description) -> tuple[Any, Any]:
    """Import the two components. Call it inside `process_state.restored`."""
    if description.folder is None:
        parts = app
        if len(parts) != 2:
            raise InvalidInput(f"flower: a tuple of {len(parts)}; give (server_app, client_app), or a path")
    else:
        if find_spec("torch") is not None and _mentions(description.folder, "torch"):
            importlib.import_module("torch")  # so that its generator is seeded from the first call on
        parts = tuple(_component(description.folder, reference) for reference in description.components)
    for part, kind, name in zip(parts, (flwr.ServerApp, flwr.ClientApp), ("ServerApp", "ClientApp"), strict=True):
        if not isinstance(part, kind):
            raise InvalidInput(f"flower: {short_repr(part)} is no {name}; give a flwr {name}")
    return parts[0], parts[1]


def sources(folder: Path | None) -> dict[str, str]:
    """Return digests of an app's Python files."""
    if folder is None:
        return {}
    files = sorted(file for file in folder.rglob("*.py") if file.is_file())
    return {str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest()[:16] for file in files}


def _component(folder: Path, reference: str) -> Any:
    module, _, attributes = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and module.startswith(error.name):
            raise InvalidInput(f"{folder}: there is no module {module}, which its pyproject names") from None
        where = traceback.extract_tb(sys.exc_info()[2])[-1]
        raise InvalidInput(
            f"{folder}: importing {module} failed: {type(error).__name__}: {error} "
            f"({Path(where.filename).name}:{where.lineno}); install what the app needs"
        ) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise InvalidInput(f"{folder}: module {module} has no {attributes}, which its pyproject names")
        found = getattr(found, attribute)
    return found


def _mentions(folder: Path, word: str) -> bool:
    return any(word in file.read_text(encoding="utf-8", errors="replace") for file in folder.rglob("*.py"))


def _table(parent: object, name: str) -> dict[str, Any]:
    found = parent.get(name, {}) if isinstance(parent, dict) else {}
    return found if isinstance(found, dict) else {}


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names, as Flower does."""
    out: dict[str, Any] = {}
    for name, value in table.items():
        out |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return out


def _nodes(table: dict[str, Any]) -> int | None:
    """Return `num-supernodes` of the default federation, where the pyproject has one."""
    federations = _table(table, "federations")
    default = federations.get("default")
    options = _table(_table(federations, default), "options") if isinstance(default, str) else {}
    nodes: Any = options.get("num-supernodes")
    return int(nodes) if is_int(nodes, least=1) else None
