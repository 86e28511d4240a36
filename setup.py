"""Compiles the modules of COMPILED. The environment variable HEADRACE_BUILD picks the flavour:

compiled   the default: fast extensions; a module that fails to compile fails the build
profile    compiled with debug info and .py line numbers, for perf
sanitize   compiled with AddressSanitizer, UBSan and overflow checks, for the fuzz tests
pure       nothing compiled: the interpreter runs the same files
"""

import os
import re
from pathlib import Path

from setuptools import Extension, setup

COMPILED = [
    "headrace.structures.footprint",
    "headrace.structures.listpack",
    "headrace.structures.listpack_walk",
    "headrace.structures.rax",
    "headrace.structures.rax_walk",
    "headrace.structures.streamid",
    "headrace.structures.xxh3",
    "headrace.resp.inbox",
    "headrace.resp.inline",
    "headrace.resp.parser",
    "headrace.resp.reader",
    "headrace.resp.replies",
    "headrace.resp.spare",
    "headrace.resp.vocabulary",
    "headrace.resp.writer",
    "headrace.streams.compaction",
    "headrace.streams.consumer",
    "headrace.streams.counting",
    "headrace.streams.delivery",
    "headrace.streams.group",
    "headrace.streams.idempotency",
    "headrace.streams.iterator",
    "headrace.streams.node",
    "headrace.streams.node_check",
    "headrace.streams.node_walk",
    "headrace.streams.pending",
    "headrace.streams.ranks",
    "headrace.streams.records",
    "headrace.streams.references",
    "headrace.streams.size",
    "headrace.streams.slots",
    "headrace.streams.stream",
    "headrace.streams.trim",
    "headrace.streams.weight",
    "headrace.arrow.column_runs",
    "headrace.arrow.columns",
    "headrace.arrow.encoder",
    "headrace.arrow.field_names",
    "headrace.arrow.growing",
    "headrace.arrow.ipc",
    "headrace.arrow.node_runs",
    "headrace.keyspace.blocking",
    "headrace.keyspace.events",
    "headrace.keyspace.expiry",
    "headrace.keyspace.glob",
    "headrace.keyspace.glob_elements",
    "headrace.keyspace.keyspace",
    "headrace.keyspace.scan",
    "headrace.keyspace.settings",
    "headrace.keyspace.watching",
    "headrace.persistence.aof.log",
    "headrace.persistence.aof.reader",
    "headrace.persistence.aof.records",
    "headrace.persistence.aof.rewrite",
    "headrace.persistence.crc64",
    "headrace.persistence.lzf",
    "headrace.persistence.rdb.input",
    "headrace.persistence.rdb.kept",
    "headrace.persistence.rdb.output",
    "headrace.persistence.rdb.stream_reader",
    "headrace.persistence.rdb.stream_writer",
    "headrace.persistence.rdb.writer",
    "headrace.access.selector",
    "headrace.access.user",
    "headrace.commands.acknowledge",
    "headrace.commands.acl",
    "headrace.commands.acl_rows",
    "headrace.commands.admin",
    "headrace.commands.append",
    "headrace.commands.arguments",
    "headrace.commands.arrow",
    "headrace.commands.call",
    "headrace.commands.channels",
    "headrace.commands.claim",
    "headrace.commands.client",
    "headrace.commands.client_list",
    "headrace.commands.connection",
    "headrace.commands.count",
    "headrace.commands.counters",
    "headrace.commands.databases",
    "headrace.commands.delete",
    "headrace.commands.entries",
    "headrace.commands.expire",
    "headrace.commands.finder",
    "headrace.commands.group_read",
    "headrace.commands.groups",
    "headrace.commands.help",
    "headrace.commands.host",
    "headrace.commands.idempotency",
    "headrace.commands.info",
    "headrace.commands.introspection",
    "headrace.commands.keys",
    "headrace.commands.long_double",
    "headrace.commands.members",
    "headrace.commands.nack",
    "headrace.commands.object",
    "headrace.commands.pending",
    "headrace.commands.pubsub",
    "headrace.commands.read",
    "headrace.commands.read_options",
    "headrace.commands.rename",
    "headrace.commands.scripts",
    "headrace.commands.server_info",
    "headrace.commands.session",
    "headrace.commands.set_options",
    "headrace.commands.spec",
    "headrace.commands.strings",
    "headrace.commands.substrings",
    "headrace.commands.table",
    "headrace.commands.transactions",
    "headrace.commands.trim",
    "headrace.commands.wishes",
    "headrace.api.door",
    "headrace.api.field_words",
    "headrace.api.streamid",
    "headrace.engine.clock",
    "headrace.engine.effects",
    "headrace.engine.engine",
    "headrace.engine.gate",
    "headrace.engine.guard",
    "headrace.engine.histogram",
    "headrace.engine.refusals",
    "headrace.engine.replaying",
    "headrace.engine.stats",
    "headrace.engine.timing",
    "headrace.server.client_limits",
    "headrace.server.connection",
    "headrace.server.durability",
    "headrace.server.handshakes",
    "headrace.server.secure",
    "headrace.server.turn",
    "headrace.spark.arrow_decoder",
    "headrace.spark.encoder",
    "headrace.spark.exact_rows",
    "headrace.spark.page_scanner",
    "headrace.spark.runs",
    "headrace.spark.tally",
]

# Only directives that leave the meaning of the code as the interpreter has it. No boundscheck=False,
# no wraparound=False, no cdivision=True: a borrowed pointer is not affected by any of them.
DIRECTIVES = {
    "language_level": 3,
    "nonecheck": True,  # None.attribute raises, as interpreted, instead of reading stray memory
    "auto_pickle": False,  # the default pickles a pointer as a C string and loads it dangling
    "embedsignature": True,
    "freethreading_compatible": True,
}
WARN = ["-Wall", "-Werror=sign-compare", "-Wno-unreachable-code", "-Wno-unused-function"]
FAST = ["-O3", "-fno-plt"]  # 4 % less CPU than -O2; the program may run on another machine, so no -march
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
FLAVOURS: dict[str, tuple[list[str], list[str], dict[str, bool]]] = {
    # flavour: (compile flags, link flags, extra directives)
    "compiled": ([*FAST, "-g0", *WARN], [], {}),
    "profile": ([*FAST, "-g", *WARN], [], {}),
    "sanitize": (["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZE], SANITIZE, {}),
}


CIMPORT = re.compile(r"^from ([\w.]+) cimport ([^#\n]+)", re.MULTILINE)


def declaration_files(module: str) -> set[Path]:
    """Return the declaration files that a module is compiled with: its own and all that it cimports."""
    files: set[Path] = set()
    modules = {module}
    while modules:
        path = Path("src", *modules.pop().split(".")).with_suffix(".pxd")
        if path in files or not path.is_file():
            continue
        files.add(path)
        for source, names in CIMPORT.findall(path.read_text()):
            modules |= {source, *(f"{source}.{name.split()[0]}" for name in names.split(","))}
    return files


def remove_outdated_c(flavour: str, names: list[str]) -> None:
    """Remove the C of modules whose declaration files have changed since, so that it is made again.

    Cython follows `from package.module cimport name`, but not `from package cimport module`.
    """
    for name in names:
        made = Path("build/c", flavour, "src", *name.split(".")).with_suffix(".c")
        files = declaration_files(name)
        if made.exists() and any(file.stat().st_mtime > made.stat().st_mtime for file in files):
            made.unlink()


def extensions(flavour: str, names: list[str] = COMPILED) -> list[Extension]:
    """The extension modules of one flavour, their C kept apart from the sources."""
    from Cython.Build import cythonize

    remove_outdated_c(flavour, names)
    compile_flags, link_flags, more = FLAVOURS[flavour]
    modules = [
        Extension(
            name,
            [f"src/{name.replace('.', '/')}.py"],
            extra_compile_args=compile_flags,
            extra_link_args=link_flags,
        )
        for name in names
    ]
    return cythonize(
        modules,
        compiler_directives=DIRECTIVES | more,
        include_path=["src"],
        build_dir=f"build/c/{flavour}",
        nthreads=os.cpu_count() or 1,
        emit_linenums=flavour != "compiled",
        annotate="HEADRACE_ANNOTATE" in os.environ,
    )


if __name__ == "__main__":
    flavour = os.environ.get("HEADRACE_BUILD", "compiled")
    setup(
        ext_modules=[] if flavour == "pure" else extensions(flavour),
        options={
            "build_ext": {"parallel": os.cpu_count()},
            "build": {"build_temp": f"build/objects/{flavour}"},
        },
    )
