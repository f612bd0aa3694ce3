//! Simulates the scheduler with random arrivals, cancellations, failed steps and lost memory, by seed. A step
//! is planned after the previous one or while it is in flight. A step in flight is computed even if its
//! results are discarded.
//!
//! The model is a hash function: the row of a token is a hash of the previous row and the token, and the
//! sampled token is a function of the last row. A request whose rows were lost, mixed up or overwritten gets
//! other tokens than alone.

use std::collections::HashMap;
use std::time::Duration;

use hesper as _;
use hesper_serve::engine::scheduler::{
    JobId, JobSpec, Limits, Piece, Plan, Rejected, Scheduler, Time, UNKNOWN_TOKEN,
};

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

/// The row of a token, given the row before it.
fn next_row(before: u64, token: u32) -> u64 {
    mix(before ^ (u64::from(token) << 17) ^ 0x51)
}

/// The token that is sampled after a row.
fn sampled(row: u64) -> u32 {
    (row % 7) as u32
}

/// The tokens that follow a prompt: at most `count`, up to the token `end`.
fn alone(prompt: &[u32], count: usize, end: Option<u32>) -> Vec<u32> {
    let mut row = prompt.iter().fold(0, |row, token| next_row(row, *token));
    let mut all: Vec<u32> = Vec::new();
    while all.len() < count && (end.is_none() || all.last().copied() != end) {
        all.push(sampled(row));
        row = next_row(row, all[all.len() - 1]);
    }
    all
}

/// The rows of all pages.
struct Memory {
    page: usize,
    rows: HashMap<(u32, usize), u64>,
    /// The last token that was chosen for each job.
    chosen: HashMap<JobId, u32>,
}

impl Memory {
    /// Computes a piece. Returns the sampled tokens: one, and one more for each accepted draft token.
    fn run(&mut self, piece: &Piece, window: Option<usize>) -> Vec<u32> {
        let place = |at: usize| (piece.pages[at / self.page], at % self.page);
        // Check that all rows in the window exist.
        let from = window.map_or(0, |window| (piece.start + 1).saturating_sub(window));
        for at in from..piece.start {
            assert!(self.rows.contains_key(&place(at)), "row {at} of job {} is missing", piece.job);
        }
        let mut row = piece.start.checked_sub(1).map_or(0, |at| self.rows[&place(at)]);
        let (mut next, known) = (Vec::new(), piece.tokens.len() - piece.drafts);
        for (at, token) in piece.tokens.iter().enumerate() {
            let is_accepted = at < known || (next.len() == at - known + 1 && next.last() == Some(token));
            let token = if *token == UNKNOWN_TOKEN { self.chosen[&piece.job] } else { *token };
            row = next_row(row, token);
            self.rows.insert(place(piece.start + at), row);
            if at + 1 == known || (at >= known && is_accepted) {
                next.push(sampled(row));
            }
        }
        if piece.sample {
            self.chosen.insert(piece.job, next[next.len() - 1]);
        }
        next
    }

    /// Computes a step whose results are discarded.
    fn run_all(&mut self, plan: &Plan, window: Option<usize>) {
        for piece in plan.pieces() {
            self.run(piece, window);
        }
    }
}

/// A request that is not finished.
struct OpenRequest {
    prompt: Vec<u32>,
    max_tokens: usize,
    tokens: Vec<u32>,
    end: Option<u32>,
    poisoned: bool,
}

/// Counters of a run.
#[derive(Debug, Default)]
struct Counts {
    finished: usize,
    cancelled: usize,
    failed: usize,
    refused: usize,
    preempted: usize,
    cached: usize,
    reused: usize,
    shared: usize,
    ahead: usize,
    discarded: usize,
    drafted: usize,
    accepted: usize,
}

fn run(seed: u64) -> Counts {
    let mut random = Random(seed);
    let page = 1 << random.below(3);
    let chunk = page * (1 + random.below(3) as usize);
    let limits = Limits {
        page,
        chunk,
        fixed_pieces: random.chance(50),
        pages: 4 + random.below(40) as usize,
        prefix_pages: random.below(30) as usize,
        running: 1 + random.below(6) as usize,
        waiting: 1 + random.below(8) as usize,
        step_tokens: 1 + random.below(24) as usize,
        is_paced: random.chance(50),
        reserve: random.below(12) as usize,
        window: random.chance(30).then(|| 2 + random.below(12) as usize),
        drafts: random.below(4) as usize,
    };
    let mut scheduler = Scheduler::new(limits.clone());
    let mut memory = Memory { page, rows: HashMap::new(), chosen: HashMap::new() };
    let mut in_flight: Option<Plan> = None;
    let looks_ahead = random.below(100);
    let (mut open, mut counts): (HashMap<JobId, OpenRequest>, Counts) = (HashMap::new(), Counts::default());
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
                    let end = random.chance(40).then(|| random.below(7) as u32);
                    let tokens = Vec::new();
                    let before = open.insert(id, OpenRequest { prompt, max_tokens, tokens, end, poisoned });
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
        let plan = in_flight.take().unwrap_or_else(|| {
            let plan = scheduler.plan();
            scheduler.check().unwrap();
            counts.preempted += plan.preempted;
            counts.reused += plan.reused;
            counts.cached += plan.started.iter().map(|(_, cached)| cached).sum::<usize>();
            assert!(!plan.is_empty() || open.is_empty(), "seed {seed}: nothing for {} jobs", open.len());
            plan
        });
        // The number of accepted draft tokens is known only after a step, so there is no step ahead.
        let can_look_ahead = !plan.is_empty() && plan.pieces().all(|piece| piece.drafts == 0);
        let ahead = match can_look_ahead && random.chance(looks_ahead) {
            true => Some(scheduler.plan_ahead()),
            false => None,
        };
        scheduler.check().unwrap();
        if let Some(ahead) = &ahead {
            assert_eq!(ahead.preempted, 0, "seed {seed}: a job of the step in flight was preempted");
            counts.ahead += ahead.decode.len();
            counts.reused += ahead.reused;
            counts.cached += ahead.started.iter().map(|(_, cached)| cached).sum::<usize>();
        }
        // A job may be cancelled while the step runs.
        if random.chance(3)
            && let Some(piece) = plan.decode.first().or(plan.chunks.first())
        {
            open.remove(&piece.job);
            scheduler.remove(piece.job);
            counts.cancelled += 1;
        }
        if random.chance(2) {
            // A failed step is retried, even if the next one was launched.
            memory.run_all(&plan, limits.window);
            ahead.iter().for_each(|ahead| memory.run_all(ahead, limits.window));
            continue;
        }
        let poisoned = plan.pieces().any(|piece| open.get(&piece.job).is_some_and(|job| job.poisoned));
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
        for piece in plan.pieces() {
            for at in piece.start..piece.start + piece.tokens.len() {
                let other = written.insert((piece.pages[at / page], at % page), piece.job);
                assert!(other.is_none(), "jobs {other:?} and {} write the same row", piece.job);
            }
        }
        scheduler.succeeded();
        let time = match (random.below(3), Duration::from_micros(random.below(3000))) {
            (0, time) => Time::Exact(time),
            (1, time) => Time::AtMost(time),
            _ => Time::Unknown,
        };
        scheduler.measured(&plan, time);
        // The host chooses another token than the device, with which the next step was launched.
        let diverges = random.chance(2);
        for piece in plan.pieces() {
            let next = memory.run(piece, limits.window);
            let Some(job) = open.get_mut(&piece.job) else { continue };
            // A sequence may end before its last accepted draft token.
            let end = next.iter().position(|token| job.end == Some(*token)).map_or(next.len(), |at| at + 1);
            let next = if piece.sample { &next[..end] } else { &[] };
            let accepted = next.len().saturating_sub(1);
            scheduler.computed(piece, accepted);
            counts.drafted += piece.drafts;
            counts.accepted += accepted;
            for token in next {
                job.tokens.push(*token);
                scheduler.push(piece.job, *token);
                if diverges {
                    memory.chosen.insert(piece.job, 99);
                }
                if job.tokens.len() == job.max_tokens || job.end == Some(*token) {
                    assert_eq!(job.tokens, alone(&job.prompt, job.max_tokens, job.end), "seed {seed}");
                    counts.discarded +=
                        ahead.iter().flat_map(Plan::pieces).filter(|next| next.job == piece.job).count();
                    open.remove(&piece.job);
                    scheduler.remove(piece.job);
                    counts.finished += 1;
                    break;
                }
            }
        }
        counts.shared += scheduler.pages_used().1;
        scheduler.check().unwrap();
        match ahead {
            Some(ahead) if diverges => memory.run_all(&ahead, limits.window),
            ahead => in_flight = ahead.filter(|ahead| !ahead.is_empty()),
        }
    }
    assert!(scheduler.is_empty());
    assert_eq!(scheduler.pages_used().0, 0, "seed {seed}: pages of finished jobs");
    counts
}

#[test]
fn every_request_is_answered_as_if_it_were_alone() {
    let mut all = Counts::default();
    // With seed 951 only a part of a cached chunk is in the window of the job that needs its memory.
    for seed in (0..400).chain([951]) {
        let counts = run(seed);
        all.finished += counts.finished;
        all.cancelled += counts.cancelled;
        all.failed += counts.failed;
        all.refused += counts.refused;
        all.preempted += counts.preempted;
        all.cached += counts.cached;
        all.reused += counts.reused;
        all.shared += counts.shared;
        all.ahead += counts.ahead;
        all.discarded += counts.discarded;
        all.drafted += counts.drafted;
        all.accepted += counts.accepted;
    }
    assert!(all.finished > 1000 && all.cancelled > 100 && all.failed > 100, "{all:?}");
    assert!(all.refused > 100 && all.preempted > 100 && all.cached > 1000 && all.shared > 100, "{all:?}");
    assert!(all.reused > 1000, "{all:?}");
    assert!(all.ahead > 1000 && all.discarded > 100, "{all:?}");
    assert!(all.accepted > 100 && all.drafted > all.accepted, "{all:?}");
}

#[test]
fn prompts_that_begin_alike_are_computed_once() {
    for (fixed_pieces, ahead) in [(false, false), (true, false), (false, true), (true, true)] {
        let limits = Limits {
            page: 4,
            chunk: 8,
            fixed_pieces,
            pages: 1000,
            prefix_pages: 1000,
            running: 16,
            waiting: 100,
            step_tokens: 64,
            is_paced: false,
            reserve: 16,
            window: None,
            drafts: 0,
        };
        let mut scheduler = Scheduler::new(limits);
        let mut submit = |tenant: u64, tail: u32, use_prefix: bool| {
            let mut prompt: Vec<u32> = (0..200).collect();
            prompt.extend([tail; 3]);
            let spec = JobSpec { prompt, max_tokens: 1, priority: 0, tenant, use_prefix, deadline: None };
            scheduler.submit(spec).unwrap()
        };
        // Eight choices of one request and four of another, with the same instructions before them.
        let own: Vec<JobId> = (0..12).map(|at| submit(1, 900 + u32::from(at >= 8), true)).collect();
        let others = [submit(2, 900, true), submit(1, 900, false)];
        let (mut computed, mut in_flight): (HashMap<JobId, usize>, Option<Plan>) = (HashMap::new(), None);
        let (mut cached, mut steps) = (HashMap::new(), 0);
        loop {
            let plan = in_flight.take().unwrap_or_else(|| scheduler.plan());
            if plan.is_empty() {
                break;
            }
            steps += 1;
            in_flight = ahead.then(|| scheduler.plan_ahead()).filter(|plan| !plan.is_empty());
            for piece in plan.pieces() {
                *computed.entry(piece.job).or_default() += piece.tokens.len();
                scheduler.computed(piece, 0);
                if piece.sample {
                    let job = scheduler.remove(piece.job).unwrap();
                    cached.insert(piece.job, job.cached());
                }
            }
            scheduler.check().unwrap();
        }
        assert!(scheduler.is_empty());
        for job in &others {
            assert_eq!((computed[job], cached[job]), (203, 0), "a tenant shares nothing with another one");
        }
        let total: usize = own.iter().map(|job| computed[job]).sum();
        assert_eq!(total, 200 + 12 * 3, "{computed:?}");
        for job in &own {
            assert_eq!(computed[job] + cached[job], 203, "the usage says what was not computed");
        }
        assert!(steps < 30, "{steps} steps for {} tokens", 3 * 203 + 11 * 3);
    }
}

#[test]
fn tenants_get_equal_shares_and_higher_priorities_go_first() {
    let limits = Limits {
        page: 4,
        chunk: 4,
        fixed_pieces: true,
        pages: 100,
        prefix_pages: 0,
        running: 2,
        waiting: 100,
        step_tokens: 8,
        is_paced: false,
        reserve: 16,
        window: None,
        drafts: 0,
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
            assert!(
                plan.started.iter().any(|(id, _)| Ok(*id) == urgent),
                "a job of lower priority is preempted"
            );
            assert_eq!(plan.preempted, 1);
        }
        let plan = scheduler.plan();
        if plan.is_empty() {
            break;
        }
        for piece in plan.decode.iter().chain(&plan.chunks) {
            scheduler.computed(piece, 0);
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

/// The costs of a device, in seconds.
struct Costs {
    /// The fixed cost of a pass, which reads the weights.
    pass: f64,
    /// The cost of a decoding row.
    row: f64,
    /// The cost of a prompt token.
    token: f64,
    /// The most rows of a pass.
    rows: usize,
}

impl Costs {
    /// The time of a step.
    fn seconds(&self, plan: &Plan) -> f64 {
        let (rows, tokens) =
            (plan.decode_rows(), plan.chunks.iter().map(|piece| piece.tokens.len()).sum::<usize>());
        let passes = (rows + tokens).div_ceil(self.rows) as f64;
        passes * self.pass + rows as f64 * self.row + tokens as f64 * self.token
    }
}

/// Percentiles 50 and 99, in seconds.
#[derive(Debug, Clone, Copy)]
struct Percentiles(f64, f64);

impl Percentiles {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        Percentiles(all[all.len() / 2], all[all.len() * 99 / 100])
    }
}

/// Simulates clients in a closed loop. A request has a prompt of `prompt(number)` tokens and gets 64 tokens.
/// Returns the times to the first token and between tokens.
fn closed_loop(
    costs: &Costs,
    limits: Limits,
    clients: usize,
    prompt: impl Fn(usize) -> usize,
) -> [Percentiles; 2] {
    let mut scheduler = Scheduler::new(limits);
    let (mut clock, mut submitted) = (0.0, 0);
    let mut submit = |scheduler: &mut Scheduler| {
        submitted += 1;
        let spec = JobSpec {
            prompt: vec![submitted as u32; prompt(submitted)],
            max_tokens: 64,
            priority: 0,
            tenant: 0,
            use_prefix: false,
            deadline: None,
        };
        scheduler.submit(spec).unwrap()
    };
    let mut last: HashMap<JobId, f64> = (0..clients).map(|_| (submit(&mut scheduler), 0.0)).collect();
    let (mut first_token, mut between) = (Vec::new(), Vec::new());
    while first_token.len() < 6 * clients {
        let plan = scheduler.plan();
        let seconds = costs.seconds(&plan);
        clock += seconds;
        scheduler.measured(&plan, Time::Exact(Duration::from_secs_f64(seconds)));
        for piece in plan.pieces() {
            scheduler.computed(piece, 0);
            if !piece.sample {
                continue;
            }
            scheduler.push(piece.job, 1);
            let before = last.insert(piece.job, clock).unwrap_or(clock);
            match scheduler.job(piece.job).map_or(0, |job| job.generated()) {
                1 => first_token.push(clock - before),
                _ => between.push(clock - before),
            }
            if scheduler.job(piece.job).is_some_and(|job| job.generated() == 64) {
                scheduler.remove(piece.job);
                last.remove(&piece.job);
                last.insert(submit(&mut scheduler), clock);
            }
        }
    }
    [Percentiles::of(first_token), Percentiles::of(between)]
}

fn load_limits(chunk: usize, step_tokens: usize, is_paced: bool) -> Limits {
    Limits {
        page: 32,
        chunk,
        fixed_pieces: false,
        pages: 10_000,
        prefix_pages: 0,
        running: 64,
        waiting: 100,
        step_tokens,
        is_paced,
        reserve: 128,
        window: None,
        drafts: 0,
    }
}

#[test]
fn pacing_by_measured_costs_shortens_the_time_to_first_token() {
    // A small model on a CPU: 64 rows cost as much as a chunk of 64 tokens.
    let costs = Costs { pass: 0.012, row: 0.0018, token: 0.0018, rows: 64 };
    let fixed = closed_loop(&costs, load_limits(32, 64, false), 64, |_| 80);
    let paced = closed_loop(&costs, load_limits(32, 512, true), 64, |_| 80);
    assert!(paced[0].0 < 0.5 * fixed[0].0, "{paced:?} {fixed:?}");
    // The time of an answer is that of the first token and of 63 others.
    let whole = |[first, between]: [Percentiles; 2]| first.0 + 63.0 * between.0;
    assert!(whole(paced) < 1.1 * whole(fixed), "{paced:?} {fixed:?}");
}

#[test]
fn the_first_tokens_of_a_burst_come_about_as_early_as_if_prompts_went_first() {
    let costs = Costs { pass: 0.012, row: 0.0018, token: 0.0018, rows: 64 };
    let (mut scheduler, mut clock, mut first_token) =
        (Scheduler::new(load_limits(32, 512, true)), 0.0, Vec::new());
    let spec = JobSpec {
        prompt: vec![1; 64],
        max_tokens: 64,
        priority: 0,
        tenant: 0,
        use_prefix: false,
        deadline: None,
    };
    (0..32).for_each(|_| assert!(scheduler.submit(spec.clone()).is_ok()));
    while first_token.len() < 32 {
        let plan = scheduler.plan();
        let seconds = costs.seconds(&plan);
        clock += seconds;
        scheduler.measured(&plan, Time::Exact(Duration::from_secs_f64(seconds)));
        for piece in plan.pieces() {
            scheduler.computed(piece, 0);
            if piece.sample {
                scheduler.push(piece.job, 1);
                first_token.extend((piece.start + piece.tokens.len() == 64).then_some(clock));
            }
        }
    }
    let prompts_alone = 32.0 * (costs.pass + 64.0 * costs.token);
    assert!(first_token[28] < 1.3 * prompts_alone, "{first_token:?} {prompts_alone}");
}

#[test]
fn prompts_do_not_stall_decoding_requests() {
    // A large model on a GPU, with prompts of 16 to 2,000 tokens.
    let costs = Costs { pass: 0.004, row: 40e-6, token: 25e-6, rows: 8192 };
    let prompt = |at: usize| if at.is_multiple_of(5) { 2000 } else { 16 + at * 37 % 200 };
    for clients in [8, 64] {
        let [first, between] = closed_loop(&costs, load_limits(128, 8192, true), clients, prompt);
        assert!(between.1 <= 2.5 * between.0, "{clients} clients: {between:?}");
        assert!(first.0 < 1.0, "{clients} clients: {first:?}");
    }
}

#[test]
fn a_piece_of_several_chunks_is_cached_up_to_its_last_whole_chunk() {
    let mut limits = load_limits(64, 4096, false);
    limits.prefix_pages = 1000;
    let mut scheduler = Scheduler::new(limits);
    let prompt: Vec<u32> = (0..500).collect();
    let spec = |use_prefix| JobSpec {
        prompt: prompt.clone(),
        max_tokens: 2,
        priority: 0,
        tenant: 0,
        use_prefix,
        deadline: None,
    };
    scheduler.submit(spec(true)).unwrap();
    let plan = scheduler.plan();
    assert_eq!(plan.chunks.iter().map(|piece| piece.tokens.len()).collect::<Vec<_>>(), [500]);
    plan.pieces().for_each(|piece| scheduler.computed(piece, 0));
    scheduler.submit(spec(true)).unwrap();
    assert_eq!(scheduler.plan().started[0].1, 448);
}

#[test]
fn a_long_prompt_neither_delays_short_ones_nor_starves() {
    let mut scheduler = Scheduler::new(load_limits(32, 32, false));
    let spec = |length: usize| JobSpec {
        prompt: vec![1; length],
        max_tokens: 100,
        priority: 0,
        tenant: 0,
        use_prefix: false,
        deadline: None,
    };
    let long = scheduler.submit(spec(3200)).unwrap();
    let (mut short, mut answered, mut long_done) = (scheduler.submit(spec(32)).unwrap(), 0, None);
    for step in 0..1000 {
        let plan = scheduler.plan();
        for piece in plan.pieces() {
            scheduler.computed(piece, 0);
            if piece.sample {
                scheduler.push(piece.job, 1);
            }
            if piece.sample && piece.job == short {
                answered += 1;
                scheduler.remove(short);
                short = scheduler.submit(spec(32)).unwrap();
            }
            if piece.sample && piece.job == long {
                long_done.get_or_insert(step);
            }
        }
    }
    assert!(answered > 300, "{answered} short prompts");
    assert!(long_done.is_some_and(|step| step < 250), "{long_done:?}");
}
