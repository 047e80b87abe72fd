"""What an arm replaces in its own process for good: tests that run one here put it back, or later tests of the same worker meet it."""

import sys

import pytest
import torch
import torch.distributed


@pytest.fixture(autouse=True)
def process_as_before(monkeypatch):
    """`torch.compile`, the start of process groups, and importers are after a test what they were before it."""
    monkeypatch.setattr(torch, "compile", torch.compile)
    if torch.distributed.is_available():
        for owner in (torch.distributed, torch.distributed.distributed_c10d):
            monkeypatch.setattr(owner, "init_process_group", owner.init_process_group)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
