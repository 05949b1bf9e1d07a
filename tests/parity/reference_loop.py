"""A federation in the slowest and plainest way: one client, one model, one message at a time.

Written from docs/methods.md (6, 7, 9) and not from `fedskew.loop`, which it never imports. It uses
the rules of the stages as they are and does everything between them by hand. What it does not play:
estimated signals, clients that join late, seconds and joules.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
from reference_books import Books

from fedskew import types
from fedskew.streams import stream


@dataclass
class Walk:
    """What happened along one chain."""

    slot: int
    params: np.ndarray
    asked: list = field(default_factory=list)
    silent: list = field(default_factory=list)
    failed: list = field(default_factory=list)
    used: dict = field(default_factory=dict)  # client -> received, returned, loss, examples, steps
    given_up: bool = False
    harmful: int = 0


class ReferenceLoop(Books):
    def __init__(self, method, runtime, seed):
        super().__init__(method, runtime, seed)
        self.measure()
        self.move_home(0)

    # ------------------------------------------------------------ one round

    def play(self, t):
        """Whether enough clients answered; if not, the round counts for nothing."""
        self.turn_over_a_leaf()
        there = self.runtime.available(t) & (self.examples > 0)
        there = there if self.signal is None else there & self.signal.known
        view = types.View(
            t, self.method.clients_per_round, self.population, there,
            self.loss, self.times, self.last, self.signal, self.clustering,
        )  # fmt: skip
        ids = self.consult("selection", view, self.rules["selection"].choose)
        procedure = self.rules["procedure"]
        plan = self.consult("procedure", view, lambda m, v, rng: procedure.plan(m, ids, v, rng))
        if self.method.resend or plan.models_down != 1:  # holders of one model do not hold several
            self.holders = set()
        slots = [chain.slot for chain in plan.chains]
        slots += [] if plan.home is None else plan.home.tolist()
        while len(self.models) <= max(slots, default=0):
            self.models = np.concatenate([self.models, self.initial[None]])
        before, self.home = self.models, self.home if plan.home is None else plan.home
        walks = self.train(plan, t, t, self.memory["bn"], self.holders)
        harmful = sum(w.harmful for w in walks)
        if harmful + sum(len(w.used) for w in walks if not w.given_up) < self.method.min_ok:
            return False
        self.models, self.memory["aggregation"] = self.merge(walks, t)
        self.send(plan, walks)
        self.remember(walks, t)
        selection, memory = self.rules["selection"], self.memory["selection"]
        if selection.learns_from is not None:
            self.memory["selection"] = selection.learn(memory, self.feedback(walks, t))
        if procedure.looks_back:
            seen = self.aftermath(plan, before, walks, t)
            moved = procedure.after(self.memory["procedure"], seen)
            self.models, self.home, self.memory["procedure"] = moved
        self.move_home(t)
        return True

    def consult(self, stage, view, rule):
        answers = ()
        for turn in count():
            keys = () if stage == "procedure" and turn == 0 else (turn,)
            name = "select" if stage == "selection" else stage
            seen = replace(view, loss=self.loss, answers=answers)
            rng = stream(self.seed, name, view.round, *keys)
            decided, self.memory[stage] = rule(self.memory[stage], seen, rng)
            if not isinstance(decided, types.Ask):
                return decided
            answers += (types.Answer(decided, self.answer(decided, view.round)),)

    def train(self, plan, t, round, statistics, holders):
        """Client after client, chain after chain. ``round`` numbers batch orders and faults."""
        walks, extra = [], 1 + self.rules["aggregation"].extra_models
        for chain in plan.chains:
            walk = Walk(chain.slot, self.models[chain.slot])
            for client in map(int, chain.clients):
                start = np.array(walk.params)
                start[self.weights :] = statistics.get(str(client), start[self.weights :])
                models_down = extra - 1 if client in holders else extra * plan.models_down
                limits = models_down * self.bytes, extra * plan.models_up * self.bytes
                added = self.added(chain.slot, client)
                reply = self.turn(client, start, t, round, *limits, added)
                reply = self.looked_at(client, start, reply)
                walk.asked.append(client)
                if reply is None or not reply.sent[0]:
                    walk.silent.append(client)
                if reply is None or reply.failures[0]:
                    walk.failed.append(client)
                    walk.harmful += reply is not None and reply.failures[0] == "worse"
                    walk.given_up = plan.broken == "drop"
                    if walk.given_up:
                        break
                    continue
                figures = float(reply.loss[0]), int(reply.examples[0]), int(reply.steps[0])
                walk.params = reply.params[0]
                walk.used[client] = (start, reply.params[0], *figures)
            walks.append(walk)
        return walks

    def added(self, slot, client):
        """What the client adds to its gradients."""
        server, memory = self.rules["aggregation"], self.memory["aggregation"].get(str(slot), {})
        mine, steering = self.rules["procedure"], self.memory["procedure"]
        if server.corrects:
            return server.corrections(memory, [client], self.weights)
        return mine.corrections(steering, [client], self.models, self.weights)

    def turn(self, client, start, t, round, down, up, added=None):
        """One client's reply; None if it would come after the deadline."""
        deadline, job = self.method.tariff.patience_seconds, self.job(t)
        if deadline and self.seconds(client, self.passes_of(client, t), down, up) > deadline:
            return None
        order = types.TrainOrder([client], start[None], [0], job, self.seed, round, added)
        return self.runtime.train(order)

    def looked_at(self, client, start, reply):
        """The reply, a failure if it makes the loss on the server's examples rise too much."""
        limit = self.method.guard.verify
        if not limit or reply is None or reply.failures[0]:
            return reply
        own, alike = 0.0, 0.0
        for c in range(self.classes):
            share = 0.0 if self.signal is None else self.signal.rows[client, c]
            chances = [self.runtime.auxiliary(m[None]) for m in (start, reply.params[0])]
            before, after = (max(chance.class_softmax[0, c, c], 1e-6) for chance in chances)
            own += share * (np.log(before) - np.log(after))
            alike += (np.log(before) - np.log(after)) / self.classes
        return replace(reply, failures=("worse",)) if own > limit or alike > 3 else reply

    def counted(self, walks):
        """What each client's examples count for, so that nobody has too large a share."""
        told = {c: u[3] for w in walks for c, u in w.used.items()}
        if len(walks) == 1:
            return told
        share = self.method.guard.max_share or (0.85 if len(told) >= 5 else 0.99)
        share = max(share, 1 / len(told))
        most = max(told.values())
        while most > 1 and most > share * sum(min(n, most) for n in told.values()) + 1e-9:
            most -= 1
        return {c: min(n, most) for c, n in told.items()}

    def mix(self, walk, counts):
        total = sum(counts[c] * self.signal.rows[c] for c in walk.used)
        return total / sum(counts[c] for c in walk.used)

    def in_buckets(self, ends, t, slot):
        size = self.method.guard.bucket
        if size == 1:
            return ends
        order = stream(self.seed, "buckets", t, slot).permutation(len(ends.params)).tolist()
        rows, examples, mixes, who, steps = [], [], [], [], []
        while order:
            group, order = sorted(order[:size]), order[size:]
            row = sum(ends.params[i] for i in group) / np.float32(len(group))
            row[-1] = max(ends.params[i][-1] for i in group)
            rows.append(row)
            examples.append(sum(ends.num_examples[i] for i in group))
            who.append(ends.clients[group[0]])
            steps.append(sum(ends.steps[i] for i in group))
            if ends.mixes is not None:
                total = sum(ends.mixes[i] * ends.num_examples[i] for i in group)
                mixes.append(total / examples[-1])
        known = np.stack(mixes) if mixes else None
        return types.Ends(
            np.stack(rows), examples, steps, self.layout, who, ends.num_clients, ends.job, (), known
        )

    def merge(self, walks, t):
        models, memory = np.array(self.models), dict(self.memory["aggregation"])
        for slot in sorted({w.slot for w in walks}):
            ends = [w for w in walks if w.slot == slot and w.used and not w.given_up]
            if not ends:
                continue
            living = self.everybody if self.home is None else max(1, sum(self.home == slot))
            turns = tuple(tuple(u[4] for u in w.used.values()) for w in ends)
            counts = self.counted(ends)
            mixes = None if self.signal is None else np.stack([self.mix(w, counts) for w in ends])
            bias = next(b for b in self.layout.blocks if b.name == "head.bias")
            part = slice(bias.offset, bias.offset + self.classes)
            rises = [w.params[part] - self.models[slot][part] for w in ends]
            gathered = types.Ends(
                np.stack([w.params for w in ends]),
                [sum(counts[c] for c in w.used) for w in ends],
                [sum(steps) for steps in turns],
                self.layout, [w.asked[-1] for w in ends], int(living), self.job(t), turns,
                mixes, np.stack(rises),
            )  # fmt: skip
            gathered = self.in_buckets(gathered, t, slot)
            known, rule = memory.get(str(slot), {}), self.rules["aggregation"]
            models[slot], memory[str(slot)] = rule.merge(known, self.models[slot], gathered)
        return models, memory

    def remember(self, walks, t):
        self.loss, self.times, self.last = self.loss.copy(), self.times.copy(), self.last.copy()
        for walk in walks:
            for client in walk.asked:
                self.times[client] += 1
                self.last[client] = t
                n = walk.used[client][3] if client in walk.used else None
                self.passes += self.passes_of(client, t, n)
            for client, (_, returned, loss, _, _) in walk.used.items():
                self.loss[client] = self.plausible(loss)
                if self.method.bn == "local":
                    self.memory["bn"][str(client)] = returned[self.weights :]

    def move_home(self, t):
        """Where the models are evaluated, clients move to the one that fits them best."""
        every = self.method.evaluate_every
        if t not in (0, self.method.rounds) and (every == 0 or t % every):
            return
        slots = self.rules["procedure"].rehome(self.memory["procedure"], len(self.models))
        if slots is None:
            return
        moved = np.full(self.everybody, slots[0]) if self.home is None else self.home.copy()
        for client in range(self.everybody):
            losses = [self.loss_of(client, self.models[slot]) for slot in slots]
            if not np.isnan(losses).all():
                moved[client] = slots[np.nanargmin(losses)]
        self.home = moved

    # ------------------------------------------------------------ what rules learn from

    def feedback(self, walks, t):
        rule, used = self.rules["selection"], {c: u for w in walks for c, u in w.used.items()}
        head = next(b for b in self.layout.blocks if b.name == "head.weight")
        size = self.bytes * (1 + self.rules["aggregation"].extra_models)
        returned = np.stack([u[1] for u in used.values()]) if used else self.models[:0]
        received = np.stack([u[0] for u in used.values()]) if used else self.models[:0]
        parts = {"last": self.head(), "none": [], "all": [slice(0, None)]}[rule.learns_from]
        delta = returned - received
        times = [self.seconds(c, self.passes_of(c, t, u[3]), size, size) for c, u in used.items()]
        reactions = self.runtime.auxiliary(returned) if rule.uses_auxiliary and used else None
        return types.Feedback(
            round=t,
            clients=list(used),
            loss=[self.plausible(u[2]) for u in used.values()],
            seconds=times,
            examples=[u[3] for u in used.values()],
            steps=[u[4] for u in used.values()],
            delta=np.concatenate([delta[:, :0], *(delta[:, part] for part in parts)], axis=1),
            head_shape=head.shape,
            class_gradients=None if reactions is None else reactions.class_gradients,
        )
