"""Advice as plain values for JSON; what is not known is null."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedskew.measure.payload import plain

if TYPE_CHECKING:
    from fedskew.advice.adviser import Advice

FORMAT = 1


def advice_payload(advice: Advice) -> dict[str, Any]:
    """Everything an advice holds."""
    payload: dict[str, Any] = plain(
        {
            "format": FORMAT,
            "source": advice.subject.counts.source,
            "notes": advice.subject.counts.notes,
            "assumed": advice.subject.assumed,
            "budget": asdict(advice.budget),
            "allow": advice.allowed.text,
            "answer": advice.choices[0].method,
            "paragraph": advice.paragraph,
            "unlike": advice.unlike,
            "beyond_bank": advice.beyond,
            "choices": [asdict(choice) for choice in advice.choices],
            "left_out": advice.left_out,
            "other_answers": [{"if": words, "answer": method} for words, method in advice.rivals],
            "measured": {name: asdict(anchor) for name, anchor in advice.pilot.items()},
            "nearest": [
                {
                    "federation": one.federation.text,
                    "distance": one.distance,
                    "weight": one.weight,
                    "best": one.best,
                }
                for one in advice.nearest
            ],
            "bank": {
                "version": advice.bank.version,
                "federations": len(advice.bank.federations),
                "methods": advice.bank.names,
                "rounds": int(advice.bank.levels[-1]),
            },
        }
    )
    return payload
