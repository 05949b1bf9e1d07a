"""The report: one HTML file that needs no network, or the same page served while runs go on.

``payload``     a comparison as plain values
``costs``       of it what each method reached and spent
``federation``  of it the federation: skew, heat map, map of the clients
``choices``     of it who was chosen, and the plans of rounds
``html``        puts values, style and scripts together into one file
``js``          the scripts, a file for each figure; ``FIGURES`` in ``main.js`` lists them

Texts from recipes, clients and failures reach the page as JSON with every ``<`` written as
``\\u003c`` and are shown with ``textContent`` only: nothing in them can become markup.
"""

from __future__ import annotations

from fedskew.report.page.html import page_html, save_page
from fedskew.report.page.payload import payload_of

__all__ = ["page_html", "payload_of", "save_page"]
