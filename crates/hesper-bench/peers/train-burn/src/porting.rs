//! The burn column of the tables in `docs/book/src/porting.md`: every entry must compile here.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{DropoutConfig, EmbeddingConfig, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Bool, DType, Device, Distribution, Int, Tensor, activation, s};

pub fn arrays(dev: Device) -> (Vec<f32>, f32) {
    let x = Tensor::<2>::from_data([[1., 2.]], &dev);
    let y = Tensor::<2>::zeros([2, 3], &dev);
    let z = Tensor::<1>::random([2], Distribution::Normal(0., 1.), &dev);
    let half = y.cast(DType::F16).cast(DType::F32);
    (half.into_data().try_to_vec::<f32>().unwrap_or_default(), (x.sum() + z.sum()).into_scalar())
}

pub fn ops(x: Tensor<2>, y: Tensor<2>, mask: Tensor<2, Bool>) -> (Vec<Tensor<2>>, Tensor<2, Int>) {
    let [_, _] = x.dims();
    let row: Tensor<1> = x.clone().sum_dim(0).squeeze_dim::<1>(0);
    let _ = (row, x.clone().sum());
    let _: Tensor<3> = x.clone().unsqueeze_dim(0);
    let all = vec![
        1.0 - x.clone(),
        x.clone() + y.clone(),
        x.clone().sum_dim(0),
        activation::softmax(x.clone(), 1),
        activation::relu(x.clone()),
        x.clone().matmul(y.clone()),
        x.clone().transpose(),
        x.clone().swap_dims(0, 1),
        x.clone().reshape([2, -1]),
        Tensor::cat(vec![x.clone(), y.clone()], 0),
        y.clone().mask_where(mask, x.clone()),
        x.clone().slice(s![.., 1..3]),
        x.clone().slice_assign(s![0..1], y),
    ];
    (all, x.argmax(1))
}

pub fn derivatives(loss: Tensor<1>, x: Tensor<2>) -> Option<Tensor<2>> {
    let grads = loss.backward();
    let _ = x.clone().detach();
    x.grad(&grads)
}

pub fn layers(dev: Device, model: Linear, t: Tensor<1, Int>, file: &str) -> (Linear, Tensor<2>) {
    let (norm, table) = (LayerNormConfig::new(8).init(&dev), EmbeddingConfig::new(10, 4).init(&dev));
    let x = table.forward(t.clone().unsqueeze_dim(0)).flatten::<2>(0, 1);
    let y = DropoutConfig::new(0.1).init().forward(norm.forward(model.forward(x)));
    let loss = CrossEntropyLossConfig::new().init(&dev).forward(y.clone(), t);
    let grads = GradientsParams::from_grads(loss.backward(), &model);
    let mut optimizer: ModuleOptimizer = AdamWConfig::new().init();
    let model = optimizer.step(1e-3, model, grads);
    let model = model.no_grad().valid();
    let _ = (LinearConfig::new(4, 8).init(&dev), model.num_params(), model.clone().save_file(file));
    (model.load_file(file), y)
}
