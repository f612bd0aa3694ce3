//! Blocks of rows: arrays of shape (sequences, heads, rows, elements) with room for more rows than are in
//! use.

use std::any::Any;

use hesper_core::{Array, Result, concatenate, fast};
use hesper_nn::{Error, KvCache, Positions};

/// The blocks of every layer. A layer has none before its first token.
pub(super) type Layers = Vec<Vec<Array>>;

/// Rows by which blocks grow.
const GROWTH: usize = 256;

/// Room for `rows` rows: that of the block if it is enough, else the next multiple of [`GROWTH`].
pub(super) fn room_for(block: &Array, rows: usize) -> usize {
    if rows <= block.shape()[2] { block.shape()[2] } else { rows.next_multiple_of(GROWTH) }
}

/// A block without rows for sequences like those of `rows`.
pub(super) fn empty_like(rows: &Array) -> Result<Array> {
    let shape = rows.shape();
    Array::zeros(&[shape[0], shape[1], 0, shape[3]], rows.dtype())
}

/// A part of a block: some sequences, some heads, some rows.
fn part(block: &Array, from: [usize; 3], to: [usize; 3]) -> Result<Array> {
    let from = [from[0], from[1], from[2], 0].map(|at| at as isize);
    let to = [to[0], to[1], to[2], block.shape()[3]].map(|at| at as isize);
    block.slice(&from, &to, &[1; 4])
}

/// Rows `from..to` of all heads.
pub(super) fn rows_of(block: &Array, from: usize, to: usize) -> Result<Array> {
    part(block, [0, 0, from], [block.shape()[0], block.shape()[1], to])
}

/// The first `rows` rows of heads `from..to`.
pub(super) fn heads_of(block: &Array, from: usize, to: usize, rows: usize) -> Result<Array> {
    part(block, [0, from, 0], [block.shape()[0], to, rows])
}

/// Sequences `from..to`, with the first `rows` rows.
fn sequences_of(block: &Array, from: usize, to: usize, rows: usize) -> Result<Array> {
    part(block, [from, 0, 0], [to, block.shape()[1], rows])
}

/// The block with room for at least `rows` rows.
pub(super) fn with_room(block: &Array, rows: usize) -> Result<Array> {
    if block.shape()[2] >= rows {
        return Ok(block.clone());
    }
    fast::append(block, &empty_like(block)?, &vec![0; block.shape()[0]], rows)
}

/// The block without sequence `at`: the last one, of `rows` rows, takes its place.
fn without(block: &Array, at: usize, rows: usize) -> Result<Array> {
    let (last, room) = (block.shape()[0] - 1, block.shape()[2]);
    let mut pieces = vec![sequences_of(block, 0, at, room)?];
    if at < last {
        pieces.push(with_room(&sequences_of(block, last, last + 1, rows)?, room)?);
        pieces.push(sequences_of(block, at + 1, last, room)?);
    }
    pieces.retain(|piece| piece.shape()[0] > 0);
    concatenate(&pieces, 0)
}

/// The sequences of both layers, evaluated.
fn joined(own: &[Array], other: &[Array]) -> hesper_nn::Result<Vec<Array>> {
    if own.len() != other.len() {
        return Err(Error::InvalidArgument("cannot join a sequence without tokens".into()));
    }
    let join = |(own, other): (&Array, &Array)| {
        let room = own.shape()[2].max(other.shape()[2]);
        concatenate(&[with_room(own, room)?, with_room(other, room)?], 0)
    };
    let blocks = own.iter().zip(other).map(join).collect::<Result<Vec<_>>>()?;
    hesper_core::async_eval(&blocks)?;
    Ok(blocks)
}

/// Adds the sequences of `other` behind those of `own`. An error leaves `own` with the sequences it had.
pub(super) fn join_layers(own: &mut Layers, other: &Layers, sequences: usize) -> hesper_nn::Result<()> {
    for layer in 0..own.len().min(other.len()) {
        // Layer by layer: then the old and the new blocks of only one layer need memory at a time.
        match joined(&own[layer], &other[layer]) {
            Ok(blocks) => own[layer] = blocks,
            Err(error) => {
                for block in own[..layer].iter_mut().flatten() {
                    *block = sequences_of(block, 0, sequences, block.shape()[2])?;
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Removes a sequence; the last one takes its index. An error leaves `own` as it was.
pub(super) fn remove_from_layers(
    own: &mut Layers,
    positions: &Positions,
    sequence: usize,
) -> hesper_nn::Result<()> {
    check_settled(positions)?;
    let lengths = positions.lengths();
    let Some(last) = lengths.last().filter(|_| sequence < lengths.len()) else {
        let what = format!("a cache of {} sequences has no sequence {sequence}", lengths.len());
        return Err(Error::InvalidArgument(what));
    };
    *own = match lengths.len() {
        1 => vec![Vec::new(); own.len()],
        _ => {
            let remove = |block: &Array| without(block, sequence, *last);
            own.iter().map(|blocks| blocks.iter().map(remove).collect()).collect::<Result<_>>()?
        }
    };
    Ok(())
}

/// The other cache of a join, if it is of the same kind.
pub(super) fn same_kind<C: KvCache>(other: Box<dyn KvCache>) -> hesper_nn::Result<Box<C>> {
    let other: Box<dyn Any> = other;
    other.downcast().map_err(|_| Error::InvalidArgument("cannot join caches of different kinds".into()))
}

/// Fails if there are pending tokens.
pub(super) fn check_settled(positions: &Positions) -> hesper_nn::Result<()> {
    match positions.pending() {
        0 => Ok(()),
        pending => Err(Error::InvalidArgument(format!(
            "cannot change the sequences of a cache with {pending} pending tokens: commit them or roll back"
        ))),
    }
}
