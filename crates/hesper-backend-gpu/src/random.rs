//! Random bits; rows in random order, and choices, as graphs of other ops.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::command::Commands;
use hesper_core::ops::random::{Bits, Choose, PermuteRows};
use hesper_core::{Array, Dtype, Error, Result, select};

use crate::walk::fits;
use crate::{Gpu, Shared, Sink};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    let table = table.with_shared::<Shared<G>, Bits>();
    table.with_shared::<Shared<G>, Choose>().with_shared::<Shared<G>, PermuteRows>()
}

impl<G: Gpu> Lower<Bits> for Shared<G> {
    fn lower(_: &Bits, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        draw::<G>(l)
    }

    fn takes_epilogue(_: &Bits, _: &[usize], _: Dtype) -> bool {
        G::RANDOM_EPILOGUE
    }
}

fn draw<G: Gpu>(l: &mut Lowering<'_>) -> Result<Option<Data>> {
    let words = l.shape().iter().product::<usize>();
    if !fits::<G>(l) || words >= G::MAX_ELEMENTS {
        return Ok(None);
    }
    let known = known_key(l)?;
    if known.is_none() {
        l.bring()?;
    }
    let key = l.row_major(0)?;
    let sink = if G::RANDOM_EPILOGUE { Sink::of(l, 1)? } else { Sink::memory() };
    let launch = match words {
        0 => None,
        _ => match G::random_bits(l.stream(), words, known, &sink)? {
            None => {
                l.without_epilogue();
                return draw::<G>(l);
            }
            launch => launch,
        },
    };
    let output = sink.output(l)?;
    let command = l.stream().command("random bits");
    let start = key.offset as usize * 4;
    let command = match known {
        Some(_) => command,
        None => command.read_range(&key.buffer, start..start + 8),
    };
    match launch {
        Some(launch) => launch.encode(sink.bind(command, &output))?,
        None => sink.bind(command, &output).run(|_| Ok(()))?,
    }
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// A key in memory of another device, which mostly is the host: eight bytes are passed with the launch, where
/// a copy of them would take several times as long as the kernel.
fn known_key(l: &Lowering<'_>) -> Result<Option<[u32; 2]>> {
    let key = l.input(0);
    if key.buffer.belongs_to(&l.stream().runtime()) || key.strides[..] != [1] {
        return Ok(None);
    }
    let start = key.offset as usize * 4;
    let guard = key.buffer.read_range(start..start + 8)?;
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| guard.bytes()[at * 4 + byte]));
    let words = [word(0), word(1)];
    guard.check()?;
    Ok(Some(words))
}

impl<G: Gpu> Lower<Choose> for Shared<G> {
    fn lower(_: &Choose, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, choose)
    }
}

impl<G: Gpu> Lower<PermuteRows> for Shared<G> {
    fn lower(_: &PermuteRows, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, permuted)
    }
}

/// The index of the largest element of each row that is not NaN.
fn choose(inputs: &[Array]) -> Result<Array> {
    let logits = &inputs[0];
    let low = Array::scalar(f64::NEG_INFINITY, logits.dtype())?;
    select(&logits.isnan()?, &low, logits)?.argmax(-1)
}

/// Rows in the order that sorts random words.
fn permuted(inputs: &[Array]) -> Result<Array> {
    let [rows, words] = inputs else { return Err(Error::value("permutation", "two inputs expected")) };
    rows.take(words.argsort(Some(0))?, Some(0))
}
