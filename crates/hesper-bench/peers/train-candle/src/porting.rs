//! The candle column of the tables in `docs/book/src/porting.md`: every entry must compile here.

use candle_core::{D, DType, Device, IndexOp, Module, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, VarBuilder, VarMap};

pub fn arrays(dev: Device) -> Result<(Vec<f32>, f32)> {
    let x = Tensor::new(&[[1f32, 2.]], &dev)?;
    let y = Tensor::zeros((2, 3), DType::F32, &dev)?;
    let z = Tensor::randn(0f32, 1., 2, &dev)?;
    let half = y.to_dtype(DType::F16)?;
    let sum = (x.sum_all()? + z.sum_all()?)?.to_scalar::<f32>()?;
    Ok((half.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?, sum))
}

pub fn ops(x: Tensor, y: Tensor, mask: Tensor) -> Result<Vec<Tensor>> {
    let (_, _) = x.dims2()?;
    Ok(vec![
        (1.0 - &x)?,
        x.broadcast_add(&y)?,
        x.sum_all()?,
        x.sum(0)?,
        x.sum_keepdim(0)?,
        candle_nn::ops::softmax(&x, D::Minus1)?,
        x.argmax(1)?,
        x.relu()?,
        x.matmul(&y)?,
        x.t()?,
        x.transpose(0, 1)?,
        x.reshape((2, ()))?,
        x.unsqueeze(0)?,
        Tensor::cat(&[&x, &y], 0)?,
        mask.where_cond(&x, &y)?,
        x.i((.., 1..3))?,
        x.slice_assign(&[0..1, 0..2], &y)?,
    ])
}

pub fn derivatives(loss: &Tensor, var: &Var, x: &Tensor) -> Result<Option<Tensor>> {
    let _ = x.detach();
    Ok(loss.backward()?.get(var).cloned())
}

pub fn layers(vb: VarBuilder, mut varmap: VarMap, t: &Tensor, file: &str) -> Result<Tensor> {
    let (linear, norm) =
        (candle_nn::linear(4, 8, vb.pp("linear"))?, candle_nn::layer_norm(8, 1e-5, vb.pp("norm"))?);
    let table = candle_nn::embedding(10, 4, vb.pp("table"))?;
    let y = norm.forward(&linear.forward(&table.forward(t)?)?)?;
    let loss = candle_nn::loss::cross_entropy(&y, t)?;
    let mut optimizer = AdamW::new_lr(varmap.all_vars(), 1e-3)?;
    optimizer.backward_step(&loss)?;
    varmap.save(file)?;
    varmap.load(file)?;
    candle_nn::Dropout::new(0.1).forward(&y, false)
}
