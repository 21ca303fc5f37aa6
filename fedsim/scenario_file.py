"""Scenario files: Python files with a function `scenario(*, ...)` whose arguments are settings.

def scenario(*, local_steps: int = 10, policy: str = "uniform") -> fs.Scenario: ...
grid = {"local_steps": [1, 10, 100]}   # optional; `fedsim run` runs every combination
def figure(study): ...                 # optional; returns a matplotlib figure, saved as PNG
"""

from __future__ import annotations

import inspect
import io
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib import invalidate_caches
from importlib.util import decode_source, find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from fedsim import settings
from fedsim.checks import check_path
from fedsim.code_digest import imported_sources, source_digests
from fedsim.errors import CorruptData, FedsimError, InvalidInput
from fedsim.protocols import Executable
from fedsim.scenario import Scenario
from fedsim.text import short_repr


@dataclass(frozen=True)
class Parameter:
    """An argument of `scenario()`."""

    name: str
    annotation: Any
    default: Any  # inspect.Parameter.empty if it has no default

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, eq=False)
class ScenarioFile:
    """A loaded scenario file."""

    path: Path
    source: str
    parameters: tuple[Parameter, ...]
    grid: dict[str, list[Any]]
    function: Callable[..., Any]
    figure: Callable[[Any], Any] | None
    modules: dict[str, str]  # digests of the modules that it imports and that are not installed packages

    @property
    def name(self) -> str:
        return self.path.stem

    def build(self, given: Mapping[str, Any]) -> Scenario:
        """Build the scenario with these settings: arguments of `scenario()`, or dotted fields of its result."""
        known = {p.name: p for p in self.parameters}
        arguments = {n: settings.from_text(n, v, known[n].annotation) for n, v in given.items() if n in known}
        for p in self.parameters:
            if p.required and p.name not in arguments:
                raise InvalidInput(
                    f"{self.path}: scenario() needs {p.name}; set it ({p.name}=...) or give it a default"
                )
        with self.blamed(InvalidInput):
            scenario: Any = self.function(**arguments)
        if not isinstance(scenario, Scenario | Executable):
            raise InvalidInput(f"{self.path}: scenario() returned {type(scenario).__name__}; return a fs.Scenario")
        rest, part = {n: v for n, v in given.items() if n not in known}, cast(Any, scenario)
        for name in rest:
            if name.partition(".")[0] not in {f.name for f in fields(part)}:
                raise settings.unknown(name, [*known, *settings.field_names(scenario)])
        built: Scenario = settings.with_fields(scenario, rest)
        return built

    def typed(self, name: str, value: object, example: Scenario) -> Any:
        """Convert one setting to its type, in a form that JSON can store."""
        known = {p.name: p.annotation for p in self.parameters}
        annotation = known[name] if name in known else settings.annotation_of(example, name)
        return settings.plain(name, settings.from_text(name, value, annotation))

    def origin(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the file and settings of a scenario, from which `from_origin` builds it again."""
        stored = {name: settings.plain(name, value) for name, value in given.items()}
        return {
            "file": str(self.path),
            "folder": str(self.path.parent.absolute()),
            "text": self.source,
            "settings": stored,
            "modules": self.modules,
        }

    def picture(self, study: object) -> bytes | None:
        """Draw the file's figure of a study as PNG; None if it defines no figure."""
        if self.figure is None:
            return None
        import matplotlib

        matplotlib.use("Agg")
        with self.blamed(InvalidInput):
            figure = self.figure(study)
            if not hasattr(figure, "savefig"):
                raise InvalidInput(f"{self.path}: figure() returned {type(figure).__name__}, not a matplotlib figure")
            png = io.BytesIO()
            figure.savefig(png, format="png", dpi=150)
        return png.getvalue()

    @contextmanager
    def blamed(self, kind: type[FedsimError]) -> Iterator[None]:
        """Prefix errors of the body with the line of the file; turn errors that are not fedsim's into `kind`."""
        try:
            yield
        except (Exception, SystemExit) as error:
            own = isinstance(error, FedsimError)
            if not own and line_of(error, self.path) is None:
                raise  # not caused by the file
            text = str(error) if own else describe_error(error)
            if isinstance(error, InvalidInput) and isinstance(error.__cause__, SystemExit):
                text = describe_error(error.__cause__)
            raise (type(error) if own else kind)(f"{place(error, self.path)}{text}") from error


def line_of(error: BaseException, path: Path) -> int | None:
    """Return the innermost line of the file in the traceback of an error or of its cause."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if error.__cause__ is not None:  # the line in the client's code is closer to the mistake
        lines.append(line_of(error.__cause__, path))
    found = [line for line in lines if line is not None]
    return found[-1] if found else None


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error in the file's code."""
    if isinstance(error, SystemExit):
        return f"sys.exit({'' if error.code is None else error.code}) ends the program; raise an error instead"
    return f"{type(error).__name__}: {error}"


def place(error: BaseException, path: Path) -> str:
    line = line_of(error, path)
    return "" if line is None else f"{path}:{line}: "


def load_file(file: str | Path) -> ScenarioFile:
    """Load a scenario file by its path, or a shipped one by its name."""
    path = _find(file)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}); give a readable scenario file") from None
    try:
        return load_source(path, decode_source(raw))
    except (SyntaxError, UnicodeDecodeError):
        raise InvalidInput(f"{path} is not Python source; give a file that defines scenario()") from None


def load_names(path: Path) -> dict[str, Any]:
    """Execute a Python file that may import modules beside it, such as one without `scenario()`; return its names."""
    source = decode_source(path.read_bytes())
    _add_to_path(str(path.parent.absolute()))
    found = imported_sources(source)
    _unload_changed(found, source_digests(found))
    return vars(_executed(path, compile(source, str(path), "exec", dont_inherit=True)))


def load_source(
    path: Path, source: str, folder: str | Path | None = None, modules: Mapping[str, str] | None = None
) -> ScenarioFile:
    """Load the stored text of a scenario file; `folder` is the folder of the file.

    `modules` are the stored digests of its imports; if any has changed, the file is refused.
    """
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise InvalidInput(f"{path}:{error.lineno or 1}: {error.msg}") from None
    except ValueError:
        raise InvalidInput(f"{path} is not Python source; give a file that defines scenario()") from None
    _add_to_path(str(folder or path.parent.absolute()))
    found = imported_sources(source)
    now = source_digests(found)
    if modules is not None and dict(modules) != now:
        changed = sorted(name for name in {*modules, *now} if modules.get(name) != now.get(name))
        raise InvalidInput(
            f"{', '.join(changed)}, which {path} imports, has changed since; "
            "restore it, or start again in another --out"
        )
    _unload_changed(found, now)
    return _described(path, source, _executed(path, code), now)


def from_origin(origin: Mapping[str, Any]) -> tuple[ScenarioFile, dict[str, Any]]:
    """Load the file and the settings that `ScenarioFile.origin` has stored in a run's folder."""
    if not {"file", "text", "settings"} <= set(origin):
        raise InvalidInput(
            "it was not made from a scenario file, so it cannot be rebuilt; use fs.run(..., resume=True)"
        )
    modules, folder = origin.get("modules"), origin.get("folder")
    kinds = ((origin["file"], str), (origin["text"], str), (origin["settings"], dict))
    if not all(isinstance(value, kind) for value, kind in (*kinds, (modules or {}, dict), (folder or "", str))):
        raise CorruptData("the record of its scenario file is damaged, so it cannot be rebuilt")
    if "\0" in f"{origin['file']}{folder}":
        raise CorruptData("the record of its scenario file is damaged, so it cannot be rebuilt")
    return load_source(Path(origin["file"]), origin["text"], folder, modules), dict(origin["settings"])


def scenarios_folder() -> Path:
    """Return the folder of the shipped scenarios."""
    spec = find_spec("fedsim.scenarios")
    # In a checkout that is not installed they are beside the package.
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else Path(__file__).parents[1] / "scenarios"


def shipped() -> dict[str, Path]:
    """Return the paths of the shipped scenarios by name."""
    return {path.stem: path for path in sorted(scenarios_folder().glob("*.py")) if not path.stem.startswith("_")}


def _find(file: str | Path) -> Path:
    path = check_path("file", file)
    if path.is_file():
        return path
    known = shipped()
    if str(file) in known:
        return known[str(file)]
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder; give a scenario file")
    raise InvalidInput(f"{path}: no such file, and no scenario of that name ships with fedsim ({', '.join(known)})")


_IMPORTED: dict[str, str] = {}  # digests of the modules beside scenario files that this process has imported
_FOLDERS: list[str] = []  # folders of scenario files, the latest first; they are last in sys.path


def _add_to_path(folder: str) -> None:
    """Let a file import modules of its folder: after all libraries, and before the folders of earlier files."""
    if folder in sys.path and folder not in _FOLDERS:
        return
    _FOLDERS[:] = [folder, *(other for other in _FOLDERS if other != folder)]
    sys.path[:] = [*(other for other in sys.path if other not in _FOLDERS), *_FOLDERS]


def _unload_changed(found: Mapping[str, Path], now: Mapping[str, str]) -> None:
    """Unload modules of another file or an older version, so that the digested code is the code that runs."""
    loaded = {name: getattr(sys.modules[name], "__file__", None) for name in found if name in sys.modules}
    if any(
        (file is not None and Path(file).absolute() != found[name].absolute())
        or _IMPORTED.get(name, now[name]) != now[name]
        for name, file in loaded.items()
    ):
        for name in loaded:
            del sys.modules[name]
    _IMPORTED.update(now)
    invalidate_caches()


def _executed(path: Path, code: CodeType) -> ModuleType:
    module = ModuleType(f"scenario_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look classes up here
    try:
        exec(code, module.__dict__)
    except FedsimError as error:
        raise InvalidInput(f"{place(error, path)}{error}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"{place(error, path)}{describe_error(error)}") from error
    return module


def _described(path: Path, source: str, module: ModuleType, modules: dict[str, str]) -> ScenarioFile:
    function = getattr(module, "scenario", None)
    if not inspect.isfunction(function):
        raise InvalidInput(f"{path} defines no function scenario(); add one that returns a fs.Scenario")
    figure = getattr(module, "figure", None)
    if figure is not None and not callable(figure):
        raise InvalidInput(f"{path}: figure is {type(figure).__name__}; make it a function of the study")
    parameters = tuple(_parameter(path, function, p) for p in inspect.signature(function).parameters.values())
    grid = _grid(path, getattr(module, "grid", {}))
    return ScenarioFile(path, source, parameters, grid, function, figure, modules)


def _parameter(path: Path, function: Callable[..., Any], p: inspect.Parameter) -> Parameter:
    if p.kind not in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD):
        raise InvalidInput(f"{path}: scenario({p}): name every argument, as in scenario(*, local_steps: int = 10)")
    annotation = p.annotation
    if annotation is p.empty:
        annotation = type(p.default) if isinstance(p.default, bool | int | float | str) else Any
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, function.__globals__)
        except Exception as error:
            raise InvalidInput(f"{path}: scenario({p}): the annotation does not evaluate ({error})") from None
    return Parameter(p.name, annotation, p.default)


def _grid(path: Path, grid: object) -> dict[str, list[Any]]:
    if not isinstance(grid, Mapping):
        raise InvalidInput(f"{path}: grid is {type(grid).__name__}; write grid = {{'local_steps': [1, 10, 100]}}")
    axes = {str(name): settings.listed(f"{path}: grid[{short_repr(name)}]", values) for name, values in grid.items()}
    settings.check_runs(axes)
    return axes
