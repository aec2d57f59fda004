"""On a machine with an NVIDIA GPU: it is found, shown to the job, and its memory is freed by suspension.

Also runs as a script (`python tests/backends/test_backend_gpu.py`), for machines without pytest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from local_world import LocalWorld

from cotenant.backends.local import gpus

HOLD_MIB = 4096
PROGRAM = f"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def check(code):
    assert code == 0, code
check(cuda.cuInit(0))
count = ctypes.c_int()
check(cuda.cuDeviceGetCount(ctypes.byref(count)))
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t({HOLD_MIB} << 20)))
check(cuda.cuMemsetD32_v2(memory, 0x600DF00D, ctypes.c_size_t(1024)))
print("devices", count.value, file=open(sys.argv[1], "w"), flush=True)
for line in open(sys.argv[2]):
    word = ctypes.c_uint()
    check(cuda.cuMemcpyDtoH_v2(ctypes.byref(word), memory, ctypes.c_size_t(4)))
    print(hex(word.value), file=open(sys.argv[1], "w"), flush=True)
"""


def _used_mib() -> int:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


@pytest.mark.skipif(not gpus.find(), reason="no NVIDIA GPU")
def test_suspension_frees_gpu_memory(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cgroups=True, gpus=1, gpu_types=None)
    backend = world.backend
    print(backend.nodes(), backend.capabilities())
    (world.work / "hold.py").write_text(PROGRAM)
    node = backend.nodes()[0]
    before = _used_mib()
    with world.pipe() as out, world.pipe() as ask:
        argv = (sys.executable, "hold.py", str(out.path), str(ask.path))
        world.launch("gpu-1", "", argv=argv, gpus=((node.name, (0,)),))
        assert out.line() == "devices 1"
        held = _used_mib()
        assert held - before > HOLD_MIB * 0.9
        if backend.capabilities().gpu_suspend != "none":
            start = time.monotonic()
            assert backend.suspend("gpu-1")
            out_s, start = time.monotonic() - start, time.monotonic()
            world.until("gpu-1", "suspended")
            freed = held - _used_mib()
            assert backend.resume("gpu-1")
            in_s = time.monotonic() - start
            print(f"held {held - before} MiB, freed {freed} MiB, out {out_s:.2f} s, in {in_s:.2f} s")
            assert freed > HOLD_MIB * 0.9
        ask.path.write_text("word\n")
        assert out.line() == "0x600df00d"
    world.end_all()
    backend.close()
    world.assert_nothing_left()
    assert _used_mib() < before + 256


if __name__ == "__main__":
    test_suspension_frees_gpu_memory(Path(tempfile.mkdtemp()))
    print("passed")
