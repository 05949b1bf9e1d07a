"""Which Flower node is which client. Node numbers are random and change when a node restarts;
client numbers never do.

Every node claims a client number once. Of several that claim the same one, the first keeps it as
long as it is there; it loses it when it has left, or when its last message failed and somebody else
claims its place (a restarted node, while the SuperLink still believes in the old one). A node that
was refused is asked again: its data may be there by then, or the machine less busy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedskew.runtime.flower.backoff import Backoff


@dataclass
class Registry:
    """Claims of nodes, and who is online.

    >>> registry = Registry(clients=3)
    >>> registry.see([11, 12]); registry.claim(11, 0), registry.claim(12, 0)
    ('', 'node 12 also claims client 0, which is node 11: it is left out')
    >>> registry.node_of(0), registry.node_of(1)
    (11, None)
    >>> registry.see([12]); registry.node_of(0)
    12
    """

    clients: int
    online: set[int] = field(default_factory=set)
    claims: dict[int, int] = field(default_factory=dict)  # node -> client, oldest claim first
    refused: dict[int, str] = field(default_factory=dict)  # node -> why it takes no part
    doubtful: set[int] = field(default_factory=set)  # nodes whose last message failed
    again: Backoff = field(default_factory=Backoff)  # when refused nodes are asked again

    def see(self, nodes: Iterable[int]) -> None:
        """Take note of who is online now. What is known of a node that has left is kept: it may
        come back, and one that was refused is then asked at once.
        """
        before, self.online = self.online, {int(node) for node in nodes}
        for node in self.online - before:
            self.again.at_once(node)

    @property
    def strangers(self) -> list[int]:
        """Nodes online that have not said who they are, and those refused whom to ask again it is
        time.
        """
        return sorted(
            node
            for node in self.online
            if (node not in self.claims or node in self.refused) and self.again.is_due(node)
        )

    def claim(self, node: int, client: int) -> str:
        """A node says which client it is; returns a complaint, or ``""``. A second claimant
        waits in line.
        """
        self.refused.pop(node, None)
        holder = self.node_of(client)
        if holder is None or holder == node or holder in self.doubtful:
            self._first_in_line(node, client)
            return ""
        self.claims[node] = client
        return f"node {node} also claims client {client}, which is node {holder}: it is left out"

    def _first_in_line(self, node: int, client: int) -> None:
        self.claims.pop(node, None)
        self.claims = {node: client, **self.claims}

    def refuse(self, node: int, why: str) -> float:
        """This node takes no part for now, for example because its model differs; in how many
        seconds it is asked again.
        """
        self.refused[node] = why
        return self.again.failed(node)

    def out_of_range(self, client: int) -> str:
        """What is wrong with a client number, or ""."""
        right = 0 <= client < self.clients
        return "" if right else f"says it is client {client}, the recipe has 0..{self.clients - 1}"

    def node_of(self, client: int) -> int | None:
        """The online node that speaks for a client."""
        return next(
            (
                n
                for n, c in self.claims.items()
                if c == client and n in self.online and n not in self.refused
            ),
            None,
        )

    def heard(self, node: int, *, failed: bool) -> None:
        """How a node's last message ended."""
        (self.doubtful.add if failed else self.doubtful.discard)(node)

    @property
    def present(self) -> dict[int, int]:
        """client -> node, of everyone who is there."""
        found: dict[int, int] = {}
        for node, client in self.claims.items():
            if node in self.online and node not in self.refused:
                found.setdefault(client, node)
        return dict(sorted(found.items()))
