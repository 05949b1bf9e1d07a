from __future__ import annotations

from fedskew.deploy.addresses import LOOPBACK, free_port


def test_no_port_is_given_twice():
    # 30 nodes asked before any of them listened: every 27th fleet had two with one port
    ports = [free_port(LOOPBACK) for _ in range(500)]
    assert len(set(ports)) == 500
