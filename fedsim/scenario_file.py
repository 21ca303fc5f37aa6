"""Scenario files: plain Python with a function `scenario(*, ...)` whose arguments can be set from outside.

def scenario(*, local_steps: int = 10, policy: str = "uniform") -> fs.Scenario: ...
grid = {"local_steps": [1, 10, 100]}   # optional: `fedsim run` runs every combination
def figure(study): ...                 # optional: a matplotlib figure, saved as PNG
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
from typing import Any

from fedsim import settings
from fedsim.checks import check_path
from fedsim.code_digest import imported_sources, sums
from fedsim.errors import CorruptData, FedsimError, InvalidInput
from fedsim.scenario import Scenario
from fedsim.text import short_repr


@dataclass(frozen=True)
class Parameter:
    """One argument of a file's `scenario()`."""

    name: str
    annotation: Any
    default: Any  # inspect.Parameter.empty where it has none

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, eq=False)
class ScenarioFile:
    """A loaded file."""

    path: Path
    source: str
    parameters: tuple[Parameter, ...]
    grid: dict[str, list[Any]]
    function: Callable[..., Any]
    figure: Callable[[Any], Any] | None
    modules: dict[str, str]  # digests of the sources that it imports from beside itself, or from anywhere not installed

    @property
    def name(self) -> str:
        return self.path.stem

    def build(self, given: Mapping[str, Any]) -> Scenario:
        """The scenario under these settings: arguments of `scenario()`, or dotted fields of what it returns."""
        known = {p.name: p for p in self.parameters}
        arguments = {n: settings.from_text(n, v, known[n].annotation) for n, v in given.items() if n in known}
        for p in self.parameters:
            if p.required and p.name not in arguments:
                raise InvalidInput(
                    f"{self.path}: scenario() needs {p.name}; set it ({p.name}=...) or give it a default"
                )
        with self.blamed(InvalidInput):
            scenario = self.function(**arguments)
        if not isinstance(scenario, Scenario):
            raise InvalidInput(f"{self.path}: scenario() returned {type(scenario).__name__}; return a fs.Scenario")
        rest = {n: v for n, v in given.items() if n not in known}
        for name in rest:
            if name.partition(".")[0] not in {f.name for f in fields(scenario)}:
                raise settings.unknown(name, [*known, *settings.field_names(scenario)])
        built: Scenario = settings.with_fields(scenario, rest)
        return built

    def typed(self, name: str, value: object, example: Scenario) -> Any:
        """One setting as the value that it stands for, in a form that JSON can keep."""
        known = {p.name: p.annotation for p in self.parameters}
        annotation = known[name] if name in known else settings.annotation_of(example, name)
        return settings.plain(name, settings.from_text(name, value, annotation))

    def origin(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Where a scenario came from, for its folder: enough to build it again."""
        kept = {name: settings.plain(name, value) for name, value in given.items()}
        return {
            "file": str(self.path),
            "folder": str(self.path.parent.absolute()),
            "text": self.source,
            "settings": kept,
            "modules": self.modules,
        }

    def picture(self, study: object) -> bytes | None:
        """The file's figure of a study as PNG; None where it defines none."""
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
        """Errors of the body get the file's own line in front; those that are not fedsim's become a `kind`."""
        try:
            yield
        except (Exception, SystemExit) as error:
            own = isinstance(error, FedsimError)
            if not own and line_of(error, self.path) is None:
                raise  # not the file's doing
            said = str(error) if own else story(error)
            raise (type(error) if own else kind)(f"{place(error, self.path)}{said}") from error


def line_of(error: BaseException, path: Path) -> int | None:
    """The innermost line of the file that an error, or what caused it, went through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if error.__cause__ is not None:  # what the client's own code raised is nearer to the mistake
        lines.append(line_of(error.__cause__, path))
    found = [line for line in lines if line is not None]
    return found[-1] if found else None


def story(error: BaseException) -> str:
    """What a file's own code did wrong, in a few words."""
    if isinstance(error, SystemExit):
        return f"sys.exit({'' if error.code is None else error.code}) ends the program; raise an error instead"
    return f"{type(error).__name__}: {error}"


def place(error: BaseException, path: Path) -> str:
    line = line_of(error, path)
    return "" if line is None else f"{path}:{line}: "


def load_file(file: str | Path) -> ScenarioFile:
    """Load a scenario file, or one that ships with fedsim by its name."""
    path = _find(file)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}); give a readable scenario file") from None
    try:
        return load_source(path, decode_source(raw))
    except (SyntaxError, UnicodeDecodeError):
        raise InvalidInput(f"{path} is not Python source; give a file that defines scenario()") from None


def load_source(
    path: Path, source: str, folder: str | Path | None = None, modules: Mapping[str, str] | None = None
) -> ScenarioFile:
    """Load the text of a scenario file, which may have changed since or be gone; `folder` is where it stood.

    `modules` are the digests of what it imported then: if any of it has changed, that is refused.
    """
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise InvalidInput(f"{path}:{error.lineno or 1}: {error.msg}") from None
    except ValueError:
        raise InvalidInput(f"{path} is not Python source; give a file that defines scenario()") from None
    _beside(str(folder or path.parent.absolute()))
    found = imported_sources(source)
    now = sums(found)
    if modules is not None and dict(modules) != now:
        changed = sorted(name for name in {*modules, *now} if modules.get(name) != now.get(name))
        raise InvalidInput(
            f"{', '.join(changed)}, which {path} imports, has changed since; "
            "put it back, or begin anew in another --out"
        )
    _renew(found, now)
    return _described(path, source, _executed(path, code), now)


def from_origin(origin: Mapping[str, Any]) -> tuple[ScenarioFile, dict[str, Any]]:
    """The file and the settings that a run's folder remembers; what `ScenarioFile.origin` wrote."""
    if not {"file", "text", "settings"} <= set(origin):
        raise InvalidInput(
            "it was not made from a scenario file, so it cannot be rebuilt; use fs.run(..., resume=True)"
        )
    modules, folder = origin.get("modules"), origin.get("folder")
    kinds = ((origin["file"], str), (origin["text"], str), (origin["settings"], dict))
    if not all(isinstance(value, kind) for value, kind in (*kinds, (modules or {}, dict), (folder or "", str))):
        raise CorruptData("what it says about its scenario file is damaged, so it cannot be rebuilt")
    if "\0" in f"{origin['file']}{folder}":
        raise CorruptData("what it says about its scenario file is damaged, so it cannot be rebuilt")
    return load_source(Path(origin["file"]), origin["text"], folder, modules), dict(origin["settings"])


def scenarios_folder() -> Path:
    """Where the scenarios are that come with fedsim."""
    spec = find_spec("fedsim.scenarios")
    # A checkout that is not installed has them beside the package instead of inside.
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else Path(__file__).parents[1] / "scenarios"


def shipped() -> dict[str, Path]:
    """The scenarios that come with fedsim, by name."""
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


_SEEN: dict[str, str] = {}  # digests of the neighbours that this process has imported
_BESIDE: list[str] = []  # folders of scenario files, the latest first; they stand last in sys.path


def _beside(folder: str) -> None:
    """Let a file import its neighbours, never in place of a library, and before those of an earlier file."""
    if folder in sys.path and folder not in _BESIDE:
        return
    _BESIDE[:] = [folder, *(other for other in _BESIDE if other != folder)]
    sys.path[:] = [*(other for other in sys.path if other not in _BESIDE), *_BESIDE]


def _renew(found: Mapping[str, Path], now: Mapping[str, str]) -> None:
    """Import neighbours again if one of another file, or an older version, is there: what runs is what was digested."""
    there = {name: getattr(sys.modules[name], "__file__", None) for name in found if name in sys.modules}
    if any(
        (file is not None and Path(file).absolute() != found[name].absolute())
        or _SEEN.get(name, now[name]) != now[name]
        for name, file in there.items()
    ):
        for name in there:
            del sys.modules[name]
    _SEEN.update(now)
    invalidate_caches()


def _executed(path: Path, code: CodeType) -> ModuleType:
    module = ModuleType(f"scenario_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look classes up there
    try:
        exec(code, module.__dict__)
    except FedsimError as error:
        raise InvalidInput(f"{place(error, path)}{error}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"{place(error, path)}{story(error)}") from error
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
