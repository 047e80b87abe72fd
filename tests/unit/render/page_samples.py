"""The sample report with what only a page shows: texts in a log, timed phases, facts about shapes."""

from dataclasses import replace
from html.parser import HTMLParser

from dynadiag.model.compiled import Listing, PhaseSpan, ShapeFact
from dynadiag.model.location import Location, PayloadRef
from tests.gold import sample_report as gold

DYNAMO = """class GraphModule(torch.nn.Module):
    def forward(self, L_batch_: "f32[4, 16]"):
        l_batch_ = L_batch_
        # File: /home/me/proj/train.py:41 in train_step, code: loss.backward()
        y: "f32[4, 16]" = torch._C._nn.linear(l_batch_)
        # File: /home/me/proj/train.py:23 in train_step, code: print(1)
        z: "f32[4, 16]" = y * 2;  y = None
        return (z,)
"""
CODE = """# AOT ID: ['0_forward']
import torch
cpp_fused_0 = async_compile.cpp_pybinding(['float*'], r'''
void kernel(float* out) { if (1 < 2 && out) out[0] = 1; }
''')
def call(args):
    # Topologically Sorted Source Nodes: [y, z], Original ATen: [aten.mul]
    cpp_fused_0(buf0)
    # Topologically Sorted Source Nodes: [unheard], Original ATen: [aten.mul]
    extern_kernels.mm(buf0)
    return (buf0, )
"""
GUARDS = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- GLOBAL_STATE: ___check_global_state()
| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x'), type=<class 'torch.Tensor'>
| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor)  # return x  # train.py:3 in f
| | +- GuardManager: source=L['x'].a, accessed_by=GetAttrGuardAccessor(a)
| | | +- EQUALS_MATCH: L['x'].a == 1  # y = x.a  # train.py:4 in f
| +- GuardManager: source=G, accessed_by=GlobalsGuardAccessor
| | +- ID_MATCH: ___check_obj_id(G['torch'], 1)  # torch.f()
+- LAMBDA_GUARD: 2 <= L['x'].size()[0]  # x.sum()

Guard latency = 12.50 us"""


class Page(HTMLParser):
    """The tags of a page with their attributes, and the text in its scripts and styles."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.raw, self._inside = [], {"script": [], "style": []}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in self.raw else None

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.raw[self._inside].append(data)

    def all(self, name):
        return [attributes[name] for _, attributes in self.tags if name in attributes]

    @property
    def headings(self):
        """The anchors of the sections, in their order."""
        return [attributes["id"] for tag, attributes in self.tags if tag == "h2"]


def of_two_ranks(report):
    """The report, its first three frames compiled on rank 0 and the others on rank 1."""
    first = replace(report.run.processes[0], rank=0)
    frames = (*report.run.frames[:3], *(replace(one, key=one.key._replace(process=1)) for one in report.run.frames[3:]))
    return replace(report, run=replace(report.run, processes=(first, replace(first, index=1, rank=1)), frames=frames))


def rich_report(folder):
    """The sample with texts in a file of the folder; times are those of one process."""
    report = gold.sample_report()
    log, texts = folder / "log", {"dynamo": DYNAMO, "code": CODE, "guards": GUARDS}
    whole = b"".join(b"\t" + text.replace("\n", "\n\t").encode() + b"\n" for text in texts.values())
    log.write_bytes(whole)
    refs, at = {}, 0
    for name, text in texts.items():
        length = len(text.replace("\n", "\n\t").encode()) + 1
        refs[name] = PayloadRef(str(log), at, length)
        at += length + 1
    graphs = (replace(report.run.graphs[0], text=refs["dynamo"]), *report.run.graphs[1:])
    run = replace(
        report.run,
        graphs=graphs,
        listings=(Listing("o0", "output_code", "f0", 0, refs["code"]), Listing("t0", "guards", "f0", 0, refs["guards"])),
        spans=(
            PhaseSpan(0, "f0", "inductor_compile", 2_000_000.0, 900_000.0, 1),
            PhaseSpan(0, "f0", "dynamo", 1_000_000.0, 2_500_000.0, 0),
            PhaseSpan(0, "f3", "dynamo", 9_000_000.0, 500_000.0, 0),
            PhaseSpan(0, "f4", "dynamo", 9_800_000.0, 100_000.0, 0),
            PhaseSpan(0, None, "CachingAutotuner.benchmark_all_configs", 9_950_000.0, 1_000.0, 0),
        ),
        shape_facts=(
            ShapeFact(
                kind="specialized",
                frame="f3",
                attempt=0,
                text="s77",
                sources=("L['x'].size()[0]",),
                value="12",
                why="range_refined_to_singleton",
                stack=(Location("/home/me/proj/train.py", 12, "forward", "if x.shape[0] == 12:"),),
            ),
            ShapeFact(kind="guard", frame="f3", attempt=0, text="s77 <= 4096"),
            ShapeFact(kind="unbacked", frame="f3", attempt=0, text="u0", value="[0, 9223372036854775806]"),
        ),
    )
    return replace(report, run=run)
