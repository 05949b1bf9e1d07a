"""Label arithmetic that several stages share.

``balance``  groups of clients whose labels together are balanced
``omega``    AFLS's figure of how skewed a federation is, and its threshold
"""
