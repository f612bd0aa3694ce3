"""Equations, rays, signals and statistics: programs of arrays without a network, or with a small one."""

import math

import numpy as np
from differential import compare
from training import initialize, train


def test_a_network_that_satisfies_a_differential_equation():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        net = initialize(lib, nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)))

        def u(point):
            return net(point[None])[0, 0]

        def residual(point):
            """The heat equation: the derivative in time less the second one in space."""
            slope = mx.grad(u)
            _, (second,) = mx.jvp(slope, [point], [mx.array([1.0, 0.0])])
            return slope(point)[1] - 0.1 * second[0]

        def loss(points, starts):
            inner = mx.vmap(residual)(points).square().mean()
            ends = mx.vmap(u)(starts) - mx.sin(math.pi * starts[:, 0])
            return inner + ends.square().mean()

        points, starts = mx.sigmoid(lib.normal(32, 2)), mx.sigmoid(lib.normal(16, 2)) * mx.array([1.0, 0.0])
        losses = train(lib, net, lib.optim.Adam(1e-2), loss, [(points, starts)] * 4)
        return losses, mx.vmap(residual)(points)

    compare(scenario, tol=2e-3)


def test_rays_through_a_volume_are_sampled_twice():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        field = initialize(lib, nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 4)))

        def encoded(points):
            waves = points[..., None] * 2.0 ** mx.arange(4)
            return mx.concatenate([points, mx.sin(waves).flatten(-2), mx.cos(waves).flatten(-2)], axis=-1)

        def rendered(origins, directions, depths):
            density, colour = mx.split(field(encoded(origins[:, None] + directions[:, None] * depths[..., None])), [1], axis=-1)
            steps = mx.concatenate([depths[:, 1:] - depths[:, :-1], mx.full((len(depths), 1), 0.5)], axis=1)
            clear = mx.exp(-nn.softplus(density[..., 0]) * steps)
            left = mx.concatenate([mx.ones((len(depths), 1)), mx.cumprod(clear + 1e-7, axis=1)[:, :-1]], axis=1)
            weights = (1 - clear) * left
            return (weights[..., None] * mx.sigmoid(colour)).sum(1), weights

        def refined(depths, weights, count):
            """Depths where the weights are, by inverting their sums."""
            sums = mx.cumsum(weights + 1e-3, axis=1)
            sums = sums / sums[:, -1:]
            places = mx.broadcast_to((mx.arange(count) + 0.5) / count, (len(depths), count))
            below = (places[..., None] > sums[:, None]).sum(-1)
            return mx.sort(mx.concatenate([depths, mx.take_along_axis(depths, below, axis=1)], axis=1), axis=1)

        origins, directions = lib.normal(6, 3), lib.normal(6, 3)
        directions = directions / mx.linalg.norm(directions, axis=-1, keepdims=True)
        coarse = mx.broadcast_to(mx.linspace(0.5, 4, 12), (6, 12))

        def loss(target):
            _, weights = rendered(origins, directions, coarse)
            fine, _ = rendered(origins, directions, refined(coarse, mx.stop_gradient(weights), 8))
            return (fine - target).square().mean()

        return train(lib, field, lib.optim.Adam(1e-2), loss, [(mx.sigmoid(lib.normal(6, 3)),)] * 4), rendered(origins, directions, coarse)

    compare(scenario, tol=2e-3)


def test_a_signal_from_its_spectrogram():
    def scenario(lib):
        mx = lib.mx
        window, hop = 64, 16
        time = mx.arange(1024) / 256
        signal = mx.sin(2 * math.pi * (8 + 10 * time) * time) + 0.1 * lib.normal(1024)
        taper = mx.hanning(window + 1)[:-1]
        padded = mx.concatenate(
            [signal[1 : window // 2 + 1][::-1], signal, signal[-window // 2 - 1 : -1][::-1]]
        )
        frames = mx.as_strided(padded, ((padded.size - window) // hop + 1, window), (hop, 1))
        spectra = mx.fft.rfft(frames * taper)
        mel = mx.maximum(0, 1 - mx.abs(mx.linspace(0, 20, spectra.shape[1])[:, None] - mx.arange(20)))
        energies = mx.log10(mx.maximum(spectra.abs().square() @ mel, 1e-6))
        # Quiet bins are removed, and what is left is added up where the frames were.
        loud = mx.where(spectra.abs() > 0.5, spectra, 0)
        parts = mx.fft.irfft(loud, window, axis=-1) * taper
        places = mx.arange(len(parts))[:, None] * hop + mx.arange(window)
        total = mx.zeros(padded.shape).at[places].add(parts)
        weight = mx.zeros(padded.shape).at[places].add(mx.broadcast_to(taper.square(), parts.shape))
        return energies, (total / mx.maximum(weight, 1e-3))[window // 2 : -window // 2]

    compare(scenario, tol=2e-3)


def test_a_regression_by_a_gaussian_process():
    def scenario(lib):
        mx = lib.mx

        def kernel(a, b, width):
            return mx.exp(-0.5 * (a[:, None] - b[None]).square().sum(-1) / width**2)

        x, y, new = lib.normal(12, 2), lib.normal(12), lib.normal(5, 2)
        with mx.stream(mx.cpu):
            root = mx.linalg.cholesky(kernel(x, x, 0.7) + 0.1 * mx.eye(12))
            weights = mx.linalg.solve_triangular(root.T, mx.linalg.solve_triangular(root, y[:, None]), upper=True)
            across = kernel(new, x, 0.7)
            spread = mx.linalg.solve_triangular(root, across.T)
            likelihood = -0.5 * (y @ weights[:, 0]) - mx.log(mx.diagonal(root)).sum() - 6 * math.log(2 * math.pi)
            # The same by the inverse.
            other = across @ mx.linalg.inv(kernel(x, x, 0.7) + 0.1 * mx.eye(12)) @ y
        return across @ weights, 1 - spread.square().sum(0), likelihood, other

    compare(scenario, tol=2e-3)


def test_clusters_and_principal_axes():
    def scenario(lib):
        mx = lib.mx
        points = mx.concatenate([lib.normal(20, 3) * 0.3 + lib.array(centre) for centre in ([0.0, 0, 4], [3.0, 1, 0], [-3.0, 2, 1])])
        centres = points[mx.array([0, 20, 40])]
        for _ in range(4):
            nearest = mx.argmin((points[:, None] - centres).square().sum(-1), axis=1)
            chosen = (nearest[:, None] == mx.arange(3)).astype(mx.float32)
            centres = (chosen.T @ points) / chosen.sum(0)[:, None]
        counts = mx.zeros(3, mx.int32).at[nearest].add(1)
        centred = points - points.mean(0)
        _, lengths, axes = mx.linalg.svd(centred, stream=mx.cpu)
        projected = centred @ axes[:2].T
        return nearest, centres, counts, lengths, (projected @ axes[:2] - centred).square().sum(), mx.median(points, axis=0)

    compare(scenario, tol=2e-3)


def test_bodies_that_attract_each_other():
    def scenario(lib):
        mx = lib.mx
        masses = mx.exp(lib.normal(6))

        def energy(places, speeds):
            distances = places[:, None] - places[None]
            nearness = mx.rsqrt(distances.square().sum(-1) + 0.1)
            pairs = mx.triu(masses[:, None] * masses * nearness, k=1).sum()
            return 0.5 * (masses[:, None] * speeds.square()).sum() - pairs

        force = mx.grad(lambda places, speeds: -energy(places, speeds))

        @mx.compile
        def step(places, speeds, length):
            speeds = speeds + 0.5 * length * force(places, speeds) / masses[:, None]
            places = places + length * speeds
            return places, speeds + 0.5 * length * force(places, speeds) / masses[:, None]

        places, speeds = lib.normal(6, 3), 0.1 * lib.normal(6, 3)
        before = energy(places, speeds)
        for _ in range(10):
            places, speeds = step(places, speeds, 0.01)
        return before, energy(places, speeds), places

    compare(scenario, tol=2e-3)


def test_cells_that_live_and_die():
    def scenario(lib):
        mx = lib.mx
        alive = lib.normal(12, 15) > 0.3
        around = mx.ones((1, 3, 3, 1)).at[0, 1, 1, 0].add(-1)
        for _ in range(5):
            rows = mx.concatenate([alive[-1:], alive, alive[:1]])
            torus = mx.concatenate([rows[:, -1:], rows, rows[:, :1]], axis=1).astype(mx.float32)
            count = mx.conv2d(torus[None, :, :, None], around)[0, :, :, 0]
            rolled = sum(mx.roll(alive.astype(mx.int32), (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0))
            assert mx.array_equal(count.astype(mx.int32), rolled)
            alive = (count == 3) | (alive & (count == 2))
        return alive, np.array(alive).sum()

    compare(scenario, tol=0)
