"""Two failures are the same when only the accidental differs; trouble of the machine is never a failure of the graph."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.reduce.core.failure import (
    MESSAGE_LIMIT,
    Failure,
    crash_frames,
    environment_trouble,
    from_exception,
    from_json,
    gpu_fault,
    normalised,
    out_of_memory,
    ran_out_of_memory,
    said_by,
    says,
)
from dynadiag.torch_compat.causes import chain_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The size of tensor a (3) must match b (4)", "The size of tensor a (128) must match b (7)"),
        ("bad strides [1, 2, 3] for relu_12", "bad strides [4, 5] for relu_3"),
        ("at 0x7f12ab: /tmp/x_1/abc.py is wrong", "at 0x55: /tmp/y/other.py is wrong"),
        ("/tmp/a.cpp:3:12: error: 'compile' was not declared\nnote: x", "In file y\n/tmp/b.cpp:99:1: error: 'compile' was not declared"),
        ("unknown op\nWhile executing %relu_3 : ...", "unknown op\n\nWhile executing %x : ...\nOriginal traceback:\nNone"),
        ("expected buf12, got buf3", "expected buf1, got buf0"),
        ("value 1e-05 is off", "value 3.25 is off"),
        ("Tried to allocate 20.00 GiB at 12:3", "Tried to allocate 4.5 GiB at 7:11"),
        ("no lowering for add_1", "no lowering for add"),
        ("cannot lower %tanh_3 : args = (%add_1, %primals_2)", "cannot lower %tanh : args = (%arg0_1, %x)"),
        ("triton_poi_fused_add_relu_0 failed", "triton_per_fused_add_12 failed"),
        ("'tmp12' and in_out_ptr0, x0, r0_1, s77, u0 of primals_12", "'tmp3' and in_out_ptr3, x2, r0_2, s53, u7 of primals_1"),
        ("cpp_fused_log10_0 at /tmp/ab/cabc.py:12", "cpp_fused_log2_1 at /var/x/cdef.py:3"),
        ("in <eval_with_key>.37 line 12", "in <eval_with_key>.4 line 7"),
        ("__compiled_fn_1_71a24cd5_f0ef_4a38", "__compiled_fn_12_1234abcd_ffff_0000"),
        ("expected 64x128, 2.0f, 3LL", "expected 1x2, 1.5f, 7LL"),
        ("at 10:11:\ndef triton_(a):\n  b = 1\n      ^\nunsupported", "at 3:1:\ndef triton_(c):\n  ^\nunsupported"),
        ("\x1b[31mbad\x1b[0m \u202eshape", "bad shape"),
    ],
)
def test_accidental_differences_do_not_count(one, other):
    assert normalised(one) == normalised(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("unknown dtype float16", "unknown operator relu"),
        ("a.cpp:1:1: error: 'compile' was not declared", "a.cpp:1:1: error: expected ';'"),
        ("index out of range", ""),
        ("no kernel for log10", "no kernel for log2"),
        ("no kernel for aten.conv1d.default", "no kernel for aten.conv2d.default"),
        ("no kernel for log10_1", "no kernel for log2_1"),
        ("not implemented for 'float16'", "not implemented for 'float64'"),
        ("no float8_e4m3fn", "no float8_e5m2"),
        ("mylib.op_1 is missing", "mylib.op_2 is missing"),
        ("mylib::op_1 is missing", "mylib::op_2 is missing"),
        ("op_1.default is missing", "op_2.default is missing"),
        ("float32/float16/int8", "float32/float64/int8"),
        ("arith.addi needs i32", "arith.addi needs i64"),
        ("uint8 and u8", "uint8 and u16"),
        ("no target for sm90", "no target for sm80"),
        ("cannot lower %tanh", "cannot lower %sin"),
        ("not supported\n  target: aten.log10.default\n  args[0]: 1", "not supported\n  target: aten.log2.default\n  args[0]: 1"),
        ("a" * 1500 + " log10", "a" * 1500 + " log2"),
    ],
)
def test_other_messages_stay_different(one, other):
    assert normalised(one) != normalised(other)


def test_a_proof_is_not_taken_for_a_longer_name():
    assert says("E: no kernel for log1.\nBye 12", "no kernel for log1\nBye N")
    assert not says("E: no kernel for log10", "no kernel for log1")
    assert not says("E: no kernel for log10", "no kernel for log10\nnor for log2")


@given(st.text())
def test_any_text_can_be_normalised(text):
    assert len(normalised(text)) <= MESSAGE_LIMIT


def raised(function):
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError


def outer(inner):
    try:
        inner()
    except Exception as error:
        raise RuntimeError("wrapped") from error


def divide():
    return 1 / 0


def look_up():
    return {}["missing 12"]


def test_an_exception_becomes_a_failure_with_its_causes():
    failure = from_exception(raised(lambda: outer(divide)), "compile")
    assert (failure.kind, failure.exceptions) == ("compile_error", ("RuntimeError", "ZeroDivisionError"))
    assert failure.message == "division by zero" and failure.frames[-1] == "test_failures.py:divide"
    assert failure.title() == "ZeroDivisionError: division by zero" and "wrapped" in failure.detail
    assert from_json(failure.to_json()) == failure


def test_phase_function_and_class_tell_failures_apart():
    one = from_exception(raised(lambda: outer(divide)), "call")
    assert one.kind == "runtime_error"
    assert one.same_as(from_exception(raised(lambda: outer(divide)), "call"))
    assert not one.same_as(from_exception(raised(lambda: outer(divide)), "compile"))
    assert not one.same_as(from_exception(raised(lambda: outer(look_up)), "call"))
    assert not one.same_as(from_exception(raised(divide), "call"))


def test_an_error_of_a_gpu_kernel_is_the_same_wherever_it_is_told():
    def told_here():
        raise RuntimeError("CUDA error: device-side assert triggered\nSearch for it")

    def told_there():
        outer(told_here)

    one, other = from_exception(raised(told_here), "call"), from_exception(raised(told_there), "compile")
    assert one.same_as(other) and one.kind == "runtime_error"


@pytest.mark.parametrize(
    "message",
    [
        "CUDA driver error: an illegal memory access was encountered",
        "Triton Error [CUDA]: an illegal memory access was encountered",
        "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress'.\nCompile with TORCH_USE_CUDA_DSA",
    ],
)
def test_a_fault_of_a_kernel_is_one_failure_in_whatever_words(message):
    def told():
        raise RuntimeError(message)

    failure = from_exception(raised(told), "backward")
    assert (failure.message, failure.phase) == ("CUDA error: an illegal memory access was encountered", "call")
    assert failure.said() == said_by("RuntimeError", message)
    assert gpu_fault("CUDA error: invalid argument") is None
    assert said_by("OutOfMemoryError", "CUDA out of memory. Tried to allocate 200.00 GiB.") is None


def test_a_chain_that_bites_its_tail_ends():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert chain_of(first) == [first, second]


class InvalidCxxCompiler(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("No module named 'triton'"), "a package is missing: No module named 'triton'"),
        (InvalidCxxCompiler("No working C++ compiler"), "there is no C++ compiler"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "the disk is full"),
        (FileNotFoundError(2, "No such file", "g++"), "the program g++ is missing"),
        (RuntimeError("fatal error: error writing to /tmp/x: No space left on device"), "the disk is full"),
        (MemoryError(), "out of memory"),
        (RuntimeError("g++: fatal error: Killed signal terminated program cc1plus"), "the C++ compiler ran out of memory"),
        (RuntimeError("CUDA error: out of memory\nSearch for it"), "the GPU ran out of memory"),
        (RuntimeError("CUDA error: device-side assert triggered"), None),
        (ValueError("a real bug"), None),
        (FileNotFoundError(2, "No such file", "/tmp/generated.so"), None),
    ],
)
def test_trouble_of_the_machine_is_named(error, reason):
    found = environment_trouble(error)
    assert found is None if reason is None else found.startswith(reason)
    wrapped = raised(lambda: outer(lambda: (_ for _ in ()).throw(error)))
    assert environment_trouble(wrapped) == found


def test_a_failure_without_an_exception_has_a_title():
    assert Failure(kind="wrong_result", phase="call").title() == "Wrong result"
    assert Failure(kind="nan", phase="call").title() == "NaN or infinity where the uncompiled run is finite"


CRASH = """noise
Fatal Python error: Segmentation fault

Thread 0x00007f11 (most recent call first):
  File "/lib/threading.py", line 3 in wait

Current thread 0x00007f22 (most recent call first):
  File "/tmp/torchinductor_x/ab/cab.py", line 9 in call
  File "/env/site-packages/torch/_inductor/utils.py", line 5 in run
  File "/home/me/backend.py", line 7 in crashing
  File "/env/site-packages/torch/a.py", line 1 in outer
  File "/env/site-packages/torch/b.py", line 1 in outermost

Extension modules: numpy (total: 1)
"""


def test_a_crash_has_the_functions_that_were_running():
    assert crash_frames(CRASH.replace("/tmp/torchinductor_x/ab", "<string>")) == (
        "torch/a.py:outer",
        "backend.py:crashing",
        "torch/_inductor/utils.py:run",
    )
    assert crash_frames("killed") == crash_frames("") == ()


class OutOfMemoryError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), True),
        (RuntimeError("g++: fatal error: Killed signal terminated program cc1plus"), False),
        (ValueError("memory"), False),
    ],
)
def test_a_failed_allocation_is_known(error, answer):
    assert ran_out_of_memory(error) is answer
    one, other = out_of_memory(error, "call"), out_of_memory(MemoryError("another amount"), "call")
    assert one.same_as(other) and not one.same_as(out_of_memory(error, "compile"))


@pytest.mark.parametrize("caller", ["torch/_functorch/_aot_autograd/codegen.py:codegen(compiled_function_forward)", "torch/_inductor/a.py"])
@pytest.mark.parametrize("cache", ["/tmp/torchinductor_me", "/tmp/dynadiag-child-x/cache"])
def test_who_called_inductors_code_is_no_part_of_a_failure(caller, cache):
    """With and without gradients it is another function, and the file is named after its content."""
    file = f"{cache}/lh/clhhufvnpgaov2zyhvid6sfwxph5dncwqrxy5ffj5y2qsgkoakwz.py"
    crash = CRASH.replace("torch/_inductor/utils.py", caller)
    assert crash_frames(crash.replace("/tmp/torchinductor_x/ab/cab.py", file)) == ("inductor's code",)
    called = crash.replace('  File "/tmp/torchinductor_x/ab/cab.py", line 9', f'  File "/env/op.py", line 1 in op\n  File "{file}", line 9')
    assert crash_frames(called) == ("inductor's code", "op.py:op")
