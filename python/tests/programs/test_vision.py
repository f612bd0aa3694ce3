"""Classifiers of images, and a model that reads images and text."""

import numpy as np
from differential import compare
from training import initialize, merge_heads, split_heads, train


def test_a_perceptron_on_digits():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        class MLP(nn.Module):
            def __init__(self, sizes):
                super().__init__()
                self.layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]

            def __call__(self, x):
                for layer in self.layers[:-1]:
                    x = nn.relu(layer(x))
                return self.layers[-1](x)

        rng = np.random.default_rng(0)
        images = lib.array(rng.random((96, 49)))
        labels = mx.argmax(images[:, :10], axis=1)
        model = initialize(lib, MLP([49, 32, 32, 10]))
        order = rng.permutation(96).reshape(6, 16)
        batches = [(images[lib.array(ids)], labels[lib.array(ids)]) for ids in order]
        loss = lambda x, y: nn.losses.cross_entropy(model(x), y, reduction="mean")  # noqa: E731
        losses = train(lib, model, lib.optim.SGD(0.5), loss, batches)
        accuracy = mx.mean(mx.argmax(model(images), axis=1) == labels)
        return losses, accuracy, model.parameters()

    compare(scenario, tol=1e-3)


def test_a_residual_network_with_batch_norm_and_augmentation():
    def scenario(lib):
        mx, nn, optim = lib.mx, lib.nn, lib.optim

        class Block(nn.Module):
            def __init__(self, inputs, outputs, stride):
                super().__init__()
                self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
                self.bn1 = nn.BatchNorm(outputs)
                self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
                self.bn2 = nn.BatchNorm(outputs)
                self.stride, self.extra = stride, outputs - inputs

            def __call__(self, x):
                y = self.bn2(self.conv2(nn.relu(self.bn1(self.conv1(x)))))
                shortcut = mx.pad(x[:, :: self.stride, :: self.stride], [(0, 0)] * 3 + [(0, self.extra)])
                return nn.relu(y + shortcut)

        class ResNet(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = nn.Conv2d(3, 8, 3, padding=1)
                self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 12, 2), Block(12, 16, 2))
                self.head = nn.Linear(16, 5)

            def __call__(self, x):
                return self.head(self.blocks(self.stem(x)).mean(axis=(1, 2)))

        def augmented(x):
            flipped = mx.where(mx.random.bernoulli(0.5, (x.shape[0], 1, 1, 1)), x[:, :, ::-1], x)
            padded = mx.pad(flipped, [(0, 0), (2, 2), (2, 2), (0, 0)])
            left = mx.random.randint(0, 4, (1,))
            return mx.take(padded[:, 1:-3], left + mx.arange(x.shape[2]), axis=2)

        model = initialize(lib, ResNet())
        mx.random.seed(4)
        batches = [(augmented(lib.normal(6, 12, 12, 3, seed=i)), lib.array([0, 1, 2, 3, 4, 0])) for i in range(4)]
        optimizer = optim.SGD(optim.step_decay(0.1, 0.5, 2), momentum=0.9, weight_decay=1e-4)
        loss = lambda x, y: nn.losses.cross_entropy(model(x), y).mean()  # noqa: E731
        losses = train(lib, model, optimizer, loss, batches)
        return losses, model.eval()(lib.normal(2, 12, 12, 3, seed=9)), model.parameters()

    compare(scenario, tol=3e-3)


def test_image_features_take_the_places_of_image_tokens():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        dims, heads, image_token = 32, 4, 7

        class Vision(nn.Module):
            def __init__(self):
                super().__init__()
                self.patches = nn.Conv2d(3, 24, kernel_size=4, stride=4, bias=False)
                self.class_embedding = mx.zeros((24,))
                self.position = nn.Embedding(10, 24)
                self.encoder = nn.TransformerEncoder(2, 24, 3, mlp_dims=48, activation=nn.gelu_approx)

            def __call__(self, images):
                x = mx.flatten(self.patches(images), 1, 2)
                first = mx.broadcast_to(self.class_embedding, (x.shape[0], 1, 24))
                x = mx.concatenate([first, x], axis=1) + self.position(mx.arange(10))
                return self.encoder(x, None)[:, 1:]

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.vision = Vision()
                self.projector = nn.Sequential(nn.Linear(24, dims), nn.GELU(), nn.Linear(dims, dims))
                self.embed = nn.Embedding(40, dims)
                self.qkv = nn.Linear(dims, 3 * dims)
                self.norm = nn.RMSNorm(dims)

            def __call__(self, tokens, images):
                x = self.embed(tokens)
                features = self.projector(self.vision(images))
                places = np.argwhere(np.array(tokens) == image_token)
                rows, columns = lib.array(places[:, 0]), lib.array(places[:, 1])
                x[rows, columns] = features.reshape(-1, dims)
                q, k, v = (split_heads(p, heads) for p in mx.split(self.qkv(x), 3, axis=-1))
                y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(dims // heads) ** -0.5, mask="causal")
                return self.embed.as_linear(self.norm(x + merge_heads(y)))

        model = initialize(lib, Model())
        tokens = np.random.default_rng(0).integers(10, 40, (2, 15))
        tokens[:, 3:12] = image_token
        tokens, images = lib.array(tokens), lib.normal(2, 12, 12, 3)
        model.vision.freeze()
        loss_fn = lambda m: nn.losses.cross_entropy(m(tokens, images)[:, :-1], tokens[:, 1:]).mean()  # noqa: E731
        loss, gradients = nn.value_and_grad(model, loss_fn)(model)
        return model(tokens, images), loss, gradients

    compare(scenario, tol=1e-3)


def test_images_and_texts_are_matched_by_a_contrastive_loss():
    def scenario(lib):
        mx, nn, optim = lib.mx, lib.nn, lib.optim
        dims = 24

        class Tower(nn.Module):
            """A transformer of layers that normalize first, with a projection of one position's features."""

            def __init__(self, embedding, positions, mask):
                super().__init__()
                self.embedding = embedding
                self.positions = nn.Embedding(positions, dims)
                self.layers = [
                    nn.TransformerEncoderLayer(dims, 3, mlp_dims=48, activation=nn.gelu_fast_approx, norm_first=True)
                    for _ in range(2)
                ]
                self.norm = nn.LayerNorm(dims)
                self.projection = nn.Linear(dims, 16, bias=False)
                self._mask = mask

            def __call__(self, x, place):
                x = self.embedding(x)
                x = mx.flatten(x, 1, -2) if x.ndim == 4 else x
                x = x + self.positions(mx.arange(x.shape[1]))
                for layer in self.layers:
                    x = layer(x, self._mask)
                chosen = x[mx.arange(x.shape[0]), place]
                y = self.projection(self.norm(chosen))
                return y / mx.linalg.norm(y, axis=-1, keepdims=True)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                causal = nn.MultiHeadAttention.create_additive_causal_mask(7)
                self.vision = Tower(nn.Conv2d(3, dims, 4, 4, bias=False), 9, None)
                self.text = Tower(nn.Embedding(30, dims), 7, causal)
                self.scale = mx.array(1.0)

            def __call__(self, images, tokens):
                # The last token is the one with the highest number.
                texts = self.text(tokens, mx.argmax(tokens, axis=-1))
                pictures = self.vision(images, mx.zeros((images.shape[0],), dtype=mx.int32))
                return mx.exp(self.scale) * texts @ pictures.T

        def loss(images, tokens):
            logits, targets = model(images, tokens), mx.arange(tokens.shape[0])
            rows, columns = nn.losses.cross_entropy(logits, targets), nn.losses.cross_entropy(logits.T, targets)
            return (rows.mean() + columns.mean()) / 2

        model = initialize(lib, Model())
        tokens = np.random.default_rng(0).integers(1, 29, (4, 7))
        tokens[[0, 1, 2, 3], [6, 3, 4, 6]] = 29
        tokens = lib.array(tokens)
        optimizer = optim.AdamW(optim.join_schedules([optim.linear_schedule(0, 1e-2, 2), optim.cosine_decay(1e-2, 6)], [2]))
        batches = [(lib.normal(4, 12, 12, 3, seed=i), tokens) for i in range(4)]
        losses = train(lib, model, optimizer, loss, batches)
        return losses, model(*batches[0])

    compare(scenario, tol=2e-3)
