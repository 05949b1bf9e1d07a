"""The report: one HTML file that needs no network, or the same page served while runs go on.

``payload`` turns a comparison into plain values, ``html`` puts them into the page. Texts from
recipes, clients and failures reach the page as JSON with every ``<`` written as ``\\u003c`` and are
shown with ``textContent`` only: nothing in them can become markup.
"""

from __future__ import annotations

from fedskew.report.page.html import page_html, save_page
from fedskew.report.page.payload import payload_of

__all__ = ["page_html", "payload_of", "save_page"]
