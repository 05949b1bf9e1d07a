"""The books of reference_loop.py: what it knows, bytes (docs/methods.md 9.1), passes (9.2),
questions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from fedskew import types
from fedskew.streams import seed_for, stream


class Books:
    def __init__(self, method, runtime, seed):
        self.method, self.runtime, self.seed = method, runtime, seed
        self.rules = {s: getattr(method, s).rule for s in ("selection", "procedure", "aggregation")}
        known = runtime.describe()
        self.layout, self.population = known.layout, known.population
        self.classes = known.num_classes
        self.examples, self.everybody = self.population.num_examples, self.population.size
        self.bytes = sum(b.size * (8 if b.kind == "counter" else 4) for b in self.layout.blocks)
        self.weights = sum(b.size for b in self.layout.blocks if b.kind == "weight")
        self.initial = runtime.initial(seed)
        self.home = self.signal = self.clustering = None
        self.loss = np.full(self.everybody, np.nan)
        self.times, self.last = np.zeros((2, self.everybody), np.int64)
        self.memory = {"selection": {}, "procedure": {}, "aggregation": {}, "bn": {}}
        begun = self.rules["procedure"].begin(self.fresh, self.everybody)
        self.models = self.initial[None] if begun is None else np.array(begun, np.float32)
        self.turn_over_a_leaf()

    def turn_over_a_leaf(self):
        self.ledger, self.passes, self.holders = defaultdict(lambda: [0, 0]), 0.0, set()

    def fresh(self, number):
        return self.runtime.initial(seed_for(self.seed, "fresh", number) if number else self.seed)

    def charge(self, direction, kind, size, multicast=None):
        self.ledger[direction, kind][0] += size
        self.ledger[direction, kind][1] += size if multicast is None else multicast

    def measure(self):
        if self.method.signal is None:
            return
        self.signal = self.method.signal(self.runtime.label_counts())
        self.charge("up", "histogram", 4 * self.classes * int((self.examples > 0).sum()))
        if self.method.clustering is not None:
            geometry = self.method.distance(self.signal)
            self.clustering = self.method.clustering(geometry, stream(self.seed, "cluster"))

    # ------------------------------------------------------------ bytes (docs/methods.md 9.1)

    def send(self, plan, walks):
        """What the plan's models cost, and the numbers that clients report with them."""
        down, up, across = [], 0, 0
        for chain, walk in zip(plan.chains, walks, strict=True):
            good = None  # the last client with a usable model
            for place, client in enumerate(walk.asked):
                if good is None or plan.relay == "server":
                    # one transmission begins all chains of a slot; later ones go to one client
                    shared = "all" if plan.models_down != 1 else walk.slot
                    held = good is None and client in self.holders
                    down.append((shared if place == 0 else (client,), held))
                else:
                    across += 1
                if client in walk.silent:
                    continue
                handed_on = client in walk.failed and client != chain.clients[-1]
                up += plan.relay == "server" or (client in walk.failed and not handed_on)
                across += plan.relay == "d2d" and handed_on
                good = client if client in walk.used else good
            up += plan.relay == "d2d" and good is not None and not walk.given_up
        for kind, number in ("model", 1), ("control", self.rules["aggregation"].extra_models):
            sent = [whom for whom, held in down if kind == "control" or not held]
            size = number * plan.models_down * self.bytes
            self.charge("down", kind, len(sent) * size, len({*sent}) * size)
            self.charge("up", kind, up * number * plan.models_up * self.bytes)
            self.charge("d2d", kind, across * number * self.bytes)
        if plan.relay == "d2d":
            self.charge("down", "order", 8 * len(plan.clients))
        answered = sum(len(w.asked) - len(w.silent) for w in walks)
        wanted = {*self.rules["selection"].needs()} & {"loss", "latency", "snr"}
        wanted |= {*self.rules["procedure"].needs()} & {"loss"}
        wanted |= {*self.rules["aggregation"].needs()} & {"steps"}
        if dict(self.method.job.objective_options).get("reference") == "global":
            told = sum(len(w.asked) for w in walks)
            self.charge("down", "control", 4 * self.classes * told, 4 * self.classes * bool(told))
        for report in wanted:
            self.charge("up", report if report in ("loss", "latency") else "control", 4 * answered)

    # ------------------------------------------------------------ questions

    def answer(self, ask, t):
        """What the clients say; every question is charged in full, whoever holds what."""
        clients, n, size = ask.clients.tolist(), len(ask.clients), self.bytes
        if isinstance(ask, types.AskSlots | types.AskShares):
            models = self.models[ask.slots]
            self.charge("down", "model", n * len(models) * size, len(models) * size)
            self.charge("up", "loss", 4 * n * len(models))
            self.look(clients, len(models))
            if isinstance(ask, types.AskShares):
                return self.runtime.best_fit(ask.clients, models)
            self.holders |= {*clients}
            return np.array([[self.loss_of(c, m, {}) for m in models] for c in clients])
        if isinstance(ask, types.AskLoss):
            self.holders |= {*clients}
            values = self.ask_losses(clients, self.models, t, ask.max_examples)
            self.loss = self.loss.copy()
            for client, value in zip(clients, values, strict=True):
                self.loss[client] = self.loss[client] if np.isnan(value) else value
            return values
        self.passes += sum(self.passes_of(c, t) for c in clients)
        self.charge("down", "probe", n * size, self.slots_of(clients) * size)
        if isinstance(ask, types.AskUpdates):
            return self.ask_updates(clients, ask.layer, t)
        plan = types.Plan(tuple(types.Chain(self.slot_of(c), (c,)) for c in clients))
        walks = self.train(plan, t, (1 << 30) + t, {}, set())
        self.charge("up", "probe", size * sum(len(w.asked) - len(w.silent) for w in walks))
        present = np.flatnonzero(self.runtime.available(t) & (self.examples > 0)).tolist()
        values = np.full(self.everybody, np.nan)
        values[present] = self.ask_losses(present, self.merge(walks, t)[0], t, 0)
        return values

    def ask_losses(self, clients, models, t, most):
        down, up = len(clients) * self.bytes, 4 * len(clients)
        self.charge("down", "model", down, self.slots_of(clients) * self.bytes)
        self.charge("up", "loss", up)
        self.look(clients, 1, most)
        kept = self.memory["bn"]
        return [self.loss_of(c, models[self.slot_of(c)], kept, most, self.seed, t) for c in clients]

    def ask_updates(self, clients, layer, t):
        parts = self.head() if layer == "last" else [slice(0, self.layout.size)]
        width = sum(part.stop - part.start for part in parts)
        self.holders |= {*clients}
        rows = np.full((len(clients), width), np.nan)
        for row, client in enumerate(clients):
            start = self.models[self.slot_of(client)]
            reply = self.turn(client, start, t, (1 << 30) + t, self.bytes, 4 * width)
            if reply is not None and reply.sent[0]:
                self.charge("up", "gradient", 4 * width)
            if reply is not None and reply.ok[0]:
                rows[row] = np.concatenate([(reply.params[0] - start)[part] for part in parts])
        return rows

    # ------------------------------------------------------------ small things

    def aftermath(self, plan, before, walks, t):
        used = [(w.slot, c, *u) for w in walks for c, u in w.used.items()]
        columns = [list(column) for column in zip(*used, strict=True)] or [[]] * 7
        slots, clients, received, returned, loss, examples, _ = columns
        home = np.zeros(self.everybody, np.int64) if self.home is None else self.home
        empty = np.empty((0, self.layout.size))
        return types.Aftermath(
            t, plan, before, self.models, home, clients, slots,
            np.stack(received) if used else empty, np.stack(returned) if used else empty,
            examples, loss, self.weights, tuple(self.head()),
        )  # fmt: skip

    def job(self, t):
        return replace(self.method.job, lr=self.method.job.lr * self.method.lr_decay ** (t - 1))

    def slot_of(self, client):
        return 0 if self.home is None else int(self.home[client])

    def slots_of(self, clients):
        return len({self.slot_of(client) for client in clients})

    def head(self):
        blocks = [b for b in self.layout.blocks if b.name in ("head.weight", "head.bias")]
        return [slice(b.offset, b.offset + b.size) for b in blocks]

    def plausible(self, loss):
        return loss if 0 <= loss <= 10 * np.log(max(self.classes, 10)) else np.nan

    def loss_of(self, client, model, statistics=None, *draw):
        model = np.array(model)
        model[self.weights :] = (statistics or {}).get(str(client), model[self.weights :])
        scores = self.runtime.score(types.ScoreOrder([client], model[None], [0], "train", *draw))
        return self.plausible(float(scores.loss[0]))

    def look(self, clients, models, most=0):
        sizes = [min(int(self.examples[c]), most or int(self.examples[c])) for c in clients]
        self.passes += models * sum(sizes) / 3

    def passes_of(self, client, t, examples=None):
        job = self.job(t)
        n = examples or job.max_examples or int(self.examples[client])
        looks = (job.report_loss != "train") + (job.objective in ("fedntd", "fedvls"))
        return n * (job.epochs + looks / 3)

    def seconds(self, client, passes, down, up):
        """The model comes, the client computes, its answer goes."""
        of = self.population
        pace = 0.001 if of.seconds_per_example is None else of.seconds_per_example[client]
        delay = 0.0 if of.delay_seconds is None else of.delay_seconds[client]
        trip = 0.0 if of.trip_seconds is None else of.trip_seconds[client]
        rate = 10e6 if of.uplink_bps is None else of.uplink_bps[client]
        ways = [trip + 8 * size / rate if size else 0.0 for size in (down, up)]
        return float(ways[0] + (pace * passes + delay) + ways[1])
