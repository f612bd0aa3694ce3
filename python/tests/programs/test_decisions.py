"""Programs that choose: agents, searches, adversaries, ensembles, boxes."""

import numpy as np
from differential import compare, needs_same_random
from training import initialize, train


@needs_same_random
def test_a_policy_learns_from_discounted_rewards():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        mx.random.seed(4)
        policy = initialize(lib, nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3)))
        optimizer = lib.optim.Adam(1e-2)

        def played(steps):
            """States, actions and rewards of walkers that are pulled to the middle."""
            state, history = lib.normal(8, 2), []
            for _ in range(steps):
                action = mx.random.categorical(policy(state))
                push = mx.take(mx.array([-0.3, 0.0, 0.3]), action)
                following = state + mx.stack([state[:, 1] * 0.1, push], axis=1)
                history.append((state, action, -mx.abs(following[:, 0])))
                state = following
            return [mx.stack(parts) for parts in zip(*history)]

        def loss(states, actions, returns):
            chosen = mx.take_along_axis(nn.log_softmax(policy(states), axis=-1), actions[..., None], axis=-1)[..., 0]
            return -(chosen * returns).mean()

        results = []
        for _ in range(3):
            states, actions, rewards = played(6)
            powers = 0.9 ** mx.arange(6)[:, None]
            returns = mx.cumsum(rewards * powers, axis=0, reverse=True) / powers
            returns = (returns - returns.mean()) / (mx.std(returns) + 1e-5)
            value, gradients = nn.value_and_grad(policy, loss)(states, actions, returns)
            optimizer.update(policy, lib.optim.clip_grad_norm(gradients, 1.0)[0])
            results += [value, rewards.sum(), actions]
        return results

    compare(scenario, tol=2e-3)


@needs_same_random
def test_a_network_of_values_learns_from_a_replay_memory():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        mx.random.seed(2)
        values = initialize(lib, nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2)))
        slow = initialize(lib, nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2)), seed=5)
        memory = {"state": mx.zeros((16, 3)), "action": mx.zeros(16, mx.int32), "reward": mx.zeros(16), "next": mx.zeros((16, 3))}

        def loss(batch):
            target = batch["reward"] + 0.9 * slow(batch["next"]).max(-1)
            chosen = mx.take_along_axis(values(batch["state"]), batch["action"][:, None], axis=1).squeeze(1)
            return nn.losses.huber_loss(chosen, mx.stop_gradient(target), reduction="mean")

        state, results, optimizer = lib.normal(3), [], lib.optim.RMSprop(1e-2)
        for at in range(20):
            greedy = mx.argmax(values(state)).astype(mx.int32)
            action = mx.where(mx.random.bernoulli(0.3), mx.random.randint(0, 2), greedy)
            following = mx.tanh(state * 0.9 + mx.where(action == 1, 0.2, -0.2))
            new = {"state": state, "action": action, "reward": -following.square().sum(), "next": following}
            for name, value in new.items():
                memory[name][at % 16] = value
            state = following
            if at % 4 == 3:
                rows = mx.random.permutation(min(at + 1, 16))[:4]
                batch = lib.utils.tree_map(lambda x: x[rows], memory)
                value, gradients = nn.value_and_grad(values, loss)(batch)
                optimizer.update(values, gradients)
                blended = lib.utils.tree_map(lambda a, b: 0.95 * a + 0.05 * b, slow.parameters(), values.parameters())
                slow.update(blended)
                results.append(value)
        return results, memory, slow.parameters()

    compare(scenario, tol=2e-3)


def test_a_beam_search_keeps_the_best_sentences():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        beams, words = 3, 11
        cell = initialize(lib, nn.GRU(8, 8))
        embed, out = initialize(lib, nn.Embedding(words, 8), 2), initialize(lib, nn.Linear(8, words), 3)
        tokens, scores, hidden = mx.zeros((beams, 1), mx.int32), mx.array([0.0, -np.inf, -np.inf]), mx.zeros((beams, 8))
        ended = mx.zeros(beams, mx.bool_)
        for _ in range(6):
            hidden = cell(embed(tokens[:, -1])[:, None], hidden)[:, -1]
            logs = nn.log_softmax(3 * out(hidden), axis=-1)
            # A sentence that has ended goes on with its end alone.
            logs = mx.where(ended[:, None], mx.where(mx.arange(words) == 1, 0, -mx.inf), logs)
            total = (scores[:, None] + logs).flatten()
            best = mx.argpartition(-total, beams - 1)[:beams]
            best = best[mx.argsort(-total[best])]
            scores, parents, following = total[best], best // words, (best % words).astype(mx.int32)
            tokens = mx.concatenate([tokens[parents], following[:, None]], axis=1)
            hidden, ended = hidden[parents], ended[parents] | (following == 1)
        return tokens, scores, ended

    compare(scenario, tol=2e-3)


@needs_same_random
def test_a_generator_and_its_critic_train_in_turns():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        mx.random.seed(1)
        generator = initialize(lib, nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2)))
        critic = initialize(lib, nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(16, 1)), 2)
        optimizers = lib.optim.Adam(1e-3, betas=[0.5, 0.9]), lib.optim.Adam(2e-3, betas=[0.5, 0.9])
        real, results = lib.normal(16, 2) * 0.5 + 1, []

        def critics(noise, mix):
            fake = mx.stop_gradient(generator(noise))
            slope = mx.grad(lambda x: critic(x).sum())(mix * real + (1 - mix) * fake)
            penalty = (mx.linalg.norm(slope, axis=-1) - 1).square().mean()
            return critic(fake).mean() - critic(real).mean() + 10 * penalty

        for _ in range(3):
            noise, mix = mx.random.normal((16, 4)), mx.random.uniform(shape=(16, 1))
            generator.freeze()
            value, gradients = nn.value_and_grad(critic, critics)(noise, mix)
            optimizers[0].update(critic, gradients)
            generator.unfreeze()
            fooled, gradients = nn.value_and_grad(generator, lambda noise: -critic(generator(noise)).mean())(noise)
            optimizers[1].update(generator, gradients)
            results += [value, fooled]
        return results, generator(mx.ones((1, 4)))

    compare(scenario, tol=2e-3)


def test_an_ensemble_trains_as_one_network_with_another_axis():
    def scenario(lib):
        mx, nn, utils = lib.mx, lib.nn, lib.utils
        network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        members = [initialize(lib, nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), seed).parameters() for seed in range(4)]
        stacked = utils.tree_map(lambda *parts: mx.stack(parts), members[0], *members[1:])
        x, y = lib.normal(4, 16, 3), lib.normal(4, 16, 1, seed=1)

        def loss(parameters, x, y):
            network.update(parameters)
            return (network(x) - y).square().mean()

        @mx.compile
        def step(parameters, x, y):
            losses, gradients = mx.vmap(mx.value_and_grad(loss))(parameters, x, y)
            return losses, utils.tree_map(lambda p, g: p - 0.1 * g, parameters, gradients)

        results = []
        for _ in range(4):
            losses, stacked = step(stacked, x, y)
            results.append(losses)
        alone = mx.stack([loss(utils.tree_map(lambda p: p[at], stacked), x[at], y[at]) for at in range(4)])
        together = mx.vmap(loss)(stacked, x, y)
        assert mx.allclose(alone, together, atol=1e-5)
        return results, together

    compare(scenario, tol=2e-3)


def test_weights_of_few_bits_train_through_their_rounding():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        @mx.custom_function
        def rounded(weight):
            scale = mx.max(mx.abs(weight), axis=-1, keepdims=True) / 7
            return mx.clip(mx.round(weight / scale), -8, 7) * scale

        @rounded.vjp
        def straight_through(weight, cotangent, output):
            return cotangent

        class Coarse(nn.Linear):
            def __call__(self, x):
                return x @ rounded(self.weight).T + self.bias

        model = initialize(lib, nn.Sequential(Coarse(6, 16), nn.ReLU(), Coarse(16, 2)))
        x, y = lib.normal(32, 6), lib.normal(32, 2, seed=3)
        losses = train(lib, model, lib.optim.SGD(0.05, momentum=0.9), lambda x, y: (model(x) - y).square().mean(), [(x, y)] * 5)
        return losses, rounded(model.layers[0].weight)

    compare(scenario, tol=5e-3)


def test_boxes_that_overlap_are_suppressed():
    def scenario(lib):
        mx = lib.mx
        rng = np.random.default_rng(0)
        corners = lib.array(rng.random((24, 2)) * 8)
        boxes = mx.concatenate([corners, corners + lib.array(rng.random((24, 2)) * 4 + 1)], axis=1)
        scores, anchors = lib.array(rng.random(24)), mx.concatenate([corners - 1, corners + 1], axis=1)

        def overlap(a, b):
            low, high = mx.maximum(a[:, None, :2], b[None, :, :2]), mx.minimum(a[:, None, 2:], b[None, :, 2:])
            shared = mx.prod(mx.maximum(high - low, 0), axis=-1)
            area = lambda box: mx.prod(box[:, 2:] - box[:, :2], axis=-1)
            return shared / (area(a)[:, None] + area(b) - shared)

        order = mx.argsort(-scores)
        sorted_boxes = boxes[order]
        covers = overlap(sorted_boxes, sorted_boxes)
        kept = mx.ones(24, mx.bool_)
        for at in range(24):
            below = (mx.arange(24) > at) & (covers[at] > 0.3) & kept[at]
            kept[below] = False
        best = mx.argmax(overlap(anchors, sorted_boxes), axis=1)
        target = sorted_boxes[best]
        middle = lambda box: (box[:, :2] + box[:, 2:]) / 2
        offsets = mx.concatenate([middle(target) - middle(anchors), mx.log((target - anchors)[:, 2:].square() + 1)], axis=1)
        return order, kept, best, offsets, covers

    compare(scenario, tol=2e-3)
