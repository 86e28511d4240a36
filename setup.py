"""Build the package. Each module that imports `cython` is compiled.

The declaration files (.pxd) of the compiled modules are generated first, into build/declarations: see
build_support/declarations.py. The environment variable HEADRACE_BUILD selects the flavour:

compiled   the default: fast extensions; a module that fails to compile fails the build
profile    compiled with debug info and .py line numbers, for perf
sanitize   compiled with AddressSanitizer and UBSan, for the fuzz tests; its traces name lines of the C files
pure       nothing compiled: the interpreter runs the same files
"""

import os
import pathlib
import re
import shutil
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # pip runs this file from elsewhere

from build_support.declarations import DeclarationError, Package

SOURCE = pathlib.Path("src/headrace")
DECLARATIONS = pathlib.Path("build/declarations")
# Cython's own types and helpers, once instead of in each module: a quarter less for the C compiler to do.
SHARED = "headrace.cython_shared"

# Only directives under which the code behaves as in the interpreter. boundscheck=False, wraparound=False and
# cdivision=True are not used: access through borrowed pointers would gain nothing from them.
DIRECTIVES = {
    "language_level": 3,
    "nonecheck": True,  # None.attribute raises, as interpreted, instead of reading stray memory
    "auto_pickle": False,  # the default pickles a pointer as a C string and loads it dangling
    "embedsignature": True,
    "freethreading_compatible": False,  # buffers for IDs and words are shared by all engines of a process
}
# A helper that Cython calls but leaves out would be missed only at the import. In 3.3.1 these are, if helpers
# are shared, those for `+=`, append() and extend() of a bytearray; a list or a slice does without.
WARN = [
    "-Wall",
    "-Werror=sign-compare",
    "-Werror=implicit-function-declaration",
    "-Wno-unreachable-code",
    "-Wno-unused-function",
]
FAST = ["-O3", "-fno-plt"]  # 4 % less CPU than -O2; the program may run on another machine, so no -march
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
# Those that compile; the others, such as sdist, do not translate the modules to C either.
COMMANDS = {"bdist_wheel", "build", "build_ext", "build_py", "develop", "editable_wheel", "install"}
FLAVOURS: dict[str, tuple[list[str], list[str], dict[str, bool]]] = {
    # flavour: (compile flags, link flags, extra directives)
    "compiled": ([*FAST, "-g0", *WARN], [], {}),
    "profile": ([*FAST, "-g", *WARN], [], {}),
    "sanitize": (["-O1", "-g1", "-fno-omit-frame-pointer", *SANITIZE], SANITIZE, {}),
}


def check_tools() -> None:
    """End with one line if nothing can be compiled here: the compiler would say it once for each module."""
    header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    lacks = [] if header.exists() else [f"{header} (Debian: apt-get install python3-dev)"]
    if shutil.which(compiler) is None:
        lacks.append(f"the C compiler {compiler} (Debian: apt-get install gcc)")
    if lacks:
        sys.exit(f"headrace cannot be compiled without {' and '.join(lacks)}")


def declare(c_directory: pathlib.Path) -> list[str]:
    """Generate the declaration files; return the names of the compiled modules.

    Cython knows which C files are older than their .py. Here those are removed that are older than a
    declaration which they depend on.
    """
    package = Package(SOURCE)
    try:
        files = package.generate(DECLARATIONS)
        for name in package.compiled():
            c_file = (c_directory / package.modules[name].path).with_suffix(".c")
            needed = [files[other] for other in package.dependencies(name)]
            if c_file.exists() and c_file.stat().st_mtime < max(path.stat().st_mtime for path in needed):
                c_file.unlink()
    except DeclarationError as error:
        sys.exit(str(error))
    return package.compiled()


def extensions(flavour: str, names: list[str] | None = None) -> list[Extension]:
    """Return the extension modules of one flavour, their C kept apart from the sources.

    Args:
        flavour: a key of FLAVOURS.
        names: the modules to compile; all if None.
    """
    from Cython.Build import cythonize

    compile_flags, link_flags, more = FLAVOURS[flavour]
    with_lines = flavour == "profile"
    c_directory = pathlib.Path("build/c", "with-lines" if with_lines else "plain")  # shared by flavours
    compiled = declare(c_directory)
    modules = [
        Extension(
            name,
            [f"src/{name.replace('.', '/')}.py"],
            extra_compile_args=compile_flags,
            extra_link_args=link_flags,
        )
        for name in (compiled if names is None else names)
    ]
    shared = Extension(
        SHARED,
        [f"src/{SHARED.replace('.', '/')}.c"],  # generated, like the others in build_dir
        extra_compile_args=compile_flags,
        extra_link_args=link_flags,
    )
    return cythonize(
        [*modules, shared],
        shared_utility_qualified_name=SHARED,
        compiler_directives=DIRECTIVES | more,
        include_path=[str(DECLARATIONS), "src"],
        build_dir=str(c_directory),
        nthreads=os.cpu_count() or 1,
        emit_linenums=with_lines,
        annotate="HEADRACE_ANNOTATE" in os.environ,
    )


class BuildPy(build_py):
    """Copies the modules, after removing what an earlier build left of others in the same directory.

    A compiled module that is plain Python now would be imported instead of its new source.
    """

    def run(self) -> None:
        built = pathlib.Path(self.build_lib)
        compiled = {extension.name for extension in self.distribution.ext_modules or []}
        for path in [*built.rglob("*.so"), *built.rglob("*.py")]:
            name = path.relative_to(built)
            module = ".".join([*name.parent.parts, name.name.partition(".")[0]])
            if module not in compiled if path.suffix == ".so" else not ("src" / name).exists():
                path.unlink()
        super().run()


def linker() -> str:
    """Return the command that links extensions, without the directory of this Python's library.

    An extension does not need that library, and a wheel may be installed on another machine.
    """
    return re.sub(r"-Wl,-rpath[,=]\S+", "", sysconfig.get_config_var("LDSHARED"))


if __name__ == "__main__":
    flavour = os.environ.get("HEADRACE_BUILD", "compiled")
    compiles = flavour != "pure" and not COMMANDS.isdisjoint(sys.argv)
    if compiles:
        check_tools()
    os.environ.setdefault("LDSHARED", linker())
    setup(
        ext_modules=extensions(flavour) if compiles else [],
        cmdclass={"build_py": BuildPy},
        options={
            "build_ext": {"parallel": os.cpu_count()},
            "build": {"build_temp": f"build/objects/{flavour}"},
        },
    )
