//! The scheduler under random arrivals, cancellations, failing steps and lost memory, by seed.
//!
//! The model is a function: the row of a token in a page is a hash of the row before and the token, and a sampled token
//! follows from the last row. A request whose rows were lost, mixed up or overwritten gets other tokens than alone.

use std::collections::HashMap;
use std::time::Duration;

use hesper as _;
use hesper_serve::engine::scheduler::{JobId, JobSpec, Limits, Piece, Rejected, Scheduler};

/// The SplitMix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % limit.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The state after one more token, and the token that is sampled there.
fn next_row(before: u64, token: u32) -> u64 {
    mix(before ^ (u64::from(token) << 17) ^ 0x51)
}

fn sampled(row: u64) -> u32 {
    (row % 7) as u32
}

/// The tokens that a prompt is continued with.
fn alone(prompt: &[u32], count: usize) -> Vec<u32> {
    let mut row = prompt.iter().fold(0, |row, token| next_row(row, *token));
    let mut all = Vec::new();
    while all.len() < count {
        all.push(sampled(row));
        row = next_row(row, all[all.len() - 1]);
    }
    all
}

/// Pages of rows.
struct Memory {
    page: usize,
    rows: HashMap<(u32, usize), u64>,
}

impl Memory {
    /// Computes a piece. Returns the last row.
    fn run(&mut self, piece: &Piece, window: Option<usize>) -> u64 {
        let place = |at: usize| (piece.pages[at / self.page], at % self.page);
        // Everything that a layer sees is read.
        let from = window.map_or(0, |window| (piece.start + 1).saturating_sub(window));
        for at in from..piece.start {
            assert!(self.rows.contains_key(&place(at)), "row {at} of job {} is missing", piece.job);
        }
        let mut row = piece.start.checked_sub(1).map_or(0, |at| self.rows[&place(at)]);
        for (at, token) in (piece.start..).zip(&piece.tokens) {
            row = next_row(row, *token);
            self.rows.insert(place(at), row);
        }
        row
    }
}

struct Open {
    prompt: Vec<u32>,
    max_tokens: usize,
    tokens: Vec<u32>,
    poisoned: bool,
}

/// Counts of what happened in a run.
#[derive(Debug, Default)]
struct Counts {
    finished: usize,
    cancelled: usize,
    failed: usize,
    refused: usize,
    preempted: usize,
    cached: usize,
    shared: usize,
}

fn run(seed: u64) -> Counts {
    let mut random = Random(seed);
    let page = 1 << random.below(3);
    let chunk = page * (1 + random.below(3) as usize);
    let limits = Limits {
        page,
        chunk,
        pages: 4 + random.below(40) as usize,
        prefix_pages: random.below(30) as usize,
        running: 1 + random.below(6) as usize,
        waiting: 1 + random.below(8) as usize,
        step_tokens: 1 + random.below(24) as usize,
        reserve: random.below(12) as usize,
        window: random.chance(30).then(|| 2 + random.below(12) as usize),
    };
    let mut scheduler = Scheduler::new(limits.clone());
    let mut memory = Memory { page, rows: HashMap::new() };
    let (mut open, mut counts): (HashMap<JobId, Open>, Counts) = (HashMap::new(), Counts::default());
    let prefixes: Vec<Vec<u32>> =
        (0..3).map(|_| (0..random.below(40)).map(|_| random.below(5) as u32).collect()).collect();
    let (mut steps, mut clock) = (0, 0);
    while steps < 300 || !open.is_empty() {
        steps += 1;
        clock += 1;
        assert!(steps < 20_000, "seed {seed}: requests are never answered: {limits:?}");
        if steps < 300 && random.chance(40) {
            let mut prompt = prefixes[random.below(3) as usize].clone();
            prompt.extend((0..1 + random.below(12)).map(|_| random.below(5) as u32));
            let max_tokens = 1 + random.below(20) as usize;
            let spec = JobSpec {
                prompt: prompt.clone(),
                max_tokens,
                priority: random.below(3) as i32,
                tenant: random.below(2),
                use_prefix: random.chance(80),
                deadline: random.chance(10).then(|| Duration::from_secs(clock + random.below(60))),
            };
            match scheduler.submit(spec) {
                Ok(id) => {
                    let poisoned = random.chance(3);
                    let before = open.insert(id, Open { prompt, max_tokens, tokens: Vec::new(), poisoned });
                    assert!(before.is_none());
                }
                Err(Rejected::TooLarge { needed }) => assert!(needed > limits.pages),
                Err(Rejected::QueueFull) => {
                    assert!(scheduler.waiting() >= limits.waiting);
                    counts.refused += 1;
                }
            }
        }
        if random.chance(5)
            && let Some(id) = open.keys().min().copied()
        {
            open.remove(&id);
            assert!(scheduler.remove(id).is_some());
            counts.cancelled += 1;
        }
        for id in scheduler.expired(Duration::from_secs(clock)) {
            assert!(open.remove(&id).is_some() && scheduler.remove(id).is_some());
            counts.failed += 1;
        }
        let plan = scheduler.plan();
        scheduler.check().unwrap();
        counts.preempted += plan.preempted;
        counts.cached += plan.started.iter().map(|(_, cached)| cached).sum::<usize>();
        assert!(!plan.is_empty() || open.is_empty(), "seed {seed}: nothing to do for {} jobs", open.len());
        // A job may be cancelled while the step runs.
        if random.chance(3)
            && let Some(piece) = plan.decode.first().or(plan.chunks.first())
        {
            open.remove(&piece.job);
            scheduler.remove(piece.job);
            counts.cancelled += 1;
        }
        let pieces = || plan.decode.iter().chain(&plan.chunks);
        let poisoned = pieces().any(|piece| open.get(&piece.job).is_some_and(|job| job.poisoned));
        if poisoned || random.chance(1) {
            memory.rows.clear();
            if let Some(id) = scheduler.lost() {
                assert!(open.remove(&id).is_some() && scheduler.remove(id).is_some());
                counts.failed += 1;
            }
            scheduler.check().unwrap();
            continue;
        }
        let mut written: HashMap<(u32, usize), JobId> = HashMap::new();
        for piece in pieces() {
            for at in piece.start..piece.start + piece.tokens.len() {
                let other = written.insert((piece.pages[at / page], at % page), piece.job);
                assert!(other.is_none(), "jobs {other:?} and {} write the same row", piece.job);
            }
        }
        scheduler.succeeded();
        for piece in pieces() {
            let row = memory.run(piece, limits.window);
            scheduler.computed(piece);
            let Some(job) = open.get_mut(&piece.job) else { continue };
            if piece.sample {
                job.tokens.push(sampled(row));
                scheduler.push(piece.job, sampled(row));
                if job.tokens.len() == job.max_tokens {
                    assert_eq!(job.tokens, alone(&job.prompt, job.max_tokens), "seed {seed}");
                    open.remove(&piece.job);
                    scheduler.remove(piece.job);
                    counts.finished += 1;
                }
            }
        }
        counts.shared += scheduler.pages_used().1;
        scheduler.check().unwrap();
    }
    assert!(scheduler.is_empty());
    assert_eq!(scheduler.pages_used().0, 0, "seed {seed}: pages of finished jobs");
    counts
}

#[test]
fn every_request_is_answered_as_if_it_were_alone() {
    let mut all = Counts::default();
    for seed in 0..400 {
        let counts = run(seed);
        all.finished += counts.finished;
        all.cancelled += counts.cancelled;
        all.failed += counts.failed;
        all.refused += counts.refused;
        all.preempted += counts.preempted;
        all.cached += counts.cached;
        all.shared += counts.shared;
    }
    assert!(all.finished > 1000 && all.cancelled > 100 && all.failed > 100, "{all:?}");
    assert!(all.refused > 100 && all.preempted > 100 && all.cached > 1000 && all.shared > 100, "{all:?}");
}

#[test]
fn tenants_get_equal_shares_and_higher_priorities_go_first() {
    let limits = Limits {
        page: 4,
        chunk: 4,
        pages: 100,
        prefix_pages: 0,
        running: 2,
        waiting: 100,
        step_tokens: 8,
        reserve: 16,
        window: None,
    };
    let mut scheduler = Scheduler::new(limits);
    let spec = |tenant: u64, priority: i32| JobSpec {
        prompt: vec![1; 8],
        max_tokens: 4,
        priority,
        tenant,
        use_prefix: false,
        deadline: None,
    };
    // The first tenant has submitted 20 requests before the second submits 2.
    let first: Vec<JobId> = (0..20).map(|_| scheduler.submit(spec(1, 0)).unwrap()).collect();
    let second: Vec<JobId> = (0..2).map(|_| scheduler.submit(spec(2, 0)).unwrap()).collect();
    let mut order = Vec::new();
    for step in 0..1000 {
        if step == 3 {
            let urgent = scheduler.submit(spec(1, 5));
            let plan = scheduler.plan();
            assert!(plan.started.iter().any(|(id, _)| Ok(*id) == urgent), "a lower priority gives way");
            assert_eq!(plan.preempted, 1);
        }
        let plan = scheduler.plan();
        if plan.is_empty() {
            break;
        }
        for piece in plan.decode.iter().chain(&plan.chunks) {
            scheduler.computed(piece);
            if piece.sample {
                scheduler.push(piece.job, 3);
            }
            if scheduler.job(piece.job).is_some_and(|job| job.generated() == 4) {
                scheduler.remove(piece.job);
                order.push(piece.job);
            }
        }
    }
    assert_eq!(order.len(), 23);
    for id in second {
        let place = order.iter().position(|done| *done == id).unwrap_or(99);
        assert!(place < 8, "request {id} of the second tenant was number {place}");
    }
    assert!(order.contains(&first[19]));
}
