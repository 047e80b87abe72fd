"""The fixed parts of an emitted test."""

from dynadiag.compare.calls import WEIGHTS

# An entry made for other inputs would be found in the cache on disk, and another thing be tested.
NO_CACHES = ("", 'os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"', "")

CALL = f'''
def weights(part):
    """Fixed cotangents, different for neighbours."""
    return ({WEIGHTS.format("part")}).to(part.dtype)
'''
CALL += '''


def call(function, module, given):
    """All that a caller sees of one call."""
    torch.manual_seed(0)
    with CONTEXTS:
        needing = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
        needing = [one if one.is_leaf else torch.autograd.graph.get_gradient_edge(one) for one in needing]
        outputs = tree_leaves(function(*given))
        seen = {"output": outputs, "input": given, "attribute": [*module.parameters(), *module.buffers()]}
        seen["gradient"] = [None] * len(needing)
        parts = [one for one in outputs if isinstance(one, torch.Tensor) and one.grad_fn is not None]
        if needing and parts:
            seen["gradient"] = torch.autograd.grad(parts, needing, [weights(part) for part in parts], allow_unused=True)
    return seen
'''

ALIASING = '''
def relation(seen, names=PAIR):
    """How two tensors share memory: how far one begins behind the other."""
    one, other = (seen[name.split()[0]][int(name.split()[1])] for name in names)
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return "separate memory"
    return f"shared memory, {other.data_ptr() - one.data_ptr()} bytes apart"


def check(expected, got):
    assert relation(got) == relation(expected), (relation(got), relation(expected))
'''

CHECKS = {
    "values": """
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        assert isinstance(got, torch.Tensor) == isinstance(expected, torch.Tensor) and got == expected, (got, expected)
        return
    wide = torch.complex128 if expected.is_complex() else torch.float64
    got, expected = got.detach().to(wide), expected.detach().to(wide)
    finite = torch.isfinite(expected)
    assert torch.equal(torch.isfinite(got), finite), "not finite in other places"
    assert torch.equal(got[~finite].nan_to_num(), expected[~finite].nan_to_num()), "another infinity, or NaN"
    error = (got - expected)[finite].abs().square().sum().sqrt()
    size = expected[finite].abs().square().sum().sqrt()
    assert error <= tolerance * size + 1e-12, f"off by {error:g} of {size:g} (root of the sum of squares)"
""",
    "shape": "    assert got.shape == expected.shape, (got.shape, expected.shape)",
    "stride": """
    steps = [[step for size, step in zip(one.shape, one.stride()) if size > 1] for one in (got, expected)]
    assert steps[0] == steps[1], (got.stride(), expected.stride())
""",
    "dtype": "    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)",
    "layout": "    assert got.layout == expected.layout, (got.layout, expected.layout)",
    "requires_grad": "    assert got.requires_grad == expected.requires_grad, (got.requires_grad, expected.requires_grad)",
    "missing_gradient": "    assert (got is None) == (expected is None), (got, expected)",
}

PLAIN = """
def NAME():
    torch._dynamo.reset()
    eager, module = make_module(), make_module()
    compiled = torch.compile(module, BACKEND)
    for number, arranged in enumerate(CALLS):
        expected = call(eager, eager, inputs(arranged, number))
        got = call(compiled, module, inputs(arranged, number))
        if number == WRONG_CALL:
            check(expected, got)


if __name__ == "__main__":
    NAME()
"""

CACHED = '''
def one_process(arranged):
    """One call, compiled with the caches on disk."""
    module, eager = make_module(), make_module()
    expected = call(eager, eager, inputs(arranged, 0))
    return expected, call(torch.compile(module, BACKEND), module, inputs(arranged, 0))


def NAME(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_FORCE_DISABLE_CACHES"}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path)
    for arranged in CALLS:
        done = subprocess.run([sys.executable, __file__, arranged], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(*one_process(sys.argv[1]))
    else:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            NAME(folder)
'''
