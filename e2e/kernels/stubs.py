"""Makes the published CUDA build of torch one that needs no CUDA library, in place.

The package index has no CPU-only torch for Linux. The CUDA build's CPU half is complete, but it is linked with CUDA's libraries
(gigabytes more) and with `libtorch_cuda.so`. Each of those is replaced by a stub with just the dynamic symbols that the remaining
libraries ask for: a CUDA function returns 100 (`cudaErrorNoDevice`), a C++ one null, data is zeros. So torch sees a machine without
a device and takes its CPU paths. Two symbols run while torch is imported and get a body of their own.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from e2e.errors import ToolError
from e2e.kernels import elf

REPLACED = ("libtorch_cuda.so", "libtorch_cuda_linalg.so", "libtorch_nvshmem.so", "libcaffe2_nvrtc.so")
SYSTEM = re.compile(r"^(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-x86-64|libnuma|libutil)\.so")
HOST = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1")

# Returns a reference that a static initialiser writes to: give it room.
BODIES = {
    "_ZN4c10d15get_gil_checkerEv": ("lea 8f(%rip),%rax", "ret", ".data", ".balign 16", "8: .zero 256", ".text"),
    # The constructor of a default argument, destroyed at exit: zero the object and set its table of virtual functions.
    "_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb": (
        *("push %rdi", "call malloc_usable_size@plt", "mov %rax,%rdx", "xor %esi,%esi", "mov (%rsp),%rdi"),
        *("call memset@plt", "pop %rdi", "mov _ZTVN4c10d16ProcessGroupNCCL7OptionsE@GOTPCREL(%rip),%rax"),
        *("add $16,%rax", "mov %rax,(%rdi)", "ret"),
    ),
}


class Plan(NamedTuple):
    """Which stub needs which symbols: library → symbol → version, and what `libtorch_cuda.so` says a symbol is."""

    libraries: dict[str, dict[str, str]]
    kinds: dict[str, elf.Symbol]


def remove_cuda(site_packages: Path) -> int:
    """Put the stubs in place; returns how many. Needs gcc and readelf; raises ToolError when torch is not the expected build."""
    torch = site_packages / "torch"
    folder = torch / "lib"
    if not (folder / "libtorch_cuda.so").exists():
        raise ToolError(f"{folder} has no libtorch_cuda.so: this is no CUDA build of torch, so nothing needs replacing")
    plan = _plan(torch)
    host = _host_symbols()
    for name in REPLACED:
        (folder / name).unlink(missing_ok=True)
    for name, wanted in plan.libraries.items():
        # An unversioned symbol that the system has must not be hidden by a stub's.
        needed = {symbol: version for symbol, version in wanted.items() if version or symbol not in host}
        _compile(folder / name, needed, plan.kinds, "xor %eax,%eax" if name in REPLACED else "mov $100,%eax")
    _say_cpu(torch / "version.py")
    return len(plan.libraries)


def _plan(torch: Path) -> Plan:
    folder = torch / "lib"
    kept = [file for file in sorted(folder.glob("*.so*")) if file.name not in REPLACED] + sorted(torch.glob("_C.*.so"))
    kinds = {symbol.name: symbol for symbol in elf.symbols(folder / "libtorch_cuda.so") if symbol.defined}
    libraries: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    present: set[str] = set()
    wanted: dict[str, str] = {}
    for file in kept:
        for name in elf.needed(file):
            if name in REPLACED or not (SYSTEM.match(name) or (folder / name).exists()):
                libraries.setdefault(name, {})
        owners |= elf.version_owners(file)
        for symbol in elf.symbols(file):
            if symbol.defined:
                present.add(symbol.name)
            elif not symbol.weak or symbol.name in kinds:
                wanted[symbol.name] = symbol.version
    for name, version in wanted.items():
        owner = owners.get(version, "") or "libtorch_cuda.so"
        if name not in present and owner in libraries:
            libraries[owner][name] = version
    return Plan(libraries, kinds)


def _host_symbols() -> set[str]:
    names: set[str] = set()
    for library in HOST:
        asked = subprocess.run(["gcc", f"-print-file-name={library}"], check=True, capture_output=True, text=True)
        path = Path(asked.stdout.strip())
        if path.is_absolute():
            names |= {symbol.name for symbol in elf.symbols(path) if symbol.defined}
    return names


def _compile(target: Path, wanted: dict[str, str], kinds: dict[str, elf.Symbol], answer: str) -> None:
    text, data = [".text"], [".data", ".balign 16"]
    plain: list[str] = []
    for name in sorted(wanted):
        kind = kinds[name].kind if name in kinds else "FUNC"
        label = f'"{name}"'
        if name.startswith("_ZTI"):  # the smallest std::type_info: its virtual table and a name
            table = "_ZTVN10__cxxabiv117__class_type_infoE+16"
            data += [f".globl {label}", f".type {label},@object", f"{label}: .quad {table}", ".quad 9f"]
            data += [f".size {label},16", f'9: .asciz "{name[4:]}"', ".balign 16"]
        elif kind != "FUNC":
            size = max(kinds[name].size, 16)
            data += [f".globl {label}", f".type {label},@object", f"{label}: .zero {size}", f".size {label},{size}"]
            data += [".balign 16"]
        elif name in BODIES:
            text += [f".globl {label}", f".type {label},@function", f"{label}:", *BODIES[name]]
        else:
            plain += [f".globl {label}", f".type {label},@function", f"{label}:"]
    source = "\n".join([*text, *plain, answer, "ret", *data, '.section .note.GNU-stack,"",@progbits', ""])
    versions = sorted({version for version in wanted.values() if version})
    script = "".join(
        f"{version} {{ global: {'; '.join(name for name in wanted if wanted[name] == version)}; }};\n"
        for version in versions
    )
    with tempfile.TemporaryDirectory() as scratch:
        assembly, map_file = Path(scratch) / "stub.s", Path(scratch) / "stub.map"
        assembly.write_text(source)
        map_file.write_text(script)
        command = ["gcc", "-shared", "-nostdlib", "-o", str(target), str(assembly), f"-Wl,-soname,{target.name}"]
        command += [f"-Wl,--version-script={map_file}"] if versions else []
        subprocess.run([*command, "-Wl,--no-as-needed", "-lstdc++"], check=True)


def _say_cpu(version: Path) -> None:
    text = re.sub(r"__version__ = '([^'+]+)(\+[^']*)?'", r"__version__ = '\1+cpu'", version.read_text())
    version.unlink()  # first: the file may be a hard link into the installer's cache
    version.write_text(re.sub(r"(?m)^cuda(: [^=]*)? = .*$", "cuda = None", text))
