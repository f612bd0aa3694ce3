//! Appending rows to a block: in place if there is no other handle on the block, else to a copy.

use hesper::{Array, Dtype, fast, transform};

fn rows(values: &[f32], shape: &[usize]) -> Array {
    Array::try_from_slice(values, shape).unwrap()
}

fn address(array: &Array) -> usize {
    array.host().unwrap().as_ptr() as usize
}

#[test]
fn a_block_with_one_handle_keeps_its_memory() {
    let mut block = Array::zeros(&[1, 2, 0, 2], Dtype::Float32).unwrap();
    block = fast::append(&block, &rows(&[1.0; 4], &[1, 2, 1, 2]), &[0], 8).unwrap();
    block.eval().unwrap();
    let first = address(&block);
    for step in 1..8 {
        block = fast::append(&block, &rows(&[step as f32; 4], &[1, 2, 1, 2]), &[step], 8).unwrap();
        let used = block.slice(&[0, 0, 0, 0], &[1, 2, step as isize + 1, 2], &[1, 1, 1, 1]).unwrap();
        let sum = used.sum(()).unwrap();
        let expected = 4.0 * (1 + (1..=step).sum::<usize>()) as f32;
        assert_eq!(sum.item::<f32>().unwrap(), expected);
        drop((used, sum));
        assert_eq!(address(&block), first, "step {step} moved the block");
    }
}

#[test]
fn a_compiled_function_overwrites_donated_arguments() {
    let write = transform::compile(|x| Ok(vec![fast::append(&x[0], &x[1], &[1], 4)?]));
    // The block is read again after the write, so the write goes to a copy.
    let look = transform::compile(|x| {
        let seen = x[0].reshape(&[-1])?;
        let written = fast::append(&x[0], &x[1], &[2], 4)?;
        Ok(vec![written, seen.add(1.0)?])
    });
    let start = rows(&[5.0; 8], &[1, 2, 2, 2]);
    let mut block =
        fast::append(&Array::zeros(&[1, 2, 0, 2], Dtype::Float32).unwrap(), &start, &[0], 4).unwrap();
    block.eval().unwrap();
    let first = address(&block);
    let row = rows(&[7.0; 4], &[1, 2, 1, 2]);
    for _ in 0..3 {
        let mut outputs = write(&[block, row.clone()]).unwrap();
        block = outputs.remove(0);
        block.eval().unwrap();
        assert_eq!(address(&block), first, "the block moved");
    }
    let held = block.clone();
    let copied = write(&[block, rows(&[9.0; 4], &[1, 2, 1, 2])]).unwrap().remove(0);
    copied.eval().unwrap();
    assert_ne!(address(&copied), first, "a block that is held was overwritten");
    assert_eq!(held.to_vec::<f32>().unwrap()[2..4], [7.0, 7.0]);
    let outputs = look(&[held, row]).unwrap();
    hesper::eval(&outputs).unwrap();
    assert_eq!(outputs[1].to_vec::<f32>().unwrap()[..6], [6.0, 6.0, 8.0, 8.0, 1.0, 1.0]);
    assert_eq!(outputs[0].to_vec::<f32>().unwrap()[..6], [5.0, 5.0, 7.0, 7.0, 7.0, 7.0]);
}

#[test]
fn a_compiled_step_overwrites_the_old_state_with_the_new_one() {
    let step = transform::compile(|x| {
        let speed = x[1].multiply(0.5)?.add(&x[2])?;
        Ok(vec![x[0].subtract(speed.multiply(0.25)?)?, speed])
    });
    let mut state = vec![rows(&[8.0; 6], &[2, 3]), rows(&[0.0; 6], &[2, 3])];
    let slope = rows(&[4.0; 6], &[2, 3]);
    hesper::eval(&state).unwrap();
    let places = [address(&state[0]), address(&state[1])];
    for _ in 0..3 {
        state.push(slope.clone());
        state = step(&std::mem::take(&mut state)).unwrap();
        hesper::eval(&state).unwrap();
        let mut now = [address(&state[0]), address(&state[1])];
        now.sort_unstable();
        let mut before = places;
        before.sort_unstable();
        assert_eq!(now, before, "the state moved");
    }
    assert_eq!(state[1].to_vec::<f32>().unwrap(), [7.0; 6]);
    assert_eq!(state[0].to_vec::<f32>().unwrap(), [3.75; 6]);
    // State with another handle is not overwritten.
    let held = state[0].clone();
    let next = step(&[state.remove(0), state.remove(0), slope.clone()]).unwrap();
    hesper::eval(&next).unwrap();
    assert_eq!(held.to_vec::<f32>().unwrap(), [3.75; 6]);
    assert_eq!(slope.to_vec::<f32>().unwrap(), [4.0; 6]);
    assert_eq!(next[0].to_vec::<f32>().unwrap(), [1.875; 6]);
}

#[test]
fn a_block_with_another_handle_keeps_its_elements() {
    let empty = Array::zeros(&[1, 1, 0, 1], Dtype::Float32).unwrap();
    let one = fast::append(&empty, &rows(&[1.0], &[1, 1, 1, 1]), &[0], 2).unwrap();
    one.eval().unwrap();
    let seen = one.slice(&[0, 0, 0, 0], &[1, 1, 2, 1], &[1, 1, 1, 1]).unwrap();
    seen.eval().unwrap();
    let held = one.clone();
    let two = fast::append(&one, &rows(&[2.0], &[1, 1, 1, 1]), &[1], 2).unwrap();
    drop(one);
    assert_eq!(two.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(held.to_vec::<f32>().unwrap(), [1.0, 0.0]);
    drop(held);
    assert_eq!(seen.to_vec::<f32>().unwrap(), [1.0, 0.0]);
    let lazy_reader = &two * 10.0;
    let three = fast::append(&two, &rows(&[3.0], &[1, 1, 1, 1]), &[1], 2).unwrap();
    drop(two);
    assert_eq!(three.to_vec::<f32>().unwrap(), [1.0, 3.0]);
    assert_eq!(lazy_reader.to_vec::<f32>().unwrap(), [10.0, 20.0]);
}

#[test]
fn each_sequence_is_written_at_its_own_start_and_blocks_grow() {
    let empty = Array::zeros(&[3, 1, 0, 1], Dtype::Float32).unwrap();
    let block = fast::append(&empty, &rows(&[1.0, 2.0, 3.0], &[3, 1, 1, 1]), &[0, 1, 2], 3).unwrap();
    let expected = [1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0];
    assert_eq!(block.to_vec::<f32>().unwrap(), expected);
    // A transposed update for the first two sequences, and room for one more.
    let update = rows(&[7.0, 8.0, 9.0, 6.0], &[1, 2, 1, 2]).transpose(&[1, 0, 3, 2]).unwrap();
    let grown = fast::append(&block, &update, &[2, 1], 4).unwrap();
    let expected = [1.0, 0.0, 7.0, 8.0, 0.0, 9.0, 6.0, 0.0, 0.0, 0.0, 3.0, 0.0];
    assert_eq!(grown.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn rows_that_do_not_fit_are_refused_with_their_shapes() {
    let block = Array::zeros(&[1, 1, 4, 2], Dtype::Float32).unwrap();
    let error = fast::append(&block, &rows(&[0.0; 2], &[1, 1, 1, 2]), &[4], 4).unwrap_err();
    assert!(error.to_string().contains("[1, 1, 4, 2]"), "{error}");
    assert!(fast::append(&block, &rows(&[0.0; 3], &[1, 1, 1, 3]), &[0], 4).is_err());
    assert!(fast::append(&block, &rows(&[0.0; 2], &[1, 1, 1, 2]), &[usize::MAX], 4).is_err());
    assert!(fast::append(&block, &rows(&[0.0; 2], &[1, 1, 1, 2]), &[0, 1], 4).is_err());
}
