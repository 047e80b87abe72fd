"""What a notebook shows of a report: the verdict, the source ladder as a picture, and the findings. No scripts, no style sheet."""

from __future__ import annotations

import base64

from dynadiag.model.report import Report
from dynadiag.render import wording
from dynadiag.render.articles import finding_article
from dynadiag.render.html import fragment
from dynadiag.render.html.report_page import article_entry, headline
from dynadiag.render.ladder_builder import ladder
from dynadiag.render.ladder_svg import ladder_svg
from dynadiag.render.summary import circumstances, cut_short

FINDINGS_AT_MOST = 20


def render(report: Report) -> str:
    """A piece of HTML that is safe inside any page: every text of the report is escaped, the picture is an image."""
    base = wording.base_folder(report.run)
    drawing = ladder_svg(ladder(report), wording.command(report), base=base)
    return fragment(
        "notebook.html",
        verdict=headline(report),
        facts=" · ".join(circumstances(report)),
        warnings=[text for text in (wording.failed_passes(report), cut_short(report)) if text],
        ladder="" if drawing is None else f"data:image/svg+xml;base64,{base64.b64encode(drawing.encode()).decode()}",
        ladder_alt="The lines of the compiled functions, each marked as compiled, as a graph break, or as run in Python",
        findings=[article_entry(finding_article(one, report, base=base)) for one in report.findings[:FINDINGS_AT_MOST]],
        hidden=max(0, len(report.findings) - FINDINGS_AT_MOST),
    )
