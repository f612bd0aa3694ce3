//! The order of steps: that of the walk from the results, except that a step runs early if that frees memory.
//!
//! A walk from the results of a training step reaches the gradient of the first layer's weights first. Its
//! order computes the cotangents of all layers before the gradients of the other weights, and so keeps all of
//! them. Here, as soon as the last readers of a value can run, they run if they free at least as many values
//! as they store, and two or more: the gradient of a weight runs while its operands are still in the cache.
//! So do steps that read such a result alone and store nothing but results of the whole: the update of that
//! weight.
//!
//! Lengths are not known here, so values count alike. A view takes no memory: what reads it reads the value
//! that it is a view of.

use smallvec::SmallVec;

/// Most readers that a value may still have for them to run early.
const MAX_EARLY: usize = 8;
/// Fewest values that steps must free to run early.
const MIN_FREED: usize = 2;
const NONE: u32 = u32::MAX;

/// What a step is for its place in the order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StepRole {
    View,
    /// Element-wise ops: they run early only as the last use of a result.
    Group,
    Op,
}

struct Entry {
    role: StepRole,
    /// Where its reads end.
    reads: u32,
    /// Whether all that it stores is wanted for itself.
    sink: bool,
}

/// Steps in an order in which they can run, with what they read and store.
pub(super) struct StepOrder {
    steps: Vec<Entry>,
    /// The steps that steps read, those of a step together.
    reads: Vec<u32>,
    /// The step that stores each node.
    producers: Vec<u32>,
    /// Whether a result of the step outlives the run.
    held: Vec<bool>,
}

impl StepOrder {
    /// No steps yet, of a graph with so many nodes.
    pub(super) fn new(nodes: usize) -> Self {
        StepOrder { steps: Vec::new(), reads: Vec::new(), producers: vec![NONE; nodes], held: Vec::new() }
    }

    /// The step that is pushed next reads a node.
    pub(super) fn read(&mut self, node: usize) {
        let producer = self.producers[node];
        if producer != NONE {
            self.reads.push(producer);
        }
    }

    /// Adds the step whose reads were given. Each of its outputs is a node, and whether that is wanted for
    /// itself.
    pub(super) fn push(&mut self, role: StepRole, outputs: impl IntoIterator<Item = (u32, bool)>) {
        let at = self.steps.len() as u32;
        let (mut sink, mut held) = (true, false);
        for (node, wanted) in outputs {
            self.producers[node as usize] = at;
            sink &= wanted;
            held |= wanted;
        }
        self.steps.push(Entry { role, reads: self.reads.len() as u32, sink });
        self.held.push(held);
    }

    fn reads(&self, step: usize) -> &[u32] {
        let begin = step.checked_sub(1).map_or(0, |before| self.steps[before].reads);
        &self.reads[begin as usize..self.steps[step].reads as usize]
    }

    /// The steps as they run.
    pub(super) fn order(self) -> Vec<u32> {
        let values = Values::new(&self);
        let mut run = Run {
            remaining: values.readers.iter().map(|(begin, end)| end - begin).collect(),
            done: vec![false; self.steps.len()],
            order: Vec::with_capacity(self.steps.len()),
            changed: Vec::new(),
            steps: &self,
            values: &values,
        };
        for step in 0..self.steps.len() as u32 {
            run.emit(step);
            while let Some(value) = run.changed.pop() {
                run.early(value);
            }
        }
        run.order
    }
}

/// The values that steps store: a value has the number of its step.
struct Values {
    /// The value that the result of a step is, or is a view of; [`NONE`] for a view of an array from outside.
    of: Vec<u32>,
    /// Whether the value, or a view of it, outlives the run.
    held: Vec<bool>,
    /// The values that each step reads, and the steps that read each value, as ranges of lists. Views read
    /// nothing.
    inputs: Vec<(u32, u32)>,
    input_list: Vec<u32>,
    readers: Vec<(u32, u32)>,
    reader_list: Vec<u32>,
}

impl Values {
    fn new(steps: &StepOrder) -> Values {
        let count = steps.steps.len();
        let mut values = Values {
            of: Vec::with_capacity(count),
            held: vec![false; count],
            inputs: Vec::with_capacity(count),
            input_list: Vec::with_capacity(steps.reads.len()),
            readers: vec![(0, 0); count],
            reader_list: Vec::new(),
        };
        for step in 0..count {
            let view = steps.steps[step].role == StepRole::View;
            let viewed = steps.reads(step).first().map_or(NONE, |first| values.of[*first as usize]);
            values.of.push(if view { viewed } else { step as u32 });
            if let Some(held) = values.held.get_mut(values.of[step] as usize) {
                *held |= steps.held[step];
            }
            let begin = values.input_list.len();
            if !view {
                for read in steps.reads(step) {
                    let value = values.of[*read as usize];
                    if value != NONE && !values.input_list[begin..].contains(&value) {
                        values.input_list.push(value);
                        values.readers[value as usize].1 += 1;
                    }
                }
            }
            values.inputs.push((begin as u32, values.input_list.len() as u32));
        }
        // From counts to ranges.
        let mut begin = 0;
        for (first, end) in &mut values.readers {
            let count = *end;
            (*first, *end) = (begin, begin);
            begin += count;
        }
        values.reader_list.resize(begin as usize, NONE);
        for step in 0..count {
            let (begin, end) = values.inputs[step];
            for value in &values.input_list[begin as usize..end as usize] {
                let (_, end) = &mut values.readers[*value as usize];
                values.reader_list[*end as usize] = step as u32;
                *end += 1;
            }
        }
        values
    }

    fn inputs(&self, step: u32) -> &[u32] {
        let (begin, end) = self.inputs[step as usize];
        &self.input_list[begin as usize..end as usize]
    }

    fn readers(&self, value: u32) -> &[u32] {
        let (begin, end) = self.readers[value as usize];
        &self.reader_list[begin as usize..end as usize]
    }
}

/// An order under construction.
struct Run<'a> {
    steps: &'a StepOrder,
    values: &'a Values,
    /// How many readers of each value have no place yet.
    remaining: Vec<u32>,
    done: Vec<bool>,
    order: Vec<u32>,
    /// Values whose last readers may be able to run now.
    changed: Vec<u32>,
}

impl Run<'_> {
    /// Places a step, after the views that it reads.
    fn emit(&mut self, step: u32) {
        let mut stack: SmallVec<[u32; 4]> = SmallVec::from_elem(step, 1);
        while let Some(&step) = stack.last() {
            let at = step as usize;
            let before = stack.len();
            if !self.done[at] {
                stack.extend(self.steps.reads(at).iter().copied().filter(|read| !self.done[*read as usize]));
            }
            if stack.len() > before {
                continue;
            }
            stack.pop();
            if std::mem::replace(&mut self.done[at], true) {
                continue;
            }
            self.order.push(step);
            for value in self.values.inputs(step) {
                self.remaining[*value as usize] -= 1;
                self.changed.push(*value);
            }
        }
    }

    /// Whether all values that a step reads are there.
    fn is_ready(&self, step: u32) -> bool {
        self.values.inputs(step).iter().all(|value| self.done[*value as usize])
    }

    /// The readers of a value that have no place, if there are few and all can run.
    fn last_readers(&self, value: u32) -> Option<SmallVec<[u32; MAX_EARLY]>> {
        if !(1..=MAX_EARLY as u32).contains(&self.remaining[value as usize]) {
            return None;
        }
        let open = |step: &u32| !self.done[*step as usize];
        let last: SmallVec<[u32; MAX_EARLY]> =
            self.values.readers(value).iter().copied().filter(open).collect();
        last.iter().all(|step| self.is_ready(*step)).then_some(last)
    }

    /// Places the last readers of a value if that frees memory.
    fn early(&mut self, value: u32) {
        let Some(last) = self.last_readers(value) else { return };
        if last.iter().any(|step| self.steps.steps[*step as usize].role != StepRole::Op) {
            return;
        }
        let mut read: SmallVec<[u32; 16]> =
            last.iter().flat_map(|step| self.values.inputs(*step)).copied().collect();
        read.sort_unstable();
        let freed = read.chunk_by(|one, other| one == other).filter(|uses| {
            let value = uses[0] as usize;
            !self.values.held[value] && self.remaining[value] as usize == uses.len()
        });
        let freed = freed.count();
        if freed < last.len().max(MIN_FREED) {
            return;
        }
        for step in last {
            self.emit(step);
            let Some(readers) = self.last_readers(step) else { continue };
            if readers.iter().all(|reader| self.steps.steps[*reader as usize].sink) {
                readers.into_iter().for_each(|reader| self.emit(reader));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of steps, each as its role, what it reads and whether its result is wanted.
    fn order(steps: &[(StepRole, &[usize], bool)]) -> Vec<u32> {
        let mut order = StepOrder::new(steps.len());
        for (at, (role, reads, held)) in steps.iter().enumerate() {
            reads.iter().for_each(|read| order.read(*read));
            order.push(*role, [(at as u32, *held)]);
        }
        order.order()
    }

    use StepRole::{Group, Op, View};

    #[test]
    fn the_gradient_of_a_weight_runs_when_its_cotangent_is_no_longer_read() {
        let steps: [(StepRole, &[usize], bool); 9] = [
            (Op, &[], false),     // 0: the first layer
            (Op, &[0], false),    // 1: the second layer
            (Op, &[1], false),    // 2: the cotangent of the second
            (Op, &[2], false),    // 3: the cotangent of the first
            (Op, &[3], false),    // 4: the gradient of the first weight
            (Group, &[4], true),  // 5: its update
            (View, &[0], false),  // 6: the activation, transposed
            (Op, &[2, 6], false), // 7: the gradient of the second weight
            (Group, &[7], true),  // 8: its update
        ];
        assert_eq!(order(&steps), [0, 1, 2, 3, 6, 7, 8, 4, 5]);
    }

    #[test]
    fn steps_that_free_too_little_keep_their_places() {
        // The second reader would free one value and store another.
        assert_eq!(
            order(&[(Op, &[], false), (Op, &[0], true), (Op, &[1], true), (Op, &[0], true)]),
            [0, 1, 2, 3]
        );
        // Its other input is wanted for itself.
        let held: [(StepRole, &[usize], bool); 5] =
            [(Op, &[], false), (Op, &[], true), (Op, &[0], false), (Op, &[2], true), (Op, &[0, 1], true)];
        assert_eq!(order(&held), [0, 1, 2, 3, 4]);
        let freed = held.map(|(role, reads, held)| (role, reads, held && reads != [] as [usize; 0]));
        assert_eq!(order(&freed), [0, 1, 2, 4, 3]);
    }

    #[test]
    fn every_step_has_one_place_after_what_it_reads() {
        let mut state = 7u32;
        let mut next = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for _ in 0..200 {
            let count = 1 + next(60);
            let steps: Vec<(StepRole, Vec<usize>, bool)> = (0..count)
                .map(|at| {
                    let reads = (0..next(4)).filter(|_| at > 0).map(|_| next(at)).collect();
                    ([View, Group, Op, Op][next(4)], reads, next(3) == 0)
                })
                .collect();
            let named: Vec<_> = steps.iter().map(|(role, reads, held)| (*role, &reads[..], *held)).collect();
            let order = order(&named);
            let mut place = vec![usize::MAX; count];
            order.iter().enumerate().for_each(|(at, step)| place[*step as usize] = at);
            assert_eq!(order.len(), count);
            for (at, (_, reads, _)) in steps.iter().enumerate() {
                assert!(reads.iter().all(|read| place[*read] < place[at]), "{order:?}");
            }
        }
    }

    #[test]
    fn a_long_chain_of_views_takes_no_stack() {
        let mut order = StepOrder::new(300_002);
        order.push(Op, [(0, false)]);
        for at in 1..300_001 {
            order.read(at - 1);
            order.push(View, [(at as u32, false)]);
        }
        order.read(300_000);
        order.push(Op, [(300_001, true)]);
        assert_eq!(order.order().len(), 300_002);
    }
}
