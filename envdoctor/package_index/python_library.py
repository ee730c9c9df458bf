"""Whether the Python files of a wheel provide a name. Modules are parsed when needed, and re-exports followed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.fast_names import name_without_fast
from envdoctor.package_index.lazy_names import exported_names, has_listed_names
from envdoctor.package_index.module_getattr import ModuleGetattr
from envdoctor.package_index.python_modules import Definition, Module, absolute_module, parse_module
from envdoctor.package_index.wheel_sources import WheelSources

State = Literal["present", "absent", "unknown"]
_WORD = lazy_pattern(r"[A-Za-z_]\w+")
_STAR = lazy_pattern(r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+\*", re.MULTILINE)
_EXPORTED = lazy_pattern(r"^__all__[ \t]*=[ \t]*[\[(]([^\[\]()]*)[\])][ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_STRINGS = lazy_pattern(r"""(?:\s*(?:(['"])\w+\1|\#[^\n]*(?=\n))\s*,?)*\s*""")
_DYNAMIC = lazy_pattern(
    r"__getattr__|_LazyModule|globals\(\)|vars\(|sys\.modules\[|attach(?:_stub)?\(|setattr\(|exec\("
)
_COPIES_NAMES = lazy_pattern(r"\b\w+\.__dict__\b|\b(?:dir|vars)\(\w")  # of another module
# Code that puts modules into sys.modules, or lets a package find them elsewhere.
_PUTS_MODULES = lazy_pattern(
    r"\bmodules\[(?!__name__\])[^\]\n]*\][ \t]*=(?!=)|\bmodules\.(?:setdefault|update)\(|setattr\(sys\.modules"
    r"|\bmeta_path\b|\bpath_hooks\b|__path__[ \t]*(?:\+?=(?!=)|\.(?:append|extend|insert)\()"
    r"|(?i:lazy_?module|moved_?module)"
)
_TESTS = lazy_pattern(r"(?:^|\.)(?:tests?|testing)(?:\.|$)")
_BUILT_AT_IMPORT = lazy_pattern(r"_pb2(?:_grpc)?$")  # modules whose names protobuf builds
# Decorators that pass the arguments on as they are.
_PLAIN_DECORATORS = frozenset({
    "staticmethod", "classmethod", "property", "abstractmethod", "overload", "override", "final", "cache",
    "lru_cache", "contextmanager", "asynccontextmanager", "no_grad", "inference_mode",
})  # fmt: skip
_CHANGES_ARGUMENTS = lazy_pattern(r"kwargs(?:\.pop|\[|\s*=[^=])|\bdel \w*kwargs|\.bind\(|signature")


class Found(NamedTuple):
    """Whether a name exists, and where it is defined."""

    state: State
    missing: str = ""  # the part that does not exist: "transformers.utils.HybridCache"
    owner: tuple[str, str] | None = None  # the module and name of the definition
    is_removed: bool = False  # absent: the module names it as a name that it no longer has


UNKNOWN = Found("unknown")
SIMPLE_BASES = {"object", "Enum", "str", "int"}


class Library:
    """The names in one wheel."""

    def __init__(self, sources: WheelSources) -> None:
        self.sources = sources
        self._paths = {module_name(path): path for path in reversed(sources.paths)}
        self._compiled = sources.compiled_modules
        modules = [*self._paths, *self._compiled]
        self._namespaces = {module[:end] for module in modules for end in _dots(module)}
        self.tops = frozenset(module.partition(".")[0] for module in modules)
        self._parsed: dict[str, Module | None] = {}
        self._sources: dict[str, str] = {}
        self._words: dict[str, frozenset[str]] = {}
        self._open: dict[str, tuple[tuple[str, ...], bool]] = {}
        self._exports: dict[str, frozenset[str] | None] = {}
        self._defined: dict[str, bool] = {}
        self._mentioned: dict[str, bool] = {}
        self._found: dict[tuple[str, str], Found] = {}
        self._getattrs: dict[str, ModuleGetattr] = {}
        self._decorators: dict[str, bool] = {}
        self._listed: dict[str, frozenset[str] | None] = {}

    def has_module(self, name: str) -> bool:
        """Whether a file or a folder of the wheel is this module."""
        return name in self._paths or name in self._compiled or name in self._namespaces

    def find(self, module: str, dotted: str) -> Found:
        """Find `dotted` in a module: a name, or names of modules and classes followed by one. Empty: the module."""
        if module.partition(".")[0] not in self.tops:
            return UNKNOWN
        if (module, dotted) not in self._found:
            found = self._find(module, dotted)
            other = name_without_fast(module, dotted) if found.state == "absent" else ""
            self._found[module, dotted] = self.find(module, other) if other else found
        return self._found[module, dotted]

    def _find(self, module: str, dotted: str) -> Found:
        if not self.has_module(module):
            return self._find_missing_module(module)
        current = module
        parts = dotted.split(".") if dotted else []
        for position, part in enumerate(parts):
            if self.has_module(f"{current}.{part}"):
                current = f"{current}.{part}"
                continue
            found = self._find_name(current, part, ())
            if found.state != "present" or position + 1 == len(parts):
                return found
            definition = self.definition(found)
            if definition and definition.kind == "import" and self.has_module(definition.module):
                current = definition.module
                continue
            return self._find_member(definition, f"{current}.{part}", parts[position + 1])
        return Found("present")

    def _find_missing_module(self, module: str) -> Found:
        parent, _, name = module.rpartition(".")
        found = self.find(parent, name) if parent else Found("absent", module)
        if found.state != "absent" and parent in self._paths and not self._puts_module(name):
            return Found("absent", module)  # a name of a package is no module that an import statement finds
        if found.state != "absent":
            return found
        # A module of this name may be put into sys.modules.
        quoted = re.compile(rf"""sys\.modules[^\n]*['"]{re.escape(module)}['"]""")
        return (
            UNKNOWN if any(quoted.search(text) for text in self._texts) else Found("absent", found.missing or module)
        )

    def _puts_module(self, name: str) -> bool:
        """Whether code can put a module of this name into sys.modules, or lets packages find theirs elsewhere."""
        if not self._can_put_modules:
            return False
        quoted = re.compile(rf"""['".]{re.escape(name)}['"]""")
        return any(quoted.search(self._text(module)) for module in self._paths if not _TESTS.search(module))

    @cached_property
    def _can_put_modules(self) -> bool:
        modules = (module for module in self._paths if not _TESTS.search(module))
        return any(_PUTS_MODULES.search(self._text(module)) for module in modules)

    def _find_name(self, module: str, name: str, seen: tuple[str, ...]) -> Found:
        if self.has_module(f"{module}.{name}"):
            return Found("present")
        is_read = module.partition(".")[0] in self.tops and module not in self._compiled
        if module in seen or not is_read or _BUILT_AT_IMPORT.search(module):
            return UNKNOWN
        if module not in self._paths:  # a folder: one at the top, such as google, is shared with other packages
            return Found("absent", f"{module}.{name}") if "." in module else UNKNOWN
        stars, is_open = self._open_names(module)
        # Most modules behind `from .x import *` do not have the word, and need no parsing.
        found = self._find_in_source(module, name, seen) if name in self._text(module) else None
        if found is None and is_open and "__getattr__" in self._text(module):
            found = self._find_in_getattr(module, name)
        if found is None and self._lacks(module, name):
            found = Found("absent", f"{module}.{name}")
        if found:
            return found
        is_alias = re.search(rf"""['"]{name}['"]""", self._text(module)) is not None  # in a table of old names
        for star in (each for each in stars if self._can_export(each, name)):
            found = self._find_name(star, name, (*seen, module))
            if found.state == "present":
                return found
            is_open |= found.state == "unknown"
        is_of_others = not self._are_own(stars) or self._copies_compiled_names(module)
        is_unknown = is_alias or (is_open and (is_of_others or self.mentions(name)))
        return UNKNOWN if is_unknown else Found("absent", f"{module}.{name}")

    def _listed_names(self, module: str) -> frozenset[str] | None:
        """The names that a lazy module takes from others, besides those in its source; None for other modules."""
        if module not in self._listed:
            text = self._text(module)
            below = ((each, self._text(each)) for each in self._paths if each.startswith(f"{module}."))
            self._listed[module] = exported_names(text, below) if has_listed_names(text) else None
        return self._listed[module]

    def _lacks(self, module: str, name: str) -> bool:
        """Whether a lazy module has neither the word in its source nor takes the name from another module."""
        listed = self._listed_names(module)
        return listed is not None and name not in listed and not re.search(rf"\b{name}\b", self._text(module))

    def _find_in_source(self, module: str, name: str, seen: tuple[str, ...]) -> Found | None:
        """The definition in a module that has the word; None if it is only used there."""
        defined = rf"^(?:class|def|async def)[ \t]+{name}\b|^{name}[ \t]*=[^=]"
        if re.search(defined, self._text(module), re.MULTILINE):
            return Found("present", owner=(module, name))
        parsed = self.module(module)
        definition = parsed.names.get(name) if parsed else None
        if definition is None:
            return None if parsed else UNKNOWN
        if definition.kind == "import" and definition.name:
            target = self._find_name(definition.module, definition.name, (*seen, module))
            if target.state == "present":
                return target
        return Found("present", owner=(module, name))

    def _open_names(self, module: str) -> tuple[tuple[str, ...], bool]:
        """The modules of `from X import *`, and whether the module can have further names."""
        if module not in self._open:
            path, text = self._paths[module], self._text(module)
            package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
            stars = tuple(absolute_module(package, len(dots), name) for dots, name in _STAR.findall(text))
            self._open[module] = stars, _DYNAMIC.search(text) is not None
        return self._open[module]

    def _can_export(self, module: str, name: str) -> bool:
        """Whether `from X import *` of a module can bring a name: what it imports itself is not in its `__all__`."""
        if module not in self._exports:
            text = self._text(module) if module in self._paths else ""
            found = _EXPORTED.search(text)
            is_complete = found and text.count("__all__") == 1 and _STRINGS.fullmatch(found[1])
            self._exports[module] = frozenset(re.findall(r"\w+", found[1])) if found and is_complete else None
        exported = self._exports[module]
        return exported is None or name in exported

    def _find_in_getattr(self, module: str, name: str) -> Found | None:
        """What `__getattr__` of a module does with a name; None if that is unknown.

        A name that it rejects is not searched in `from .x import *`, which may have an `__all__`.
        """
        if module not in self._getattrs:
            is_package = self._paths[module].endswith("__init__.py")
            self._getattrs[module] = ModuleGetattr(
                self._text(module), module, is_package=is_package,
                read=lambda other: self._text(other) if other in self._paths else None,
            )  # fmt: skip
        outcome = self._getattrs[module].outcome(name)
        if outcome == "raises":
            return Found("absent", f"{module}.{name}", is_removed=True)
        return Found("present") if outcome == "returns" else None

    def _words_of(self, module: str) -> frozenset[str]:
        if module not in self._words:
            self._words[module] = frozenset(map(sys.intern, _WORD.findall(self._text(module))))
        return self._words[module]

    def _are_own(self, modules: tuple[str, ...]) -> bool:
        """Whether all are Python modules of this wheel: compiled ones and those of others have unknown names."""
        return all(module in self._paths for module in modules)

    def _copies_compiled_names(self, module: str) -> bool:
        """Whether a module can have the names of a compiled one, as cv2 has."""
        return bool(self._compiled) and _COPIES_NAMES.search(self._text(module)) is not None

    def _find_member(self, definition: Definition | None, owner: str, name: str) -> Found:
        """A member of a class: absent only if no file of the wheel has the word."""
        if definition and definition.kind == "class":
            if name in definition.members:
                return Found("present")
            bases = (base.rpartition(".")[2] for base in definition.bases)
            if not self.mentions(name) and all(base in SIMPLE_BASES or self.defines(base) for base in bases):
                return Found("absent", f"{owner}.{name}")
        return UNKNOWN

    def definition(self, found: Found) -> Definition | None:
        """The definition of a name that was found; None if it is a module or in one that does not parse."""
        parsed = self.module(found.owner[0]) if found.owner else None
        return parsed.names.get(found.owner[1]) if parsed and found.owner else None

    def accepts(self, module: str, dotted: str, argument: str) -> Found:
        """Whether a function or a class can be called with an argument of this name."""
        found = self.find(module, dotted)
        definition = self.definition(found)
        if found.state != "present" or definition is None or definition.kind not in ("class", "function"):
            return UNKNOWN
        if definition.arguments is None or definition.takes_any:
            return UNKNOWN
        if argument in definition.arguments:
            return found
        if any(map(self._may_change_arguments, definition.decorators)):
            return UNKNOWN
        return found._replace(state="absent", missing=f"{dotted}({argument}=)")

    def _may_change_arguments(self, decorator: str) -> bool:
        """Whether a decorator can accept arguments that the function does not have, such as deprecated ones."""
        if decorator in _PLAIN_DECORATORS:
            return False
        if decorator not in self._decorators:
            defined = re.compile(rf"^(?:def|class) {decorator}\b.*?(?=^[^\s)#]|\Z)", re.MULTILINE | re.DOTALL)
            found = (match[0].partition("\n")[2] for text in self._texts if (match := defined.search(text)))
            self._decorators[decorator] = _CHANGES_ARGUMENTS.search(next(found, "signature")) is not None
        return self._decorators[decorator]

    def header(self, found: Found) -> str:
        """The text of a function up to its body, for a quick comparison; empty if it is not one."""
        if not found.owner or found.owner[0] not in self._paths:
            return ""
        module, name = found.owner
        pattern = rf"^(?:async )?def {name}\(.*?(?::[ \t]*$|\)[^\n]*:)"
        match = re.search(pattern, self._text(module), re.MULTILINE | re.DOTALL)
        return match[0] if match else ""

    def module(self, name: str) -> Module | None:
        """The names of a module; None if it is compiled or does not parse."""
        if name not in self._parsed:
            path = self._paths.get(name)
            is_package = bool(path) and path.endswith("__init__.py")  # type: ignore[union-attr]
            self._parsed[name] = parse_module(self._text(name), name, is_package=is_package) if path else None
        return self._parsed[name]

    def text_of(self, module: str) -> str:
        """The source of a module; empty if it is compiled."""
        return self._text(module) if module in self._paths else ""

    def _text(self, module: str) -> str:
        if module not in self._sources:
            self._sources[module] = self.sources.read(self._paths[module])
        return self._sources[module]

    @property
    def _texts(self) -> Iterator[str]:
        return (self._text(module) for module in self._paths)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every identifier-like word in the Python files."""
        return frozenset().union(*(self._words_of(module) for module in self._paths))

    def mentions(self, name: str) -> bool:
        """Whether a Python file has an identifier-like word."""
        if name not in self._mentioned:
            pattern = re.compile(rf"\b{re.escape(name)}\b")
            self._mentioned[name] = any(name in text and pattern.search(text) for text in self._texts)
        return self._mentioned[name]

    def has_word(self, path: str, word: str) -> bool:
        """Whether a file has a word; also a dotted one."""
        module = module_name(path)
        return module in self._paths and set(word.split(".")) <= self._words_of(module)

    def defines(self, name: str) -> bool:
        """Whether a Python file defines this function, class, field or attribute of self."""
        if name not in self._defined:
            pattern = re.compile(
                rf"\b(?:def|class)[ \t]+{name}\b|\bself\.{name}[ \t]*[:=](?!=)|^[ \t]+{name}[ \t]*[:=](?!=)",
                re.MULTILINE,
            )
            modules = (module for module in self._paths if name in self._words_of(module))
            self._defined[name] = any(pattern.search(self._text(module)) for module in modules)
        return self._defined[name]


def module_name(path: str) -> str:
    """The module of a file: `trl.trainer` for `trl/trainer/__init__.py`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _dots(module: str) -> list[int]:
    return [position for position, letter in enumerate(module) if letter == "."]
