"""The fixed parts of a standalone graph script."""

HELPERS = '''
def strided(shape, stride, dtype, device="cpu", storage=None, offset=0, positive=False, integer=0, boolean=True):
    """A tensor of this layout with made-up values; `storage` is a tensor whose memory it shares."""
    if storage is not None:
        return torch.empty(0, dtype=dtype, device=device).set_(storage.untyped_storage(), offset, shape, stride)
    count = offset + (0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride)))
    if dtype == torch.bool:
        flat = torch.full((count,), boolean, device=device)
    elif dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        flat = (torch.rand if positive else torch.randn)((count,), dtype=wide, device=device).to(dtype)
    else:
        flat = torch.full((count,), integer, dtype=dtype, device=device)
    return torch.empty(0, dtype=dtype, device=device).set_(flat.untyped_storage(), offset, shape, stride)


def describe(name, value):
    """Print the type, dtype and shape of each output."""
    if isinstance(value, torch.Tensor):
        print(f"{name}: {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} on {value.device}")
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            describe(f"{name}[{position}]", item)
    else:
        print(f"{name}: {value!r}")
'''

LOWER_VERSION = '''
def lower_version_count_by_1(x):
    """What `x.data = y` does to the version of x."""
    torch._C._autograd._unsafe_set_version_counter((x,), (max(x._version - 1, 0),))
    return x
'''

NOT_A_LEAF = '''
class NotALeaf(torch.autograd.Function):
    """The tensor itself, as if it had been computed: no leaf, so that it may be written in place."""

    @staticmethod
    def forward(ctx, value, leaf):
        ctx.mark_dirty(value)
        return value

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient.sum()


def computed(value):
    """The value as a tensor that requires grad and is no leaf, in the same memory."""
    own = torch.empty(0, dtype=value.dtype, device=value.device)
    own.set_(value.untyped_storage(), value.storage_offset(), value.shape, value.stride())
    return NotALeaf.apply(own, torch.zeros((), dtype=value.dtype, device=value.device, requires_grad=True))
'''

GROUPS = '''
def make_process_groups(sizes):
    """Process groups that communicate with nobody: shapes are right, values of collectives are not."""
    import torch.distributed as dist
    from torch._C import _distributed_c10d as c10d
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=max(sizes.values()))
    for name, size in sizes.items():
        try:
            c10d._unregister_process_group(name)
        except (RuntimeError, ValueError):
            pass
        c10d._register_process_group(name, dist.new_group(list(range(size)), backend="fake"))


'''

FOOTER = """
if __name__ == "__main__":
    main()
"""
