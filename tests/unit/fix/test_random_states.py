"""The states of random generators, as a proof compares them."""

import pytest

from dynadiag.capture.reach import RandomStates


@pytest.mark.parametrize(("offset", "drawn"), [(0, False), (4, True)])
def test_a_cuda_generator_that_nobody_drew_from_is_as_one_that_is_not_there(offset, drawn):
    """Dynamo wakes CUDA where it compiles, also for a program on the CPU (`preserve_rng_state`, torch 2.11 and 2.15); eager does not."""

    class States:
        def __init__(self, *cuda):
            self._cuda = cuda

        def as_bytes(self):
            return [b"of the CPU", *self._cuda]

    asleep, awake = (
        RandomStates(python=(), numpy=None, torch=States(*cuda)).digests()
        for cuda in ((), ((7).to_bytes(8, "little") + offset.to_bytes(8, "little"),))
    )
    assert (asleep != awake) == drawn
